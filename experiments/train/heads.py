"""Trains heads of any kind on any target's hidden states."""

import dataclasses
import os
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from experiments.common import configs
from experiments.common import prompts as prompts_lib
from experiments.train import growth
from experiments.train import teacher_outputs
from specjax import base
from specjax import checks
from specjax import families
from specjax import models
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import cutting
from specjax.models import head_config as head_config_lib
from specjax.models import heads
from specjax.training import head_losses
from specjax.training import loop

_RECIPE = head_losses.Recipe
# Options of the losses of heads that draft in one call.
_OPTIONS = {
  head_config_lib.MedusaConfig: ('decay', 'loss'),
  head_config_lib.DFlashConfig: ('num_blocks', 'decay', 'loss'),
}
# Fields of all entries, and further fields of new heads.
_COMMON = 'recipe', 'training'
_NEW = 'kind', 'options'

figures = growth.figures


def prepare(config):
  """Returns the family, and the training of each head."""
  family = prompts_lib.load_family(config)
  embedding = families.target_embedding(config.family)
  return family, {
    name: _parse_entry(config, name, family.target, embedding)
    for name in _in_order(config.heads)
  }


def run(config, workdir):
  """Writes `NAME.safetensors` for each head; returns its learning curve."""
  family, entries = prepare(config)
  target = family.target
  taps = {tap for entry in entries.values() for tap in entry.head.config.taps}
  taps = sorted(taps - {-1})
  outputs = teacher_outputs.compute(
    config, family, workdir, taps, unused=_mask_tokens(entries)
  )
  trained_heads, trained = {}, {}
  for number, (name, entry) in enumerate(entries.items()):
    folder = os.path.join(workdir, name)
    successors = [other for other in entries.values() if other.start == name]
    share = (1 + len(successors)) / (len(entries) - number)
    seconds = growth.seconds(folder, share)
    previous = trained.get(entry.start)
    is_waiting = entry.start in entries and (
      previous is None or not growth.is_complete(previous)
    )
    if seconds is None or is_waiting:
      workdir.is_incomplete = True
      continue
    head = trained_heads.get(entry.start, entry.head)
    indices = [taps.index(tap) for tap in head.config.taps if tap != -1]
    rows = outputs._replace(taps=tuple(outputs.taps[i] for i in indices))
    if head.params is None:
      head = _begin(config, target, rows, head.config)
    head = _fit(entry, target, rows, head, folder, seconds)
    trained_heads[name] = head
    checkpoint.save(
      os.path.join(workdir, f'{name}.safetensors'),
      head.config,
      heads.own_params(head.config, head.params),
      np.dtype(config.stored_as),
    )
    trained[name] = growth.Trained(
      folder, entry.training, previous, is_new=entry.start is None
    )
    workdir.is_incomplete |= not growth.is_complete(trained[name])
  return growth.rows(trained, *outputs.tokens.shape)


class _Head(NamedTuple):
  """A head during training; a new head has no parameters yet."""

  config: heads.HeadConfig
  params: base.Params | None


class _Entry(NamedTuple):
  """The training of one head."""

  head: _Head  # its initial state, unless it continues a head of this run
  start: str | None  # the head or the file that it continues, if any
  recipe: dict[str, Any]
  training: loop.TrainingConfig


def _parse_entry(
  config: Any, name: str, target: families.Model, embedding: base.Params
) -> _Entry:
  """Parses the entry of a head; raises `ValueError` for an invalid one."""
  fields = dict(config.heads[name])
  start = fields.get('start')
  known = _COMMON + (_NEW if start is None else ('start',))
  configs.check_known(fields, known, f'heads.{name}: Unknown field')
  required = {'kind', 'options'} if start is None else set()
  _check_all(fields, {'recipe', *required}, f'heads.{name}')
  head = _initial_head(config.heads, name, target, embedding)
  location = f'heads.{name}.recipe'
  recipe = _recipe(head.config, dict(fields['recipe']), location)
  with configs.error_context(location, recipe):
    if 'num_blocks' in recipe:
      checks.check_integers(
        'num_blocks', recipe['num_blocks'], 1, config.row_length
      )
    _loss(head.config, target.config, recipe)
  # A head that continues another one reads the text in another order.
  training = {'seed': config.seed + _stage(config.heads, name)}
  for settings in (config.training, fields.get('training', {})):
    training |= dict(settings)
  location = f'heads.{name}.training' if 'training' in fields else 'training'
  with configs.error_context(location, training):
    return _Entry(head, start, recipe, loop.TrainingConfig(**training))


def _stage(entries: Any, name: str) -> int:
  """Returns the number of heads of this run that a head continues."""
  start = entries[name].get('start')
  return 1 + _stage(entries, start) if start in entries else 0


def _recipe(
  head_config: heads.HeadConfig, recipe: dict[str, Any], location: str
) -> dict[str, Any]:
  """Checks the options of the loss, which depend on the kind of the head."""
  for kind, options in _OPTIONS.items():
    if isinstance(head_config, kind):
      configs.check_known(recipe, options, f'{location}: Unknown field')
      return recipe
  configs.check_known(recipe, _RECIPE._fields, f'{location}: Unknown field')
  required = set(_RECIPE._fields) - set(_RECIPE._field_defaults)
  _check_all(recipe, required, location)
  return recipe


def _check_all(
  fields: dict[str, Any], required: set[str], location: str
) -> None:
  """Raises `ValueError` if an entry of the config lacks a required field."""
  missing = required - set(fields)
  if missing:
    raise ValueError(f'{location} lacks {", ".join(sorted(missing))}.')


def _in_order(entries: Any) -> list[str]:
  """Returns names of heads, each after the head that it continues."""
  order: list[str] = []

  def add(name, ancestors):
    if name in ancestors:
      raise ValueError(f'heads.{name}.start leads to {name} itself.')
    start = entries[name].get('start')
    if start in entries:
      add(start, [*ancestors, name])
    if name not in order:
      order.append(name)

  for name in entries:
    add(name, [])
  return order


def _mask_tokens(entries: dict[str, _Entry]) -> dict[str, int]:
  """Returns the tokens that stand for tokens to predict, by their fields."""
  return {
    f'heads.{name}.options.mask_token': entry.head.config.mask_token
    for name, entry in entries.items()
    if isinstance(entry.head.config, head_config_lib.DFlashConfig)
  }


def _initial_head(
  entries: Any, name: str, target: families.Model, embedding: base.Params
) -> _Head:
  """Returns the initial state of a head, without parameters of this run."""
  fields = entries[name]
  start = fields.get('start')
  if start is None:
    options = dict(fields['options'])
    with configs.error_context(f'heads.{name}.options', options):
      head_config = heads.configure(fields['kind'], target.config, **options)
    fingerprint = heads.fingerprint(embedding)
    return _Head(dataclasses.replace(head_config, target=fingerprint), None)
  if start in entries:
    return _initial_head(entries, start, target, embedding)
  start = os.path.expanduser(start)
  if not os.path.exists(start):
    raise ValueError(
      f'heads.{name}.start must be another head or a file, got {start!r}.'
    )
  loaded = families.load_drafter(
    start, target, load_embedding=lambda: embedding
  )
  if not isinstance(loaded, models.Head):
    raise ValueError(
      f'heads.{name}.start must be a head, got the model {start}.'
    )
  return _Head(loaded.config, loaded.params)


def _begin(
  config: Any,
  target: families.Model,
  rows: Any,
  head_config: heads.HeadConfig,
) -> _Head:
  """Initializes a new head; some parameters are shared with its target."""
  tokens = None
  if head_config.layer.head_size is not None:
    tokens = teacher_outputs.frequent(
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


def _fit(
  entry: _Entry,
  target: families.Model,
  rows: Any,
  head: _Head,
  folder: str,
  seconds: float,
) -> _Head:
  """Trains a head, except for the parameters that it shares with its target."""
  head_config, start = head
  teacher_config, teacher_params = target.config, target.params
  if 'head_rows' in start:
    teacher_config, teacher_params = cutting.narrow_head(
      target.config, target.params, cutting.head_tokens(start['head_rows'])
    )
  names = (*heads.shared_names(head_config), 'head_rows')
  fixed = {name: start[name] for name in names if name in start}
  trainable = {name: start[name] for name in start if name not in fixed}
  params = loop.fit(
    _loss(head_config, teacher_config, entry.recipe),
    trainable,
    (fixed, teacher_params),
    rows,
    entry.training,
    folder,
    seconds,
  )
  return _Head(head_config, {**params, **fixed})


def _loss(
  head_config: heads.HeadConfig, teacher_config: Any, recipe: dict[str, Any]
) -> Any:
  """Returns the loss for the kind of the head."""
  head = heads.head(head_config)
  drafted = heads.drafted_logits(head_config)
  teacher = adapters.head_logits(teacher_config)
  if isinstance(head, base.ParallelHead):
    return head_losses.medusa(head, drafted, teacher, **recipe)
  if isinstance(head, base.BlockHead):
    return head_losses.block_head(head, drafted, teacher, **recipe)
  return head_losses.feature_head(head, drafted, teacher, _RECIPE(**recipe))
