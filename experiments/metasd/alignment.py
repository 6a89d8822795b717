"""What rewards show of arms, round by round (MetaSD): Table 2, Figures 3, 5-7.

Every arm alone shows how clearly the rewards BE (accepted over drafted tokens)
and BD (acceptance by raw probabilities) separate it from the best one. Bandits,
one for each prompt, show how soon they play that one.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.common import compare
from experiments.common import plots
from experiments.common import runner
from specjax import checks
from specjax import metrics
from specjax.theory import constant

MAY_CHANGE = (*compare.MAY_CHANGE, 'num_rounds')
# Of `RoundInfo`: what is recorded of each round.
_FIELDS = 'arm', 'num_emitted', 'num_accepted', 'tree_depth', 'raw_acceptance'
_PARTS = 'rewards', 'best_arm', 'rounds'
_REWARDS = {'BE': 'fraction', 'BD': 'divergence'}
_QUANTILES = {'p5': 0.05, 'p25': 0.25, 'p50': 0.5, 'p75': 0.75, 'p95': 0.95}


class Trace(NamedTuple):
  """Rounds of some prompts; NaN where a prompt was done."""

  arm: np.ndarray  # [P, T]
  emitted: np.ndarray  # [P, T] tokens
  fraction: np.ndarray  # [P, T] accepted tokens over the depth of the tree
  divergence: np.ndarray  # [P, T] mean of 1 - TV over drafted tokens


def run(config, workdir):
  """Returns rows of three parts: rewards, best arms, and both by round."""
  checks.check_range('num_rounds', config.num_rounds, 1)
  made = compare.plan(config)
  decoded = compare.decode(config, workdir, made, fields=_FIELDS)
  rows = []
  for prompts in made.sets:
    own = [each for each in decoded if each.prompts is prompts]
    for domain in prompts.kinds:
      traces = {
        each.way.label: trace(
          [record for record in each.records if record['label'] == domain]
        )
        for each in own
      }
      alone = [each.way.label for each in own if len(each.way.arms) == 1]
      head = {'prompts': prompts.label, 'domain': domain}
      rows += _rows(head, traces, alone, config.num_rounds)
  return sorted(rows, key=lambda row: _PARTS.index(row['part']))


def trace(records: Sequence[runner.Record]) -> Trace:
  """Returns the rounds of some records."""
  longest = max(len(record['arm']) for record in records)
  padded = {}
  for name in _FIELDS:
    padded[name] = np.full((len(records), longest), np.nan)
    for row, record in zip(padded[name], records):
      row[: len(record[name])] = record[name]
  return Trace(
    padded['arm'],
    padded['num_emitted'],
    padded['num_accepted'] / np.maximum(padded['tree_depth'], 1),
    padded['raw_acceptance'],
  )


def best_arm(arms: Mapping[str, Trace]) -> str:
  """Returns the arm that emits the most tokens a round, played alone."""
  return max(arms, key=lambda name: pooled(arms[name].emitted)[0])


def pooled(values: np.ndarray) -> tuple[float, float]:
  """Returns the mean over all live rounds, and its standard error.

  The error is that of a ratio of sums over independent prompts.

  Args:
    values: `[P, T]`, NaN where a prompt was done.
  """
  return metrics.ratio(np.nansum(values, 1), (~np.isnan(values)).sum(1))


def by_round(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns, for each round, mean, standard deviation and number of prompts.

  Only of rounds in which at least half of the prompts are live: those that go
  on for long are of another kind.

  Args:
    values: `[P, T]`, NaN where a prompt was done.
  """
  live = (~np.isnan(values)).sum(0)
  many = live >= len(values) / 2
  values = values[:, many]
  return np.nanmean(values, 0), np.nanstd(values, 0), live[many]


def rewards(arms: Mapping[str, Trace], best: str) -> list[dict[str, Any]]:
  """Returns a row for each arm and reward: Table 2 and Figure 5.

  `signal` is equation (6): how clearly the reward separates the arm from the
  best one, which itself has none; nor is there one if neither reward ever
  varies.

  Args:
    arms: traces of each arm alone.
    best: name of the best arm.
  """
  rows = []
  for name, own in arms.items():
    efficiency, efficiency_error = pooled(own.emitted)
    for reward, field in _REWARDS.items():
      values, others = getattr(own, field), getattr(arms[best], field)
      mean, error = pooled(values)
      variances = float(np.nanvar(values)), float(np.nanvar(others))
      signal = None
      if name != best and max(variances):
        gap = pooled(others)[0] - mean
        signal = constant.feedback_signal(gap, *variances)
      quantiles = np.nanquantile(values, list(_QUANTILES.values())).tolist()
      rows.append(
        {
          'way': name,
          'block_efficiency': efficiency,
          'block_efficiency_error': efficiency_error,
          'reward': reward,
          'mean': mean,
          'mean_error': error,
          'variance': variances[0],
          'zeros': pooled(_where_live(values, values == 0))[0],
          'signal': signal,
          **dict(zip(_QUANTILES, quantiles)),
        }
      )
  return rows


def plays(own: Trace, arm: int) -> np.ndarray:
  """Returns `[P, T]` 1 where the arm was played, 0 where another one was."""
  return _where_live(own.arm, own.arm == arm)


def share(played: np.ndarray) -> dict[str, Any]:
  """Returns how often the best arm was played: Figure 3 in numbers.

  `settled` is the round, from 1, from which on at least half of the prompts
  play it, for as long as half of the prompts are live; None if there is none.

  Args:
    played: `[P, T]` from `plays`.
  """
  shares, *_ = by_round(played)
  settled = 1 + max(np.flatnonzero(shares < 0.5) + 1, default=0)
  mean, error = pooled(played)
  return {
    'share': mean,
    'share_error': error,
    'settled': int(settled) if settled <= len(shares) else None,
  }


def rounds(values: np.ndarray, field: str, most: int) -> list[dict[str, Any]]:
  """Returns a row for each of the first rounds: Figures 3, 6 and 7.

  Args:
    values: `[P, T]`, NaN where a prompt was done.
    field: what they are.
    most: how many rounds, at most.
  """
  columns = zip(*(each[:most].tolist() for each in by_round(values)))
  return [
    {
      'round': i,
      'live': live,
      field: mean,
      'deviation': deviation,
      f'{field}_error': deviation / live**0.5,
    }
    for i, (mean, deviation, live) in enumerate(columns, start=1)
  ]


def figures(rows):
  """Draws rewards as boxes, BD by round, and how often the best arm is played.

  Boxes have whiskers from the 5th to the 95th percentile.
  """
  many = len({row['prompts'] for row in rows}) > 1
  panel = ('prompts', 'domain') if many else 'domain'
  by_reward = {
    name.lower(): _boxes(
      [row for row in rows if row.get('reward') == name], panel, name
    )
    for name in _REWARDS
  }
  rows = [row for row in rows if row['part'] == 'rounds']
  arms = [row for row in rows if 'divergence' in row]
  draw = functools.partial(_lines, panel=panel)
  return by_reward | {
    'divergence_by_round': draw(
      arms, 'divergence', error='divergence_error', ylabel='mean BD'
    ),
    'deviation_by_round': draw(
      arms, 'deviation', ylabel='standard deviation of BD'
    ),
    'best_arm': draw(
      [row for row in rows if 'share' in row],
      'share',
      error='share_error',
      ylabel='share of prompts that play the best arm',
    ),
  }


def _rows(head, traces, alone, num_rounds):
  """All rows of the prompts of one domain."""
  arms = {name: traces[name] for name in alone}
  best = best_arm(arms)
  named = lambda part, rows: [{'part': part, **head, **row} for row in rows]
  rows = named('rewards', rewards(arms, best))
  for name, own in traces.items():
    if name in arms:
      by = rounds(own.divergence, 'divergence', num_rounds)
    else:
      played = plays(own, alone.index(best))
      way = {'way': name, 'best_arm': best}
      rows += named('best_arm', [way | share(played)])
      by = rounds(played, 'share', num_rounds)
    rows += named('rounds', [{'way': name, **row} for row in by])
  return rows


def _where_live(values, chosen):
  return np.where(np.isnan(values), np.nan, chosen)


def _lines(rows, y, panel, **options):
  """A line for each way, over whole rounds."""
  figure = plots.lines(rows, 'round', y, 'way', panel=panel, **options)
  for axes in figure.axes:
    axes.locator_params('x', integer=True)
  return figure


def _boxes(rows, panel, ylabel):
  """A box for each way, whose quantiles its row has."""
  titles = list(dict.fromkeys(plots.named(row, panel) for row in rows))
  figure, panels = plots.panels(
    titles, '', f'{ylabel} of a round\n(5 to 95%; triangle: mean)'
  )
  names = {'p5': 'whislo', 'p25': 'q1', 'p50': 'med', 'p75': 'q3'}
  names |= {'p95': 'whishi', 'mean': 'mean'}
  for axes, title in zip(panels, titles):
    own = [row for row in rows if plots.named(row, panel) == title]
    stats = [
      {'label': row['way']} | {new: row[old] for old, new in names.items()}
      for row in own
    ]
    axes.bxp(stats, showfliers=False, showmeans=True)
    axes.tick_params('x', rotation=45, labelsize=8)
    axes.set_ylim(-0.02, 1.02)
  return figure
