"""Computes how often drafts are accepted, by the draft model's temperature.

The expected acceptance of each token of decoded texts is a closed form of both
distributions. It decides whether a drafter should sample (at the target's or
another temperature), or propose its most likely token.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
from typing import Any

import numpy as np

from experiments.common import compare
from experiments.common import configs
from experiments.common import plots
from experiments.common import runner
from experiments.theory import diagnose
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax import theory

MAY_CHANGE = compare.MAY_CHANGE
# The part of rows whose draft temperature is selected for each token.
_EACH_TOKEN = 'best for each token'


def prepare(config):
  """Returns the methods, which must draft chains with a model, and prompts.

  Raises:
    ValueError: `temperatures` has an invalid entry, or lacks the temperature of
      a method, with which the others are compared.
  """
  configs.check_counts(config, ('temperatures',), 0)
  for temperature in config.temperatures:
    sampling_lib.Sampling(temperature=temperature)
  setup = diagnose.prepare(config)
  for method in setup.methods:
    if method.sampling.temperature not in config.temperatures:
      raise ValueError(
        f'temperatures must contain that of {method.location}, '
        f'{method.sampling.temperature}, got {config.temperatures}.'
      )
  return setup


def run(config, workdir):
  """Returns a row per method, prompt set and draft temperature."""
  observe = functools.partial(_observe, config.temperatures)
  results = diagnose.decode(config, workdir, prepare(config), observe)
  return [
    row for decoded in results for row in _rows(config.temperatures, decoded)
  ]


def _observe(
  temperatures: Sequence[float], model: families.Model, batch: runner.Batch
) -> list[runner.Record]:
  """Returns each row's sums over its tokens."""
  sums = diagnose.over_texts(
    theory.temperature_sums, temperatures, model, batch
  )
  names = sums._fields[1:]
  return [
    {name: values.tolist() for name, values in zip(names, row)}
    for row in zip(*sums[1:])
  ]


def _rows(
  temperatures: Sequence[float], decoded: compare.Decoded
) -> Iterator[dict[str, Any]]:
  """Yields means over tokens, whose errors are over prompts.

  `gain` is acceptance minus that at the target's temperature, and `best_share`
  the share of tokens at which a temperature is the first with the highest
  acceptance. The last row has the best temperature at each token.
  """
  tokens, acceptance, highest, is_highest = (
    np.array([record[name] for record in decoded.records])
    for name in ('emitted', 'acceptance', 'highest', 'is_highest')
  )
  method = decoded.method
  shared = {'prompts': decoded.prompts.label, 'method': method.label}
  shared |= method.columns
  same = list(temperatures).index(method.sampling.temperature)
  for i, temperature in enumerate(temperatures):
    row = {**shared, 'draft_temperature': float(temperature)}
    for name, sums in (
      ('acceptance', acceptance[:, i]),
      ('gain', acceptance[:, i] - acceptance[:, same]),
      ('best_share', is_highest[:, i]),
    ):
      row[name], row[f'{name}_error'] = metrics.ratio(sums, tokens)
    yield row
  row = {**shared, 'part': _EACH_TOKEN}
  row['acceptance'], row['acceptance_error'] = metrics.ratio(highest, tokens)
  yield row


def figures(rows):
  """Draws acceptance by the temperature of the draft model."""
  by_temperature = [row for row in rows if 'part' not in row]
  return {
    'acceptance': plots.lines(
      by_temperature,
      'draft_temperature',
      'acceptance',
      'drafter',
      panel=('target_temperature',),
      error='acceptance_error',
      xlabel='temperature of the draft model',
      ylabel='expected acceptance of a token',
    )
  }
