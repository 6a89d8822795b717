"""Distills drafters from any target: some of its layers, and a small head."""

import os
from typing import Any

import numpy as np

from experiments.common import configs
from experiments.common import prompts as prompts_lib
from experiments.train import growth
from experiments.train import teacher_outputs
from specjax import base
from specjax import checks
from specjax import families
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import cutting
from specjax.training import loop
from specjax.training import losses

# Parameters that a drafter shares with its target, and those that are fixed.
_SHARED = ('embedding',)
_FIXED = (*_SHARED, 'head_rows')

figures = growth.figures


def run(config, workdir):
  """Writes `NAME.safetensors` for each drafter; returns its learning curve."""
  family = prompts_lib.load_family(config)
  target = family.target
  with configs.error_context('training', config.training):
    training = loop.TrainingConfig(seed=config.seed, **config.training)
  losses.find(config.loss)
  for name, fields in config.students.items():
    with configs.error_context(f'students.{name}', fields):
      cutting.keep_layers(target.config, target.params, fields['layers'])
      vocab_size = target.config.vocab_size
      checks.check_range('head_size', fields['head_size'], 1, vocab_size)
  outputs = teacher_outputs.compute(config, family, workdir)
  trained = {}
  for number, (name, fields) in enumerate(config.students.items()):
    folder = os.path.join(workdir, name)
    seconds = growth.seconds(folder, len(config.students) - number)
    if seconds is None:
      workdir.is_incomplete = True
      continue
    draft_config, params = _fit(
      config.loss, training, target, outputs, fields, folder, seconds
    )
    trained[name] = growth.Trained(folder, training)
    workdir.is_incomplete |= not growth.is_complete(trained[name])
    checkpoint.save(
      os.path.join(workdir, f'{name}.safetensors'),
      draft_config,
      {key: tree for key, tree in params.items() if key not in _SHARED},
      np.dtype(config.stored_as),
    )
  return growth.rows(trained, *outputs.tokens.shape)


def _fit(
  loss: str,
  training: loop.TrainingConfig,
  target: families.Model,
  outputs: Any,
  fields: Any,
  folder: str,
  seconds: float,
) -> tuple[Any, base.Params]:
  """Trains a drafter that is initialized with a part of its target."""
  tokens = teacher_outputs.frequent(
    outputs, target.config.vocab_size, fields['head_size']
  )
  narrow = cutting.narrow_head(target.config, target.params, tokens)
  draft_config, start = cutting.keep_layers(*narrow, fields['layers'])
  fixed = {name: start[name] for name in _FIXED}
  trainable = {name: start[name] for name in start if name not in _FIXED}
  model = adapters.Transformer(draft_config)
  draft_head, head = map(adapters.head_logits, (draft_config, narrow[0]))

  def forced(params, fixed, batch):
    params = {**params, **fixed}
    features = adapters.read_packed(model, params, batch).features[-1]
    return draft_head(params, features)

  loss_fn = losses.taught(forced, head, loss)
  params = loop.fit(
    loss_fn,
    trainable,
    (fixed, narrow[1]),
    outputs,
    training,
    folder,
    seconds,
  )
  return draft_config, {**params, **fixed}
