"""Trains heads on the features of any target: EAGLE, EAGLE-3 or Medusa."""

import dataclasses
import os

import jax
import numpy as np

from experiments.common import configs
from experiments.common import prompts as prompts_lib
from experiments.train import taught as taught_lib
from specjax import base
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import cutting
from specjax.models import heads
from specjax.training import head_losses
from specjax.training import loop

_RECIPE = head_losses.Recipe._fields


def run(config, workdir):
  """Writes `NAME.safetensors` for each head."""
  family = prompts_lib.load_family(config)
  target = family.target
  made = {
    name: heads.configure(fields['kind'], target.config, **fields['options'])
    for name, fields in config.heads.items()
  }
  taps = sorted({tap for each in made.values() for tap in each.taps} - {-1})
  taught = taught_lib.teach(config, family, workdir, taps)
  for name, head_config in made.items():
    fields, folder = config.heads[name], os.path.join(workdir, name)
    read = [taps.index(tap) for tap in head_config.taps if tap != -1]
    rows = taught._replace(taps=tuple(taught.taps[i] for i in read))
    head_config, params = _fit(
      config, target, rows, head_config, fields, folder
    )
    kept = {
      key: each
      for key, each in params.items()
      if key not in heads.shared(head_config)
    }
    checkpoint.save(
      os.path.join(workdir, f'{name}.safetensors'),
      head_config,
      kept,
      np.dtype(config.stored_as),
    )


def _fit(config, target, rows, head_config, fields, folder):
  """Trains a head that begins with what it shares with its target."""
  head_config = dataclasses.replace(
    head_config, target=heads.fingerprint(target.params)
  )
  teacher_config, teacher_params, tokens = target.config, target.params, None
  if head_config.layer.head_size is not None:
    tokens = taught_lib.frequent(
      rows, target.config.vocab_size, head_config.layer.head_size
    )
    narrow = cutting.narrow_head(target.config, target.params, tokens)
    teacher_config, teacher_params = narrow
  start = heads.begin(
    jax.random.key(config.seed),
    head_config,
    target.config,
    target.params,
    tokens,
  )
  names = (*heads.shared(head_config), 'head_rows')
  fixed = {name: start[name] for name in names if name in start}
  own = {name: start[name] for name in start if name not in fixed}
  params = loop.fit(
    _loss(head_config, teacher_config, fields),
    own,
    (fixed, teacher_params),
    rows,
    loop.TrainingConfig(seed=config.seed, **config.training),
    folder,
  )
  return head_config, {**params, **fixed}


def _loss(head_config, teacher_config, fields):
  """The loss that the kind of the head has."""
  functions = heads.functions(head_config)
  drafted = heads.drafted_logits(head_config)
  teacher = adapters.head_logits(teacher_config)
  recipe = dict(fields['recipe'])
  if isinstance(functions, base.ParallelHead):
    configs.check_known(recipe, ('decay',), 'recipe: Unknown field')
    return head_losses.medusa(drafted, teacher, functions.num_steps, **recipe)
  configs.check_known(recipe, _RECIPE, 'recipe: Unknown field')
  return head_losses.feature_head(
    functions, drafted, teacher, head_losses.Recipe(**recipe)
  )
