"""The time of one model call, by length and batch size (SpecTr)."""

import jax
import numpy as np

from experiments import results
from specjax import families


def run(config, workdir):
  """Writes a row for each model, length and batch size."""
  _check(config)
  results.start(workdir)
  family = families.load(config.family)
  models = {'target': family.target, **family.drafters}
  cases = [
    (name, length, batch_size)
    for name in models
    for length in config.lengths
    for batch_size in config.batch_sizes
  ]
  functions = [
    call(models[name], *case, config.prefix_length, config.seed)
    for name, *case in cases
  ]
  seconds = results.seconds(config.repeats, functions, 'model calls')
  means, deviations = seconds.mean(axis=0), seconds.std(axis=0)
  device, rows = results.device(), []
  for (name, length, batch_size), mean, deviation in zip(
    cases, means, deviations
  ):
    rows.append(
      {
        'model': name,
        'length': length,
        'batch_size': batch_size,
        'ms': 1e3 * mean,
        'deviation_ms': 1e3 * deviation,
        # The first case is the target at the first length and batch size.
        'relative': mean / means[0],
        'relative_deviation': deviation / means[0],
        'device': device,
      }
    )
    results.log(workdir, rows[-1])
  results.write(workdir, rows)


def call(
  model: families.Model,
  length: int,
  batch_size: int,
  prefix_length: int,
  seed: int,
  result: str = 'logits',
):
  """Returns a function that scores `length` random tokens behind a prefix.

  Its result is `[B, length, V]` logits, or another field of `Extension`, for
  which only what it needs is computed; the prefix, random too, is in the cache.
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


def _check(config):
  for name in ('lengths', 'batch_sizes', 'prefix_length', 'repeats'):
    if not np.size(config[name]) or np.min(config[name]) < 1:
      raise ValueError(f'{name} must be >= 1, got {config[name]}.')
