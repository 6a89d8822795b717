"""Tiny models that several tests share."""

import functools

import jax

from specjax import models
from specjax.models import adapters
from specjax.models import config as config_lib

VOCAB = 32


@functools.cache
def transformer(seed: int = 0, num_layers: int = 2, **options):
  """Returns a random transformer and its parameters, with peaked laws."""
  config = config_lib.TransformerConfig(
    vocab_size=VOCAB,
    num_layers=num_layers,
    d_model=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    d_ff=32,
    **options,
  )
  params = jax.tree.map(
    lambda leaf: leaf * 8 if leaf.ndim > 1 else leaf,
    adapters.init_params(jax.random.key(seed), config),
  )
  return adapters.transformer(config), params


@functools.cache
def markov(seed: int = 0, vocab_size: int = 4, horizon: int | None = None):
  """Returns a random Markov model and its table."""
  shape = (vocab_size, vocab_size)
  shape = shape if horizon is None else (horizon, *shape)
  logits = 2 * jax.random.normal(jax.random.key(seed), shape)
  return models.MODELS['markov'](vocab_size), jax.nn.softmax(logits)
