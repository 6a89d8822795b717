"""How the acceptance of what learns grows with the tokens it has read."""

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
# What `loop.fit` writes.
_METRICS = 'metrics.jsonl'


class Learnt(NamedTuple):
  """A model that has learnt.

  Attributes:
    folder: where `loop.fit` has written its metrics.
    training: how it was trained.
    before: as what it had learnt before, of the same text.
    new: it had learnt nothing before, of any text.
  """

  folder: str
  training: loop.TrainingConfig
  before: Optional['Learnt'] = None
  new: bool = True


def seconds(folder: str, num_left: int) -> float | None:
  """Returns how long a model may learn, or None if it may not begin.

  Args:
    folder: of the model, where it may have begun before.
    num_left: models that share the time of this process, this one included.
  """
  left = limits.seconds_left()
  has_begun = os.path.exists(os.path.join(folder, _METRICS))
  return left / num_left if left > 0 or has_begun else None


def is_complete(learnt: Learnt) -> bool:
  """Returns whether a model has taken all of its steps."""
  return len(_read(learnt.folder)) >= learnt.training.steps


def rows(
  learnt: Mapping[str, Learnt], num_rows: int, row_length: int
) -> list[dict[str, Any]]:
  """Returns the mean acceptance of windows of training, and what a doubling is.

  Text that is read for the first time is held-out text, so that a new model's
  acceptance in its first epoch is that of others, of what it learns there: the
  tokens that it can draft, and with the recipe's noise. `per_doubling` is what
  a doubling of tokens has added to it, by least squares without the first
  eighth, where learning begins.

  Args:
    learnt: by name.
    num_rows: of the training text.
    row_length: its tokens.
  """
  made = []
  for name, each in learnt.items():
    metrics = _read(each.folder)
    an_epoch = num_rows // each.training.batch_size
    before = _rows_read(each.before)
    depths = [key for key in metrics[0] if key.startswith(_METRIC)]
    for window in _windows(len(metrics), an_epoch):
      num_read = before + (window[-1] + 1) * each.training.batch_size
      made.append(
        {
          'part': 'growth',
          'model': name,
          'tokens': num_read * row_length,
          'epoch': window[0] // an_epoch + 1,
          **{
            key: float(np.mean([metrics[i][key] for i in window]))
            for key in depths
          },
        }
      )
    slope = _per_doubling(metrics[:an_epoch], depths[0])
    if slope is not None and each.new:
      made.append(
        {'part': 'extrapolation', 'model': name, 'per_doubling': slope}
      )
  return made


def _rows_read(learnt):
  """Rows that a model has read, and those before it."""
  if learnt is None:
    return 0
  own = len(_read(learnt.folder)) * learnt.training.batch_size
  return own + _rows_read(learnt.before)


def figures(rows):
  """Draws the acceptance of the first drafted token over tokens read."""
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
    xlabel='tokens read',
    ylabel='acceptance of the first token',
  )
  (axes,) = figure.axes
  axes.set_xscale('log')
  return {'growth': figure}


def _read(folder):
  """Metrics of all steps."""
  return lines.keep_while(os.path.join(folder, _METRICS))


def _windows(num_steps, an_epoch):
  """Steps in windows of about one length, each within one epoch."""
  length = max(num_steps / _NUM_WINDOWS, 1)
  made = []
  for first in range(0, num_steps, an_epoch):
    steps = range(first, min(first + an_epoch, num_steps))
    parts = np.array_split(steps, max(round(len(steps) / length), 1))
    made += [part.tolist() for part in parts]
  return made


def _per_doubling(metrics, key):
  """What a doubling adds, or None where there are too few steps to say."""
  first = len(metrics) // 8
  if len(metrics) - first < 16:
    return None
  steps = np.arange(first, len(metrics)) + 1
  values = [each[key] for each in metrics[first:]]
  return float(np.polynomial.polynomial.polyfit(np.log2(steps), values, 1)[1])
