"""Trains heads on the features of any target: EAGLE, EAGLE-3 or Medusa."""

import dataclasses
import os
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from experiments.common import configs
from experiments.common import prompts as prompts_lib
from experiments.train import growth
from experiments.train import taught as taught_lib
from specjax import base
from specjax import families
from specjax import models
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import cutting
from specjax.models import head_config as head_config_lib
from specjax.models import heads
from specjax.training import head_losses
from specjax.training import loop

_RECIPE = head_losses.Recipe._fields
# Fields of an entry: of all, and of a new head.
_COMMON = 'recipe', 'training'
_NEW = 'kind', 'options'

figures = growth.figures


def prepare(config):
  """Returns the family, and how each head is trained."""
  family = prompts_lib.load_family(config)
  return family, {
    name: _plan(config, name, family.target) for name in _in_order(config.heads)
  }


def run(config, workdir):
  """Writes `NAME.safetensors` for each head; returns how it has learnt."""
  family, plans = prepare(config)
  target = family.target
  taps = {tap for plan in plans.values() for tap in plan.head.config.taps}
  taps = sorted(taps - {-1})
  taught = taught_lib.teach(config, family, workdir, taps)
  trained, learnt = {}, {}
  for number, (name, plan) in enumerate(plans.items()):
    folder = os.path.join(workdir, name)
    seconds = growth.seconds(folder, len(plans) - number)
    if seconds is None:
      workdir.is_incomplete = True
      continue
    head = trained.get(plan.start, plan.head)
    read = [taps.index(tap) for tap in head.config.taps if tap != -1]
    rows = taught._replace(taps=tuple(taught.taps[i] for i in read))
    if head.params is None:
      head = _begin(config, target, rows, head.config)
    head = _fit(plan, target, rows, head, folder, seconds)
    trained[name] = head
    checkpoint.save(
      os.path.join(workdir, f'{name}.safetensors'),
      head.config,
      heads.own_params(head.config, head.params),
      np.dtype(config.stored_as),
    )
    before = learnt.get(plan.start)
    learnt[name] = growth.Learnt(
      folder, plan.training, before, new=plan.start is None
    )
    workdir.is_incomplete |= not growth.is_complete(learnt[name])
  return growth.rows(learnt, *taught.tokens.shape)


class _Head(NamedTuple):
  """A head while it is trained; without parameters it is a new one."""

  config: heads.HeadConfig
  params: base.Params | None


class _Plan(NamedTuple):
  """How a head is trained."""

  head: _Head  # as it begins, but for what heads of this run have learnt
  start: str | None  # the head or the file that it begins as
  recipe: dict[str, Any]
  training: loop.TrainingConfig


def _plan(config, name, target):
  """Reads the entry of a head; whatever is wrong is refused here."""
  fields = dict(config.heads[name])
  start = fields.get('start')
  known = _COMMON + (_NEW if start is None else ('start',))
  configs.check_known(fields, known, f'heads.{name}: Unknown field')
  lacking = {'kind', 'options'} if start is None else set()
  _check_all(fields, {'recipe', *lacking}, f'heads.{name}')
  head = _begun(config.heads, name, target)
  place = f'heads.{name}.recipe'
  recipe = _recipe(head.config, dict(fields['recipe']), place)
  # Whoever goes on reads the text in another order.
  training = {'seed': config.seed + _stage(config.heads, name)}
  for more in (config.training, fields.get('training', {})):
    training |= dict(more)
  place = f'heads.{name}.training' if 'training' in fields else 'training'
  with configs.error_context(place, training):
    return _Plan(head, start, recipe, loop.TrainingConfig(**training))


def _stage(entries, name):
  """How many heads of this run a head has been before."""
  start = entries[name].get('start')
  return 1 + _stage(entries, start) if start in entries else 0


def _recipe(head_config, recipe, place):
  """The options of the loss that the kind of the head has."""
  if isinstance(head_config, head_config_lib.MedusaConfig):
    configs.check_known(recipe, ('decay',), f'{place}: Unknown field')
    return recipe
  configs.check_known(recipe, _RECIPE, f'{place}: Unknown field')
  _check_all(recipe, set(_RECIPE) - {'decay'}, place)
  return recipe


def _check_all(fields, needed, place):
  """Refuses an entry of the config that lacks something."""
  lacking = needed - set(fields)
  if lacking:
    raise ValueError(f'{place} lacks {", ".join(sorted(lacking))}.')


def _in_order(entries):
  """Names of heads, each behind the one that it begins as."""
  order = []

  def add(name, on_the_way):
    if name in on_the_way:
      raise ValueError(f'heads.{name}.start leads to {name} itself.')
    start = entries[name].get('start')
    if start in entries:
      add(start, [*on_the_way, name])
    if name not in order:
      order.append(name)

  for name in entries:
    add(name, [])
  return order


def _begun(entries, name, target):
  """What a head begins as; one of this run has no parameters yet."""
  fields = entries[name]
  start = fields.get('start')
  if start is None:
    options = dict(fields['options'])
    with configs.error_context(f'heads.{name}.options', options):
      made = heads.configure(fields['kind'], target.config, **options)
    return _Head(made, None)
  if start in entries:
    return _begun(entries, start, target)
  start = os.path.expanduser(start)
  if not os.path.exists(start):
    raise ValueError(
      f'heads.{name}.start must be another head or a file, got {start!r}.'
    )
  loaded = families.load_drafter(start, target)
  if not isinstance(loaded, models.Head):
    raise ValueError(f'heads.{name}.start must be a head, but {start} is none.')
  return _Head(loaded.config, loaded.params)


def _begin(config, target, rows, head_config):
  """A new head, which begins with what it shares with its target."""
  head_config = dataclasses.replace(
    head_config, target=heads.fingerprint(target.params)
  )
  tokens = None
  if head_config.layer.head_size is not None:
    tokens = taught_lib.frequent(
      rows, target.config.vocab_size, head_config.layer.head_size
    )
  params = heads.begin(
    jax.random.key(config.seed),
    head_config,
    target.config,
    target.params,
    tokens,
  )
  return _Head(head_config, params)


def _fit(plan, target, rows, head, folder, seconds):
  """Trains a head, but for what it shares with its target."""
  head_config, start = head
  teacher_config, teacher_params = target.config, target.params
  if 'head_rows' in start:
    teacher_config, teacher_params = cutting.narrow_head(
      target.config, target.params, cutting.head_tokens(start['head_rows'])
    )
  names = (*heads.shared_names(head_config), 'head_rows')
  fixed = {name: start[name] for name in names if name in start}
  own = {name: start[name] for name in start if name not in fixed}
  params = loop.fit(
    _loss(head_config, teacher_config, plan.recipe),
    own,
    (fixed, teacher_params),
    rows,
    plan.training,
    folder,
    seconds,
  )
  return _Head(head_config, {**params, **fixed})


def _loss(head_config, teacher_config, recipe):
  """The loss that the kind of the head has."""
  head = heads.head(head_config)
  drafted = heads.drafted_logits(head_config)
  teacher = adapters.head_logits(teacher_config)
  if isinstance(head, base.ParallelHead):
    return head_losses.medusa(head, drafted, teacher, **recipe)
  return head_losses.feature_head(
    head, drafted, teacher, head_losses.Recipe(**recipe)
  )
