"""Compares deferral rules and baselines by quality and cost.

Speculative cascades (Narasimhan et al. 2024), Table 2 and the figures of
quality against latency, target calls and rejections.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from experiments.cascades import texts
from experiments.common import compare
from experiments.common import plots
from experiments.common import runner
from specjax import checks

MAY_CHANGE = (*compare.MAY_CHANGE, 'metric', 'sequence_alphas')
# Labels of the methods that others are compared with.
TARGET, DRAFT = 'target', 'draft'
LOSSY, LOSSLESS = 'lossy', 'lossless'
SEQUENCE = 'sequence_cascade'

# Ratings and their labels in plots; the label of quality is the metric.
_RATINGS = {'quality': '', 'target_nats': "target's nats per token"}
_COSTS = {
  'latency': 'time over plain decoding',
  'target_calls': 'target calls per token',
  'deferral_rate': 'share of deferred positions',
  'rejection_rate': 'share of rejected draft tokens',
}
# Columns whose values have separate panels.
_PANELS = ('prompts', 'sampling.temperature', 'draft_length', 'weight')


def prepare(config):
  """Returns the methods and prompts of a config; the metric must be known."""
  setup = compare.prepare(config)
  texts.rater(config, setup)
  checks.check_range('sequence_alphas', config.sequence_alphas, 0, 1)
  if config.sequence_alphas:
    compare.check_labels(setup, TARGET, DRAFT)
  return setup


def run(config, workdir):
  """Returns a row per point, and summary rows of each line.

  Methods with the same label form a line. `sequence_alphas` adds sequence
  cascades, which combine the answers of the methods 'draft' and 'target'.
  """
  setup = prepare(config)
  rate = texts.rater(config, setup)
  decoded = texts.decode(config, workdir, setup)
  decoded += sequence_cascades(decoded, config.sequence_alphas)
  rows = beyond_lossy([rate(result) for result in decoded])
  return rows + summary(rows)


def sequence_cascades(decoded, alphas):
  """Returns the sequence cascades of equation (1), from two methods' records.

  The answer to a prompt is the draft's if its probability under the draft is
  `1 - alpha` or more, and the target's otherwise, which then takes the time of
  both.
  """
  with_label = lambda label: [
    result for result in decoded if result.method.label == label
  ]
  return [
    draft._replace(
      method=draft.method._replace(label=SEQUENCE, columns={'alpha': alpha}),
      records=[
        _sequence(alpha, *pair) for pair in zip(draft.records, target.records)
      ],
    )
    for alpha in alphas
    for draft, target in zip(with_label(DRAFT), with_label(TARGET))
  ]


def _sequence(
  alpha: float, draft: runner.Record, target: runner.Record
) -> runner.Record:
  """Returns a prompt's record; the draft was timed against the target."""
  if np.exp(draft['own_nats']) >= 1 - alpha:
    return draft
  timings = {}
  for name in {'seconds', 'prefill'} & set(draft):
    target_time = draft[f'reference_{name}']
    timings[name] = draft[name] + target_time
    timings[f'reference_{name}'] = target_time
  return target | timings


def beyond_lossy(rows):
  """Returns points with `nats_over_lossy`, where it is defined.

  This is the target's log-likelihood of texts, in nats per token, minus that of
  lossy decoding with as many target calls. Between two points of lossy
  decoding, a coin selects one of them for each prompt; lossless decoding and
  the target are among its points.
  """
  lines = []
  for columns, panel in _panels(rows):
    line = [row for row in panel if row['method'] in (LOSSY, LOSSLESS, TARGET)]
    lines.append((columns, sorted(line, key=lambda row: row['target_calls'])))
  line_of_panel = lambda row: next(
    (line for columns, line in lines if columns.items() <= row.items()), []
  )
  return [row | _beyond(row, line_of_panel(row)) for row in rows]


def _beyond(
  row: dict[str, Any], line: list[dict[str, Any]]
) -> dict[str, float]:
  """Compares one point with the line of lossy decoding."""
  labels = {point['method'] for point in line}
  if row['method'] in labels or LOSSY not in labels:
    return {}
  calls = [point['target_calls'] for point in line]
  if not calls[0] <= row['target_calls'] <= calls[-1]:
    return {}
  weights = [
    np.interp(row['target_calls'], calls, unit) for unit in np.eye(len(line))
  ]
  nats = [point['target_nats'] for point in line]
  errors = [point['target_nats_error'] for point in line]
  return {
    'nats_over_lossy': float(row['target_nats'] - np.dot(weights, nats)),
    'nats_over_lossy_error': float(
      np.hypot(
        row['target_nats_error'], np.linalg.norm(np.multiply(weights, errors))
      )
    ),
  }


def summary(rows):
  """Returns summary rows of each line, by each rating, as in Table 2.

  'equal quality' is the largest speed-up among points with at least the
  target's rating. 'equal latency' is the best rating among points with at most
  the target's latency; `best_share` is the share of latencies, up to the
  target's, at which no line has a better point with the same or less latency.
  Errors are those of the selected point, without the bias of the selection.
  Lossless decoding is a point of the line of lossy decoding, at alpha 0. There
  are no summary rows without measured latencies.
  """
  if 'latency' not in rows[0]:
    return []
  return [
    {**columns, 'by': by, **row}
    for columns, panel in _panels(rows)
    for by in _RATINGS
    for row in _panel_summary(panel, by)
  ]


def _panel_summary(
  rows: list[dict[str, Any]], by: str
) -> Iterator[dict[str, Any]]:
  """Yields the two summary rows of each line in a panel."""
  bar = max(
    (row[by] for row in rows if row['method'] == TARGET), default=np.inf
  )
  lowest = min(row['latency'] for row in rows)
  grid = np.linspace(lowest, max(lowest, 1), 101)
  on_grid = lambda row: np.where(row['latency'] <= grid, row[by], -np.inf)
  front = lambda rows: np.max([on_grid(row) for row in rows], axis=0)
  for method in dict.fromkeys(row['method'] for row in rows):
    labels = (LOSSY, LOSSLESS) if method == LOSSY else (method,)
    line = [row for row in rows if row['method'] in labels]
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


def _panels(
  rows: list[dict[str, Any]],
) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
  """Yields the columns that a panel's rows share, and the rows.

  A row without a column that others have is in all panels: plain decoding is
  the same for all draft lengths.
  """
  names = [name for name in _PANELS if any(name in row for row in rows)]
  whole = [row for row in rows if all(name in row for name in names)]
  for values in dict.fromkeys(tuple(row[n] for n in names) for row in whole):
    columns = dict(zip(names, values))
    yield (
      columns,
      [row for row in rows if columns.items() <= (columns | row).items()],
    )


def figures(rows):
  """Draws both ratings against each cost, and the summary's speed-ups."""
  points = [row for row in rows if 'part' not in row]
  drawn = {
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
    return drawn
  bars = plots.bars(
    shown,
    'panel',
    'speed_up_at_quality',
    'method',
    error='speed_up_at_quality_error',
    ylabel="speed-up at the target's quality",
    paper=True,
  )
  return drawn | {'speed_up_at_quality': bars}


def plot(rows, cost, rating, **options):
  """Draws a rating of points against a cost, one line per method."""
  flat = [row | columns for columns, panel in _panels(rows) for row in panel]
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
