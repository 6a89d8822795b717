"""Quality against cost: deferral rules and baselines on one axis.

Speculative cascades (Narasimhan et al. 2024), Table 2 and the figures of
quality against latency, target calls and rejections.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
from typing import Any

from matplotlib import figure as figure_lib
import numpy as np

from experiments.cascades import texts
from experiments.common import compare
from experiments.common import plots
from experiments.common import workdirs
from specjax import checks
from specjax import families
from specjax.evaluation import scoring

MAY_CHANGE = (*compare.MAY_CHANGE, 'metric', 'sequence_alphas')
# Labels of the ways that others are compared with.
TARGET, DRAFT = 'target', 'draft'
SEQUENCE = 'sequence_cascade'

# What rates a point, and what plots call it; quality is that of the metric.
_RATINGS = {'quality': '', 'target_nats': 'nats a token, by the target'}
_COSTS = {
  'latency': "time over the target's",
  'target_calls': 'target calls for each token',
  'deferral_rate': 'share of positions that are deferred',
  'rejection_rate': 'share of drafts that are rejected',
}
# Columns of which each pair of values is a plot of its own.
_PANELS = ('prompts', 'sampling.temperature', 'draft_length')

Row = dict[str, Any]


def run(config, workdir):
  """Returns a row for each point, and then what they show of each line.

  Ways of one label are a line. `sequence_alphas` adds sequence cascades, which
  are made of what the ways 'draft' and 'target' have said.
  """
  score = texts.metric(config)
  made = compare.plan(config)
  alphas = config.get('sequence_alphas', ())
  checks.check_range('sequence_alphas', alphas, 0, 1)
  lacking = {TARGET, DRAFT} - {way.label for way in made.ways}
  if alphas and lacking:
    raise ValueError(
      f'sequence_alphas need a way that is labelled {min(lacking)!r}.'
    )
  decoded = measure(config, workdir, made)
  decoded += sequence_cascades(decoded, alphas)
  rows = [point(each, made.family, score, config) for each in decoded]
  return rows + summary(rows)


def measure(
  config: Any, workdir: workdirs.Workdir, made: compare.Plan, **options: Any
) -> list[compare.Decoded]:
  """Decodes every way, and records what `point` needs.

  Args:
    config: of the experiment.
    workdir: of the run.
    made: from `compare.plan`.
    **options: of `runner.Options`, beside those.
  """
  options |= {'observe': texts.observer(made.family), 'tokens': True}
  return compare.decode(config, workdir, made, **options)


def point(
  each: compare.Decoded,
  family: families.Family,
  score: scoring.Metric,
  config: Any,
) -> Row:
  """Returns a row of a way on a set: all costs, and how good its texts are.

  Args:
    each: from `measure`.
    family: whose models have decoded.
    score: from `texts.metric`.
    config: of the experiment.
  """
  (row,) = compare.rows([each])
  shown = texts.columns(each, family, score, config.seed)
  return row | {'metric': config.metric} | shown


def sequence_cascades(
  decoded: Sequence[compare.Decoded], alphas: Sequence[float]
) -> list[compare.Decoded]:
  """Returns the cascades of equation (1), of what two ways have said.

  A prompt's answer is the draft's, if that is of probability `1 - alpha` or
  more to the draft, and else the target's, after the draft's time. To know the
  probability takes no time: the draft has computed it token by token.

  Args:
    decoded: the ways 'target' and 'draft' among them, on each set.
    alphas: in [0, 1].
  """
  of = lambda label: [each for each in decoded if each.way.label == label]
  return [
    draft._replace(
      way=draft.way._replace(label=SEQUENCE, columns={'alpha': alpha}),
      records=list(
        map(functools.partial(_sequence, alpha), draft.records, target.records)
      ),
    )
    for alpha in alphas
    for draft, target in zip(of(DRAFT), of(TARGET))
  ]


def _sequence(alpha, draft, target):
  """Of one prompt; the target's time is what the draft was timed against."""
  least = np.log1p(-alpha) if alpha < 1 else -np.inf
  if draft['own_nats'] >= least:
    return draft
  clocks = {}
  for name in ('seconds', 'reading'):
    if name in draft:
      other = draft[f'reference_{name}']
      clocks |= {name: draft[name] + other, f'reference_{name}': other}
  return target | clocks


# What the points show.


def summary(rows: Sequence[Row]) -> list[Row]:
  """Returns rows of each line, by each rating, as Table 2 has them.

  Those of 'equal quality' hold `speed_up_at_quality`, the largest at a rating
  of the target's or better, None if no point has one. Those of 'equal latency'
  hold `rating_at_latency`, the best rating at a latency of the target's or
  less, and `best_share`: of latencies, from the lowest of all lines to the
  target's, the share at which no line has a better point of no more latency.
  Errors are those of the one point, which may have been lucky to be it. There
  are no rows without clocks.

  Args:
    rows: from `point`.
  """
  if not rows or 'latency' not in rows[0]:
    return []
  return [
    {**head, 'by': by, **row}
    for head, own in panels(rows)
    for by in _RATINGS
    for row in _panel_summary(own, by)
  ]


def _panel_summary(rows, by):
  lines: dict[str, list[Row]] = {}
  for row in rows:
    lines.setdefault(row['way'], []).append(row)
  bar = max((row[by] for row in lines.get(TARGET, [])), default=np.inf)
  shares = _best_shares(lines, by)
  for way, line in lines.items():
    good = [row for row in line if row[by] >= bar]
    fast = [row for row in line if row['latency'] <= 1]
    fastest = min(good, key=lambda row: row['latency'], default=None)
    best = max(fast, key=lambda row: row[by], default=None)
    yield {
      'part': 'equal quality',
      'way': way,
      **_speed_up(fastest),
    }
    yield {
      'part': 'equal latency',
      'way': way,
      **_best(best, by),
      'best_share': shares[way],
    }


def _speed_up(row):
  if row is None:
    return {'speed_up_at_quality': None}
  speed_up = 1 / row['latency']
  return {
    'alpha': row.get('alpha'),
    'speed_up_at_quality': speed_up,
    'speed_up_at_quality_error': speed_up**2 * row['latency_error'],
  }


def _best(row, by):
  if row is None:
    return {'rating_at_latency': None}
  return {
    'alpha': row.get('alpha'),
    'rating_at_latency': row[by],
    'rating_at_latency_error': row[f'{by}_error'],
  }


def _best_shares(lines, by):
  """Of each line, the share of latencies at which none is better."""
  lowest = min(row['latency'] for line in lines.values() for row in line)
  grid = np.linspace(lowest, max(lowest, 1), 101)
  fronts = {}
  for way, line in lines.items():
    fits = np.array([row['latency'] for row in line])[:, None] <= grid[None]
    ratings = np.array([row[by] for row in line])[:, None]
    fronts[way] = np.where(fits, ratings, -np.inf).max(axis=0)
  highest = np.max(list(fronts.values()), axis=0)
  return {
    way: float(((front >= highest) & np.isfinite(front)).mean())
    for way, front in fronts.items()
  }


def panels(rows: Sequence[Row]) -> Iterator[tuple[Row, list[Row]]]:
  """Yields the rows of each plot, and what they share.

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
  shown = []
  for row in rows:
    if row.get('speed_up_at_quality') and row['way'] not in (TARGET, DRAFT):
      where = [plots.named(row, [name]) for name in _PANELS[1:] if name in row]
      rating = row['by'].replace('_', ' ')
      shown.append(row | {'by': ', '.join([rating, *where])})
  if shown:
    made['speed_up_at_quality'] = plots.bars(
      shown,
      'by',
      'speed_up_at_quality',
      'way',
      error='speed_up_at_quality_error',
      ylabel="speed-up at the target's quality",
      paper=True,
    )
  return made


def plot(rows: Sequence[Row], cost: str, rating: str) -> figure_lib.Figure:
  """Draws a rating of points against a cost, a line for each way.

  Args:
    rows: from `point`.
    cost: 'latency' or another column of costs.
    rating: 'quality' or 'target_nats'.
  """
  flat = [row | head for head, own in panels(rows) for row in own]
  return plots.lines(
    flat,
    cost,
    rating,
    'way',
    panel=[name for name in _PANELS if name in flat[0]],
    error=f'{rating}_error',
    xlabel=_COSTS[cost],
    ylabel=_RATINGS[rating] or f'{flat[0]["metric"]} (%)',
    level=lambda row: row['way'] == TARGET,
  )
