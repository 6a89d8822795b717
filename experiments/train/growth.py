"""Measures how acceptance grows with the number of training tokens."""

from collections.abc import Mapping
import os
from typing import Any
from typing import NamedTuple
from typing import Optional

import numpy as np

from experiments.common import limits
from experiments.common import plots
from specjax.data import lines
from specjax.training import loop

_NUM_WINDOWS = 24
_METRIC = 'acceptance'


class Trained(NamedTuple):
  """A trained model.

  Attributes:
    folder: the folder with the metrics of `loop.fit`.
    training: the settings of the training.
    previous: the model that it was initialized with, if that was trained on the
      same text.
    is_new: whether it was initialized without trained parameters.
  """

  folder: str
  training: loop.TrainingConfig
  previous: Optional['Trained'] = None
  is_new: bool = True


def seconds(folder: str, share: float) -> float | None:
  """Returns the time limit of a model's training, or None if there is no time.

  Args:
    folder: the folder of the model, whose training may have begun before.
    share: of the remaining time.
  """
  remaining = limits.remaining_seconds()
  has_begun = os.path.exists(os.path.join(folder, loop.METRICS))
  return remaining * share if remaining > 0 or has_begun else None


def is_complete(trained: Trained) -> bool:
  """Returns whether a model has finished all training steps."""
  return len(_read(trained.folder)) >= trained.training.steps


def rows(
  trained: Mapping[str, Trained], num_rows: int, row_length: int
) -> list[dict[str, Any]]:
  """Returns mean acceptance by windows of training, and gains per doubling.

  In its first epoch, a model reads text that it has not been trained on, so
  that its acceptance is a held-out value, for the tokens in its vocabulary and
  with the noise of the recipe. `per_doubling` is the gain of acceptance per
  doubling of tokens, by least squares without the first eighth of the steps.

  Args:
    trained: the trained models, by name.
    num_rows: the rows of the training text.
    row_length: the tokens per row.
  """
  table = []
  for name, model in trained.items():
    metrics = _read(model.folder)
    epoch_steps = num_rows // model.training.batch_size
    previous = _rows_read(model.previous)
    depths = [key for key in metrics[0] if key.startswith(_METRIC)]
    for window in _windows(len(metrics), epoch_steps):
      num_read = previous + (window[-1] + 1) * model.training.batch_size
      table.append(
        {
          'part': 'growth',
          'model': name,
          'tokens': num_read * row_length,
          'epoch': window[0] // epoch_steps + 1,
          **{
            key: float(np.mean([metrics[i][key] for i in window]))
            for key in depths
          },
        }
      )
    slope = _per_doubling(metrics[:epoch_steps], depths[0])
    if slope is not None and model.is_new:
      table.append(
        {'part': 'extrapolation', 'model': name, 'per_doubling': slope}
      )
  return table


def _rows_read(trained: Trained | None) -> int:
  """Returns the rows that a model and its predecessors have been trained on."""
  if trained is None:
    return 0
  num_rows = len(_read(trained.folder)) * trained.training.batch_size
  return num_rows + _rows_read(trained.previous)


def figures(rows):
  """Draws the acceptance of the first draft token by training tokens."""
  shown = [
    {**row, 'acceptance': row.get(f'{_METRIC}_1', row.get(_METRIC))}
    for row in rows
    if row['part'] == 'growth'
  ]
  figure = plots.lines(
    shown,
    'tokens',
    'acceptance',
    'model',
    xlabel='training tokens',
    ylabel='acceptance of the first draft token',
  )
  (axes,) = figure.axes
  axes.set_xscale('log')
  return {'growth': figure}


def _read(folder: str) -> list[dict[str, Any]]:
  """Returns the metrics of all steps."""
  return lines.keep_while(os.path.join(folder, loop.METRICS))


def _windows(num_steps: int, epoch_steps: int) -> list[list[int]]:
  """Divides steps into windows of about equal length, within epochs."""
  length = max(num_steps / _NUM_WINDOWS, 1)
  windows = []
  for first in range(0, num_steps, epoch_steps):
    steps = range(first, min(first + epoch_steps, num_steps))
    parts = np.array_split(steps, max(round(len(steps) / length), 1))
    windows += [part.tolist() for part in parts]
  return windows


def _per_doubling(metrics: list[dict[str, Any]], key: str) -> float | None:
  """Returns the gain per doubling, or None if there are too few steps."""
  first = len(metrics) // 8
  if len(metrics) - first < 16:
    return None
  steps = np.arange(first, len(metrics)) + 1
  values = [step_metrics[key] for step_metrics in metrics[first:]]
  return float(np.polynomial.polynomial.polyfit(np.log2(steps), values, 1)[1])
