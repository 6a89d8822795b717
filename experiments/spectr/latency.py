"""The time of one model call, by length and batch size."""

import itertools

import numpy as np

from experiments.common import calls
from experiments.common import configs
from experiments.common import log
from experiments.common import measure
from experiments.common import plots
from specjax import families
from specjax import registry

# Repeats that are logged together; in each of them, all cases take turns.
_BLOCK = 50
_CASE = ('model', 'length', 'batch_size')
# Beside the cases and the number of repeats, what times depend on.
_SETTINGS = ('family', 'prefix_length', 'seed')


def run(config, workdir):
  """Returns a row for each model, length and batch size.

  `relative` is to the first row; deviations are those of single calls.
  """
  configs.check_counts(
    config, ('lengths', 'batch_sizes', 'prefix_length', 'repeats')
  )
  family = families.load(config.family)
  models = {'target': family.target, **family.drafters}
  names = config.model_names or tuple(models)
  for name in names:
    registry.lookup(models, 'model', name)
  cases = list(itertools.product(names, config.lengths, config.batch_sizes))
  functions = []

  def compute(unit):
    if not functions:
      functions.extend(
        calls.call(models[name], *case, config.prefix_length, config.seed)
        for name, *case in cases
      )
    seconds = measure.in_turns([lambda f=f: f for f in functions], unit['num'])
    return {'seconds': seconds.tolist()}

  shared = {name: config[name] for name in _SETTINGS} | {'cases': cases}
  units = [
    shared | {'first': first, 'num': min(_BLOCK, config.repeats - first)}
    for first in range(0, config.repeats, _BLOCK)
  ]
  blocks = log.resume(workdir, units, compute, 'model calls')
  seconds = np.concatenate([block['seconds'] for block in blocks])
  return list(_rows(cases, seconds))


def figures(rows):
  """Draws the time over the batch size, a panel for each model."""
  figure = plots.lines(
    rows,
    'batch_size',
    'relative',
    ('length',),
    panel='model',
    error='relative_error',
    xlabel='rows of the call',
    ylabel='time over that of the first case',
    paper=True,
  )
  return {'latency': figure}


def _rows(cases, seconds):
  """Of `[repeats, cases]` seconds: mean, deviation and standard error."""
  means, deviations = seconds.mean(axis=0), seconds.std(axis=0)
  for case, mean, deviation in zip(cases, means, deviations):
    yield {
      **dict(zip(_CASE, case)),
      'ms': 1e3 * mean,
      'deviation_ms': 1e3 * deviation,
      'relative': mean / means[0],
      'relative_deviation': deviation / means[0],
      'relative_error': deviation / means[0] / len(seconds) ** 0.5,
    }
