"""Quality against cost: deferral rules and baselines on one axis.

Speculative cascades (Narasimhan et al. 2024), Table 2 and the figures of
quality against latency, target calls and rejections.
"""

import numpy as np

from experiments.cascades import texts
from experiments.common import compare
from experiments.common import plots
from specjax import checks

MAY_CHANGE = (*compare.MAY_CHANGE, 'metric', 'sequence_alphas')
# Labels of the methods that others are compared with.
TARGET, DRAFT = 'target', 'draft'
LOSSY, LOSSLESS = 'lossy', 'lossless'
SEQUENCE = 'sequence_cascade'

# What rates a point, and what plots call it; quality is that of the metric.
_RATINGS = {'quality': '', 'target_nats': 'nats a token, by the target'}
_COSTS = {
  'latency': "time over the target's",
  'target_calls': 'target calls for each token',
  'deferral_rate': 'share of positions that are deferred',
  'rejection_rate': 'share of drafts that are rejected',
}
# Columns each of whose values has a plot of its own.
_PANELS = ('prompts', 'sampling.temperature', 'draft_length', 'weight')


def prepare(config):
  """Returns the methods and prompts of a config; the metric must be known."""
  prepared = compare.plan(config)
  texts.rater(config, prepared.family)
  checks.check_range('sequence_alphas', config.sequence_alphas, 0, 1)
  if config.sequence_alphas:
    compare.check_labels(prepared, TARGET, DRAFT)
  return prepared


def run(config, workdir):
  """Returns a row for each point, and then what they show of each line.

  Methods of one label are a line. `sequence_alphas` adds sequence cascades,
  which are made of what the methods 'draft' and 'target' have said.
  """
  made = prepare(config)
  rate = texts.rater(config, made.family)
  decoded = texts.decode(config, workdir, made)
  decoded += sequence_cascades(decoded, config.sequence_alphas)
  rows = beyond_lossy([rate(each) for each in decoded])
  return rows + summary(rows)


def sequence_cascades(decoded, alphas):
  """Returns the cascades of equation (1), of what two methods have said.

  A prompt's answer is the draft's, if that is of probability `1 - alpha` or
  more to the draft, which knows it anyway, and else the target's, after the
  draft's time.
  """
  of = lambda label: [each for each in decoded if each.method.label == label]
  return [
    draft._replace(
      method=draft.method._replace(label=SEQUENCE, columns={'alpha': alpha}),
      records=[
        _sequence(alpha, *pair) for pair in zip(draft.records, target.records)
      ],
    )
    for alpha in alphas
    for draft, target in zip(of(DRAFT), of(TARGET))
  ]


def _sequence(alpha, draft, target):
  """Of one prompt; the target's time is what the draft was timed against."""
  if np.exp(draft['own_nats']) >= 1 - alpha:
    return draft
  clocks = {}
  for name in {'seconds', 'reading'} & set(draft):
    other = draft[f'reference_{name}']
    clocks |= {name: draft[name] + other, f'reference_{name}': other}
  return target | clocks


def beyond_lossy(rows):
  """Returns the points, with `nats_over_lossy`, where that is defined.

  It is how much more likely, in nats a token, texts are to the target than
  those of lossy decoding with as many target calls. What lies between two
  points of lossy decoding is a coin's that takes one of them for each prompt;
  lossless decoding and the target are among its points.
  """
  lines = []
  for head, own in _panels(rows):
    line = [row for row in own if row['method'] in (LOSSY, LOSSLESS, TARGET)]
    lines.append((head, sorted(line, key=lambda row: row['target_calls'])))
  own_line = lambda row: next(
    (line for head, line in lines if head.items() <= row.items()), []
  )
  return [row | _beyond(row, own_line(row)) for row in rows]


def _beyond(row, line):
  """Of one point; `line` is lossy decoding's, by its target calls."""
  labels = {each['method'] for each in line}
  if row['method'] in labels or LOSSY not in labels:
    return {}
  calls = [each['target_calls'] for each in line]
  if not calls[0] <= row['target_calls'] <= calls[-1]:
    return {}
  weights = [
    np.interp(row['target_calls'], calls, unit) for unit in np.eye(len(line))
  ]
  nats = [each['target_nats'] for each in line]
  errors = [each['target_nats_error'] for each in line]
  return {
    'nats_over_lossy': float(row['target_nats'] - np.dot(weights, nats)),
    'nats_over_lossy_error': float(
      np.hypot(
        row['target_nats_error'], np.linalg.norm(np.multiply(weights, errors))
      )
    ),
  }


def summary(rows):
  """Returns rows of each line, by each rating, as Table 2 has them.

  At 'equal quality', the largest speed-up at a rating of the target's or
  better. At 'equal latency', the best rating at a latency of the target's or
  less, and `best_share`: of latencies up to the target's, the share at which no
  line has a better point of no more latency. Errors are those of the one point,
  which may have been lucky to be it. There are no rows without clocks.
  """
  if 'latency' not in rows[0]:
    return []
  return [
    {**head, 'by': by, **row}
    for head, own in _panels(rows)
    for by in _RATINGS
    for row in _panel_summary(own, by)
  ]


def _panel_summary(rows, by):
  """The two rows of each line of a plot."""
  bar = max(
    (row[by] for row in rows if row['method'] == TARGET), default=np.inf
  )
  lowest = min(row['latency'] for row in rows)
  grid = np.linspace(lowest, max(lowest, 1), 101)
  at = lambda row: np.where(row['latency'] <= grid, row[by], -np.inf)
  front = lambda rows: np.max([at(row) for row in rows], axis=0)
  for method in dict.fromkeys(row['method'] for row in rows):
    line = [row for row in rows if row['method'] == method]
    good = (row for row in line if row[by] >= bar)
    point = min(good, key=lambda row: row['latency'], default={})
    speed_up = 1 / point['latency'] if point else None
    error = speed_up**2 * point['latency_error'] if point else None
    yield {
      'part': 'equal quality',
      'method': method,
      'alpha': point.get('alpha'),
      'speed_up_at_quality': speed_up,
      'speed_up_at_quality_error': error,
    }
    fast = (row for row in line if row['latency'] <= 1)
    point = max(fast, key=lambda row: row[by], default={})
    yield {
      'part': 'equal latency',
      'method': method,
      'alpha': point.get('alpha'),
      'rating_at_latency': point.get(by),
      'rating_at_latency_error': point.get(f'{by}_error'),
      'best_share': float((front(line) == front(rows)).mean()),
    }


def _panels(rows):
  """The rows of each plot, and the columns that they share.

  A row that lacks a column which others have is in all plots: where drafts
  differ in length, plain decoding is the same.
  """
  names = [name for name in _PANELS if any(name in row for row in rows)]
  whole = [row for row in rows if all(name in row for name in names)]
  for values in dict.fromkeys(tuple(row[n] for n in names) for row in whole):
    head = dict(zip(names, values))
    yield head, [row for row in rows if head.items() <= (head | row).items()]


def figures(rows):
  """Draws both ratings against every cost, and the summary's speed-ups."""
  points = [row for row in rows if 'part' not in row]
  made = {
    f'{rating}_{cost}': plot(points, cost, rating)
    for cost in _COSTS
    for rating in _RATINGS
    if any(row.get(cost) is not None for row in points)
  }
  names = [name for name in ('by', *_PANELS[1:]) if name in rows[-1]]
  shown = [
    row | {'panel': plots.named(row, names)}
    for row in rows
    if row.get('speed_up_at_quality') and row['method'] not in (TARGET, DRAFT)
  ]
  if not shown:
    return made
  bars = plots.bars(
    shown,
    'panel',
    'speed_up_at_quality',
    'method',
    error='speed_up_at_quality_error',
    ylabel="speed-up at the target's quality",
    paper=True,
  )
  return made | {'speed_up_at_quality': bars}


def plot(rows, cost, rating, **options):
  """Draws a rating of points against a cost, a line for each method."""
  flat = [row | head for head, own in _panels(rows) for row in own]
  return plots.lines(
    flat,
    cost,
    rating,
    'method',
    panel=[name for name in _PANELS if name in flat[0]],
    error=f'{rating}_error',
    xlabel=_COSTS[cost],
    ylabel=_RATINGS[rating] or f'{flat[0]["metric"]} (%)',
    level=lambda row: row['method'] == TARGET,
    **options,
  )
