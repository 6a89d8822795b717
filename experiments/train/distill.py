"""Distills drafters from any target.

A student begins with some layers of the target and a small output head, or as a
drafter of the family. It learns to predict the next token, or several tokens in
one call.
"""

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
from specjax import registry
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.training import loop
from specjax.training import losses
from specjax.training import parallel_losses

# The fields of a student: those of a new one, or the drafter that it begins as;
# and the options of `parallel_losses.parallel`, if it drafts in one call.
_NEW = 'layers', 'head_size'
_START = 'start'
_PARALLEL = 'parallel'

figures = growth.figures


def run(config, workdir):
  """Writes `NAME.safetensors` for each drafter; returns its learning curve."""
  family = prompts_lib.load_family(config)
  with configs.error_context('training', config.training):
    training = loop.TrainingConfig(seed=config.seed, **config.training)
  losses.find(config.loss)
  students = {name: dict(fields) for name, fields in config.students.items()}
  for name, fields in students.items():
    _check(family, f'students.{name}', fields)
  outputs = teacher_outputs.compute(
    config, family, workdir, unused=_mask_tokens(students)
  )
  trained = {}
  for number, (name, fields) in enumerate(students.items()):
    folder = os.path.join(workdir, name)
    seconds = growth.seconds(folder, 1 / (len(students) - number))
    if seconds is None:
      workdir.is_incomplete = True
      continue
    student = _initial(family, outputs, fields)
    loss_fn = _loss(student, fields, config.loss)
    fixed = {key: student.params[key] for key in student.fixed}
    params = loop.fit(
      loss_fn,
      {k: tree for k, tree in student.params.items() if k not in fixed},
      (fixed, student.teacher_params),
      outputs,
      training,
      folder,
      seconds,
    )
    trained[name] = growth.Trained(
      folder, training, is_new=_START not in fields
    )
    workdir.is_incomplete |= not growth.is_complete(trained[name])
    checkpoint.save(
      os.path.join(workdir, f'{name}.safetensors'),
      student.config,
      {
        key: tree
        for key, tree in {**params, **fixed}.items()
        if key not in student.shared
      },
      np.dtype(config.stored_as),
    )
  return growth.rows(trained, *outputs.tokens.shape)


class _Student(NamedTuple):
  """A drafter before training, and the teacher of the tokens that it emits."""

  config: config_lib.TransformerConfig
  params: base.Params
  shared: tuple[str, ...]  # Parameters of the target, which are not stored.
  teacher_config: config_lib.TransformerConfig
  teacher_params: base.Params

  @property
  def fixed(self) -> tuple[str, ...]:
    """Names of the parameters that are not trained."""
    return *self.shared, *({'head_rows'} & set(self.params))


def _check(
  family: families.Family, location: str, fields: dict[str, Any]
) -> None:
  """Raises `ValueError` for an invalid entry, before the teacher reads."""
  config = family.target.config
  with configs.error_context(location, fields):
    source = (_START,) if _START in fields else _NEW
    configs.check_known(fields, (*source, _PARALLEL), 'Unknown field')
    if _START in fields:
      _find_start(family, fields[_START])
    else:
      cutting.keep_layers(config, family.target.params, fields['layers'])
      checks.check_range('head_size', fields['head_size'], 1, config.vocab_size)
  if _PARALLEL in fields:
    options = fields[_PARALLEL]
    with configs.error_context(f'{location}.{_PARALLEL}', options):
      _parallel(config, config, options, 'kl')


def _find_start(family: families.Family, name: str) -> families.Model:
  """Returns the drafter that a student begins as; it is decoder-only."""
  drafter = registry.lookup(family.drafters, 'start', name)
  if not isinstance(drafter.config, config_lib.TransformerConfig):
    raise ValueError(
      f'start must be a decoder-only model of the family, got {name!r}.'
    )
  if not isinstance(drafter.model, adapters.Transformer):
    raise ValueError(
      f'start must have the vocabulary of the target, got {name!r}.'
    )
  return drafter


def _mask_tokens(students: dict[str, Any]) -> dict[str, int]:
  """Returns the tokens that stand for tokens to predict, by their fields."""
  return {
    f'students.{name}.{_PARALLEL}.mask_token': fields[_PARALLEL]['mask_token']
    for name, fields in students.items()
    if _PARALLEL in fields
  }


def _initial(
  family: families.Family, outputs: Any, fields: dict[str, Any]
) -> _Student:
  """Returns a drafter of the family, or a part of its target."""
  target = family.target
  if _START in fields:
    draft_config, _, params = _find_start(family, fields[_START])
    teacher = target.config, target.params
    if 'head_rows' in params:
      tokens = cutting.head_tokens(params['head_rows'])
      teacher = cutting.narrow_head(*teacher, tokens)
    shared = tuple(
      name
      for name in params
      if name in target.params
      and jax.tree.leaves(params[name])[0]
      is jax.tree.leaves(target.params[name])[0]
    )
  else:
    tokens = teacher_outputs.frequent(
      outputs, target.config.vocab_size, fields['head_size']
    )
    teacher = cutting.narrow_head(target.config, target.params, tokens)
    draft_config, params = cutting.keep_layers(*teacher, fields['layers'])
    shared = ('embedding',)
  if _PARALLEL in fields:
    mask_token = fields[_PARALLEL]['mask_token']
    draft_config = dataclasses.replace(draft_config, mask_token=mask_token)
  return _Student(draft_config, params, shared, *teacher)


def _loss(student: _Student, fields: dict[str, Any], loss: str) -> losses.Loss:
  """Returns the loss of a drafter, for one token or for several at once."""
  if _PARALLEL in fields:
    return _parallel(
      student.config, student.teacher_config, fields[_PARALLEL], loss
    )
  model = adapters.Transformer(student.config)
  draft_head, head = map(
    adapters.head_logits, (student.config, student.teacher_config)
  )

  def forced(params, fixed, batch):
    params = {**params, **fixed}
    features = adapters.read_packed(model, params, batch).features[-1]
    return draft_head(params, features)

  return losses.taught(forced, head, loss)


def _parallel(
  draft_config: config_lib.TransformerConfig,
  teacher_config: config_lib.TransformerConfig,
  options: dict[str, Any],
  loss: str,
) -> losses.Loss:
  """Returns the loss of a drafter that drafts all tokens in one call."""
  return parallel_losses.parallel(
    adapters.Transformer(draft_config),
    adapters.head_logits(draft_config),
    adapters.head_logits(teacher_config),
    **options,
    loss=loss,
  )
