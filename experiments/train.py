"""Trains models of a family: on text, or distilled from its target."""

import os

import jax
import jax.numpy as jnp

from experiments import perplexity
from experiments import results
from specjax import families
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.training import loop
from specjax.training import losses


def run(config, workdir):
  """Writes `NAME.safetensors` for each model; with data, bits per byte, too."""
  tokenizer = tokenizer_lib.load(config.tokenizer)
  rows = _rows(config, tokenizer)
  models = {
    name: _model(model, tokenizer.vocab_size, config.seed)
    for name, model in config.models.to_dict().items()
  }
  configs = {name: each for name, (each, _) in models.items()}
  loss_fn, frozen = _loss(configs, config.distill_from)
  params = loop.fit(
    loss_fn,
    {name: start for name, (_, start) in models.items()},
    frozen,
    rows,
    loop.TrainingConfig(seed=config.seed, **config.training),
    workdir,
  )
  paths = {
    name: os.path.join(workdir, f'{name}.safetensors') for name in configs
  }
  for name, path in paths.items():
    checkpoint.save(path, configs[name], params[name])
  if config.data_dir:
    stored = {name: families.load_model(path) for name, path in paths.items()}
    results.write(
      workdir,
      perplexity.rows(stored, tokenizer, config.data_dir, config.row_length),
    )


def _rows(config, tokenizer):
  """Packs the text that is learnt."""
  examples = []
  if config.train_on_text:
    examples += examples_lib.read_split(config.data_dir, 'train')
  for path in config.responses:
    examples += examples_lib.read(path)
  examples = examples_lib.of_domain(examples, config.domain)
  rows = packing.pack(
    [tokenizer.encode_example(e.prompt, e.response) for e in examples],
    config.row_length,
    config.seed,
    before=config.prompt_weight,
  )
  print(f'{len(examples)} examples in {len(rows.tokens)} rows.')
  return rows


def _model(model, vocab_size, seed):
  """Returns a configuration and parameters, of a file or fresh."""
  if isinstance(model, str):
    return checkpoint.load(model)
  config = config_lib.from_dict({'vocab_size': vocab_size, **model})
  return config, adapters.init_params(jax.random.key(seed), config)


def _loss(configs, distill_from):
  """Returns the loss of all models, and the parameters that it needs."""
  # Mixed precision: float32 parameters, bfloat16 products on accelerators.
  on_cpu = jax.default_backend() == 'cpu'
  dtype = jnp.float32 if on_cpu else jnp.bfloat16
  models = {
    name: adapters.transformer(each, dtype) for name, each in configs.items()
  }
  if not distill_from:
    fns = {name: losses.cross_entropy(each) for name, each in models.items()}
    return losses.together(fns), None
  target_config, frozen = checkpoint.load(distill_from)
  target = adapters.transformer(target_config, dtype)
  fns = {
    name: losses.distillation(each, target) for name, each in models.items()
  }
  return losses.together(fns), frozen
