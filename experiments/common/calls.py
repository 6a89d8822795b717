"""One call of a model, for what is said of its time."""

from collections.abc import Callable

import jax
import numpy as np

from specjax import families


def call(
  model: families.Model,
  length: int,
  batch_size: int,
  prefix_length: int,
  seed: int,
  result: str = 'logits',
) -> Callable[[], jax.Array]:
  """Returns a function that scores random tokens behind a cached prefix.

  Args:
    model: what is called.
    length: tokens that a call scores.
    batch_size: rows of a call.
    prefix_length: random tokens that are in the cache.
    seed: of all tokens.
    result: the field of `base.Extension` that the function returns, `[B,
      length, V]` logits by default; only what it needs is computed.
  """
  tokens = np.random.default_rng(seed).integers(
    model.config.vocab_size,
    size=(batch_size, prefix_length + length),
    dtype=np.int32,
  )
  prefix, rest = np.split(tokens, [prefix_length], axis=1)
  functions, params = model.functions, model.params
  prefill = jax.jit(lambda *args: functions.prefill(*args)[0])
  cache = prefill(
    params,
    functions.init_cache(params, batch_size, prefix_length + length),
    prefix,
    np.full(batch_size, prefix_length, np.int32),
  )
  extend = jax.jit(lambda *args: getattr(functions.extend(*args), result))
  rest = jax.device_put(rest)
  return lambda: jax.block_until_ready(extend(params, cache, rest))
