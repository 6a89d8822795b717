"""Trains a model of a family: from text, or distilled from its target."""

import os

import jax
import jax.numpy as jnp

from experiments import results
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.data import tokenizer as tokenizer_lib
from specjax.evaluation import perplexity
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.training import loop
from specjax.training import losses


def run(config, workdir):
  """Writes `model.safetensors`, and bits per byte by domain as results."""
  tokenizer = tokenizer_lib.load(config.tokenizer)
  model_config = config_lib.from_dict(
    {'vocab_size': tokenizer.vocab_size, **config.model.to_dict()}
  )
  examples = examples_lib.read_split(config.data_dir, 'train')
  for path in config.responses:
    examples += examples_lib.read(path)
  # A target learns to read prompts too; a drafter is only asked to answer.
  sequences = [tokenizer.encode_example(e.prompt, e.response) for e in examples]
  if not config.distill_from:
    sequences = [(tokens, 1) for tokens, _ in sequences]
  rows = packing.pack(sequences, config.row_length, config.seed)
  print(
    f'{len(examples)} examples in {len(rows.tokens)} rows of '
    f'{config.row_length} tokens.'
  )
  # Mixed precision: float32 parameters, bfloat16 products on accelerators.
  on_cpu = jax.default_backend() == 'cpu'
  dtype = jnp.float32 if on_cpu else jnp.bfloat16
  model = adapters.transformer(model_config, dtype)
  frozen = None
  loss_fn = losses.cross_entropy(model)
  if config.distill_from:
    target_config, frozen = checkpoint.load(config.distill_from)
    loss_fn = losses.distillation(
      model, adapters.transformer(target_config, dtype)
    )
  params = adapters.init_params(jax.random.key(config.seed), model_config)
  params = loop.fit(
    loss_fn,
    params,
    frozen,
    rows,
    loop.TrainingConfig(seed=config.seed, **config.training),
    workdir,
  )
  checkpoint.save(
    os.path.join(workdir, 'model.safetensors'), model_config, params
  )
  held_out = examples_lib.read_split(config.data_dir, 'eval')
  bits = perplexity.bits_per_byte(
    adapters.transformer(model_config),
    params,
    tokenizer,
    held_out,
    config.row_length,
  )
  results.write(
    workdir, [{'domain': d, 'bits_per_byte': b} for d, b in bits.items()]
  )
