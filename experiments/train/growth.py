"""How the acceptance of what learns grows with the tokens it has read."""

import collections
import json
import os

import numpy as np

from experiments.common import plots

_NUM_WINDOWS = 24
_METRIC = 'acceptance'


def rows(folders, num_rows, row_length, batch_size):
  """Returns the mean acceptance of windows of training, and what a doubling is.

  Of text that is read for the first time, acceptance is that of held-out text,
  and so is `per_doubling`: what a doubling of tokens has added to it, by least
  squares over the first epoch without its first eighth, where learning begins.

  Args:
    folders: where `loop.fit` has written metrics, by name.
    num_rows: of the training text.
    row_length: its tokens.
    batch_size: rows a step.
  """
  steps_an_epoch = num_rows // batch_size
  made = []
  for name, folder in folders.items():
    metrics = _read(folder)
    depths = [key for key in metrics[0] if key.startswith(_METRIC)]
    for window in _windows(len(metrics), steps_an_epoch):
      read = [metrics[i] for i in window]
      made.append(
        {
          'part': 'growth',
          'model': name,
          'tokens': (window[-1] + 1) * batch_size * row_length,
          'epoch': window[0] // steps_an_epoch + 1,
          **{key: float(np.mean([m[key] for m in read])) for key in depths},
        }
      )
    slope = _per_doubling(metrics[:steps_an_epoch], depths[0])
    if slope is not None:
      made.append(
        {'part': 'extrapolation', 'model': name, 'per_doubling': slope}
      )
  return made


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
    xlabel='tokens read (text is fresh in the first epoch)',
    ylabel='acceptance of the first token',
  )
  (axes,) = figure.axes
  axes.set_xscale('log')
  return {'growth': figure}


def _read(folder):
  """Metrics of all steps."""
  with open(os.path.join(folder, 'metrics.jsonl'), encoding='utf-8') as file:
    return [json.loads(line) for line in file]


def _windows(num_steps, steps_an_epoch):
  """Steps in windows of about one length, each within one epoch."""
  length = max(num_steps // _NUM_WINDOWS, 1)
  found = collections.defaultdict(list)
  for step in range(num_steps):
    epoch, within = divmod(step, steps_an_epoch)
    # What is left at the end of an epoch goes to its last window.
    last = max(steps_an_epoch // length - 1, 0)
    found[epoch, min(within // length, last)].append(step)
  return list(found.values())


def _per_doubling(metrics, key):
  """What a doubling adds, or None where there are too few steps to say."""
  first = len(metrics) // 8
  if len(metrics) - first < 16:
    return None
  steps = np.arange(first, len(metrics)) + 1
  values = [each[key] for each in metrics[first:]]
  return float(np.polynomial.polynomial.polyfit(np.log2(steps), values, 1)[1])
