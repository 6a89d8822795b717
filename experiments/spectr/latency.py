"""Measures the time of one model call, by length and batch size.

SpecTr, Tables 2 and 3.
"""

import itertools

import jax
import numpy as np

from experiments.common import configs
from experiments.common import log
from experiments.common import measure
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from specjax import registry
from specjax.models import transposes

_COUNTS = 'lengths', 'batch_sizes', 'prefix_length', 'repeats'


def run(config, workdir):
  """Returns a row per model, length and batch size.

  `relative` is relative to the first row; deviations are over single calls.
  """
  configs.check_counts(config, _COUNTS)
  family = prompts_lib.load_family(config)
  models = family.models
  names = config.model_names or tuple(models)
  for name in names:
    registry.lookup(models, 'model', name)
  cases = list(itertools.product(names, config.lengths, config.batch_sizes))

  def compute(unit):
    del unit  # There is one unit, in which all cases are interleaved.
    settings = config.prefix_length, config.seed
    calls = [call(models[name], *case, *settings) for name, *case in cases]
    runs = [lambda function=function: function for function in calls]
    seconds = measure.interleave(runs, config.repeats, 'model calls')
    return {'ms': (1e3 * seconds.T).tolist()}

  fields = 'family', 'prefix_length', 'repeats', 'seed'
  settings = {name: config[name] for name in fields}
  unit = measure.unit({'cases': cases, **settings})
  (outcome,) = log.resume(workdir, [unit], compute)
  first = np.mean(outcome['ms'][0])
  return [
    {
      'model': name,
      'length': length,
      'batch_size': batch_size,
      'ms': np.mean(ms),
      'deviation_ms': np.std(ms),
      'relative': np.mean(ms) / first,
      'relative_deviation': np.std(ms) / first,
      'relative_error': np.std(ms) / first / len(ms) ** 0.5,
    }
    for (name, length, batch_size), ms in zip(cases, outcome['ms'])
  ]


def call(model, length, batch_size, prefix_length, seed):
  """Returns a function that scores random tokens after a cached prefix."""
  tokens = np.random.default_rng(seed).integers(
    model.config.vocab_size,
    size=(batch_size, prefix_length + length),
    dtype=np.int32,
  )
  prefix, suffix = np.split(tokens, [prefix_length], axis=1)
  # As a decoder has them.
  language_model, params = model.model, transposes.add(model.params)
  prefill = jax.jit(lambda *args: language_model.prefill(*args)[0])
  cache = prefill(
    params,
    language_model.init_cache(params, *tokens.shape),
    prefix,
    np.full(batch_size, prefix_length, np.int32),
  )
  extend = jax.jit(lambda *args: language_model.extend(*args).logits)
  suffix = jax.device_put(suffix)
  return lambda: jax.block_until_ready(extend(params, cache, suffix))


def figures(rows):
  """Draws the time by batch size, one panel per model."""
  figure = plots.lines(
    rows,
    'batch_size',
    'relative',
    ('length',),
    panel='model',
    error='relative_error',
    xlabel='batch size',
    ylabel='time relative to the first case',
    paper=True,
  )
  return {'latency': figure}
