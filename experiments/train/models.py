"""Trains models of a family, on text or by distillation from its target."""

from collections.abc import Callable
import functools
import os
from typing import Any

import jax
import jax.numpy as jnp

from experiments.common import configs as configs_lib
from experiments.train import perplexity
from experiments.train import teacher_outputs
from specjax import base
from specjax import families
from specjax import models
from specjax.contrib import encoder_decoder_config
from specjax.contrib import example_pairs
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import flax_modules
from specjax.training import loop
from specjax.training import losses


def prepare(config):
  """Returns the tokenizer, the models' configurations, and the packed text."""
  tokenizer = tokenizer_lib.load(config.tokenizer)
  configs = {
    name: _configuration(name, model, tokenizer)
    for name, model in config.models.to_dict().items()
  }
  losses.find(config.loss)
  rows = _rows(config, tokenizer, _are_pairs(configs))
  _training(config, rows)
  return tokenizer, configs, rows


def run(config, workdir):
  """Writes `NAME.safetensors` for each model; returns bits per byte."""
  tokenizer, configs, rows = prepare(config)
  pairs = _are_pairs(configs)
  loss_fn, frozen = _loss(configs, config.distill_from, config.loss)
  params = loop.fit(
    loss_fn,
    {
      name: _start(config, name, model_config)
      for name, model_config in configs.items()
    },
    frozen,
    rows,
    _training(config, rows),
    workdir,
  )
  stored = {}
  for name, model_config in configs.items():
    path = os.path.join(workdir, f'{name}.safetensors')
    checkpoint.save(path, model_config, params[name])
    stored[name] = families.load_model(path)
  # With a target, the tokenizer makes the folder a family.
  tokenizer.save(workdir)
  if not config.data_dir:
    return None
  # Encoder-decoders are evaluated on the domains that they are trained for.
  pair_settings = (config.target_length, config.domain) if pairs else ()
  return perplexity.rows(
    workdir,
    stored,
    tokenizer,
    config.data_dir,
    config.row_length,
    *pair_settings,
  )


def _are_pairs(configs: dict[str, Any]) -> bool:
  """Returns whether all models are encoder-decoders, or raises if some are."""
  pairs = [
    name
    for name, model_config in configs.items()
    if isinstance(model_config, encoder_decoder_config.EncoderDecoderConfig)
  ]
  if 0 < len(pairs) < len(configs):
    raise ValueError(
      'models must be all encoder-decoders or none of them, got '
      f'{", ".join(pairs)} only.'
    )
  return bool(pairs)


def _rows(config: Any, tokenizer: tokenizer_lib.Tokenizer, pairs: bool) -> Any:
  """Packs the training text."""
  examples = []
  if config.train_on_text:
    examples += examples_lib.read_split(config.data_dir, 'train')
  examples += teacher_outputs.read(config.responses)
  examples = examples_lib.select_domain(examples, config.domain)
  sequences = teacher_outputs.encode(examples, tokenizer)
  length, seed = config.row_length, config.seed
  if pairs:
    rows = example_pairs.pack(sequences, length, config.target_length, seed)
  else:
    rows = packing.pack(sequences, length, seed, before=config.prompt_weight)
  print(f'{len(examples)} examples in {len(rows.tokens)} rows.')
  return rows


def _training(config: Any, rows: Any) -> loop.TrainingConfig:
  """Parses `training`, which has a number of steps or of epochs."""
  build: Callable[..., loop.TrainingConfig] = loop.TrainingConfig
  if 'epochs' in config.training:
    num_rows = len(rows.tokens)
    build = functools.partial(loop.TrainingConfig.for_epochs, num_rows)
  with configs_lib.error_context('training', config.training):
    return build(seed=config.seed, **config.training)


def _configuration(
  name: str, model: Any, tokenizer: tokenizer_lib.Tokenizer
) -> Any:
  """Returns the configuration of a stored model, or of a new one."""
  if isinstance(model, str):
    return _load(model)[0]
  fields = {'vocab_size': tokenizer.vocab_size, **model}
  if 'encoder_layers' in model:
    fields['start_id'] = tokenizer.response_id
  with configs_lib.error_context(f'models.{name}', fields):
    return checkpoint.config_from_dict(fields)


def _start(config: Any, name: str, model_config: Any) -> base.Params:
  """Returns a model's initial parameters, which are stored or random."""
  model = config.models[name]
  if isinstance(model, str):
    return _load(model)[1]
  return flax_modules.init_params(jax.random.key(config.seed), model_config)


def _load(path: str) -> tuple[Any, base.Params]:
  """Loads a file of specjax, or a published checkpoint."""
  if path.endswith('.safetensors'):
    return checkpoint.load(path)
  loaded = models.load(path, dtype=jnp.float32)
  return loaded.config, loaded.params


def _loss(
  configs: dict[str, Any], distill_from: str, distillation_loss: str
) -> tuple[Any, base.Params | None]:
  """Returns the loss of all models, and the target's parameters if needed."""
  # Mixed precision: float32 parameters, bfloat16 computations on accelerators.
  on_cpu = jax.default_backend() == 'cpu'
  dtype = jnp.float32 if on_cpu else jnp.bfloat16
  loss, frozen = losses.cross_entropy, None
  if distill_from:
    target_config, frozen = checkpoint.load(distill_from)
    target = adapters.teacher_forced(target_config, dtype)
    loss = lambda model: losses.distillation(model, target, distillation_loss)
  fns = {
    name: loss(adapters.teacher_forced(model_config, dtype))
    for name, model_config in configs.items()
  }
  return losses.joint(fns), frozen
