"""Measures how rewards separate arms: MetaSD's Table 2 and Figures 3, 5-7.

Single arms show how clearly the rewards BE (accepted over drafted tokens) and
BD (acceptance by raw probabilities) separate each arm from the best one.
Bandits, one per prompt, show how soon they select the best arm.
"""

from collections.abc import Iterator
from typing import Any
from typing import NamedTuple

from matplotlib import figure as figure_lib
import numpy as np

from experiments.common import compare
from experiments.common import paper
from experiments.common import plots
from specjax import checks
from specjax import metrics
from specjax.theory import constant

MAY_CHANGE = (*compare.MAY_CHANGE, 'num_rounds')
# Fields of `RoundInfo` that are recorded for each round.
_FIELDS = 'arm', 'num_emitted', 'num_accepted', 'tree_depth', 'raw_acceptance'
_PARTS = 'rewards', 'best_arm', 'rounds'
_REWARDS = {'BE': 'fraction', 'BD': 'divergence'}
_QUANTILES = {'p5': 0.05, 'p25': 0.25, 'p50': 0.5, 'p75': 0.75, 'p95': 0.95}
# Our columns, by matplotlib's names for the statistics of a box.
_BOX = {
  'label': 'method',
  'whislo': 'p5',
  'q1': 'p25',
  'med': 'p50',
  'q3': 'p75',
}
_BOX |= {'whishi': 'p95', 'mean': 'mean'}


class Trace(NamedTuple):
  """Rounds of `P` prompts; NaN where a prompt was done."""

  arm: np.ndarray  # [P, T]
  emitted: np.ndarray  # [P, T] tokens
  fraction: np.ndarray  # [P, T] accepted tokens over the depth of the tree
  divergence: np.ndarray  # [P, T] mean of 1 - TV over drafted tokens


def prepare(config):
  """Returns the methods and prompts of a config."""
  checks.check_range('num_rounds', config.num_rounds, 1)
  return compare.prepare(config)


def run(config, workdir):
  """Returns rows of three parts: rewards, best arms, and both by round."""
  setup = prepare(config)
  single_arms = [
    method.label for method in setup.methods if len(method.arms) == 1
  ]
  decoded = compare.decode(config, workdir, setup, fields=_FIELDS)
  rows = []
  for prompts in setup.prompt_sets:
    on_set = [result for result in decoded if result.prompts is prompts]
    selections: dict[str, list[np.ndarray]] = {
      result.method.label: []
      for result in on_set
      if len(result.method.arms) > 1
    }
    for domain in prompts.kinds:
      traces = {
        result.method.label: trace(
          compare.select_domain(result.records, domain)
        )
        for result in on_set
      }
      best = best_arm({name: traces[name] for name in single_arms})
      for name, parts in selections.items():
        parts.append(is_selected(traces[name], single_arms.index(best)))
      head = {'prompts': prompts.label, 'domain': domain}
      rows += _rows(head, traces, single_arms, best, config.num_rounds)
    if len(prompts.kinds) > 1:
      rows += _all_domains(prompts.label, selections)
  return sorted(rows, key=lambda row: _PARTS.index(row['part']))


def _rows(
  head: dict[str, Any],
  traces: dict[str, Trace],
  single_arms: list[str],
  best: str,
  num_rounds: int,
) -> list[dict[str, Any]]:
  """Returns all rows for the prompts of one domain."""
  arms = {name: traces[name] for name in single_arms}
  rows = [{'part': 'rewards', **head} | row for row in rewards(arms, best)]
  for name, method_trace in traces.items():
    if name in arms:
      by_round = rounds(method_trace.divergence, 'divergence', num_rounds)
    else:
      selected = is_selected(method_trace, single_arms.index(best))
      method = {'part': 'best_arm', **head, 'method': name, 'best_arm': best}
      rows.append(method | share(selected))
      by_round = rounds(selected, 'share', num_rounds)
    rows += [
      {'part': 'rounds', **head, 'method': name} | row for row in by_round
    ]
  return rows


def _all_domains(
  label: str, selections: dict[str, list[np.ndarray]]
) -> Iterator[dict[str, Any]]:
  """Yields how often bandits selected the best arm, over all domains."""
  head = {'part': 'best_arm', 'prompts': label, 'domain': 'all'}
  for name, parts in selections.items():
    shape = sum(map(len, parts)), max(part.shape[1] for part in parts)
    whole, first = np.full(shape, np.nan), 0
    for part in parts:
      whole[first : first + len(part), : part.shape[1]] = part
      first += len(part)
    yield head | {'method': name, 'best_arm': 'of each domain'} | share(whole)


def trace(records):
  """Returns the rounds of some records."""
  lengths = [len(record['arm']) for record in records]
  values = np.full((len(_FIELDS), len(records), max(lengths)), np.nan)
  for i, record in enumerate(records):
    values[:, i, : lengths[i]] = [record[name] for name in _FIELDS]
  arm, emitted, accepted, depth, divergence = values
  return Trace(arm, emitted, accepted / np.maximum(depth, 1), divergence)


def best_arm(arms):
  """Returns the single arm that emits the most tokens per round."""
  return max(arms, key=lambda name: _pooled(arms[name].emitted)[0])


def rewards(arms, best):
  """Returns a row per single arm and reward: Table 2 and Figure 5.

  `signal` is equation (6): how clearly the reward separates the arm from the
  best arm. It is None for the best arm, and if both rewards are constant.
  """
  rows = []
  for name, arm_trace in arms.items():
    efficiency, efficiency_error = _pooled(arm_trace.emitted)
    for reward, field in _REWARDS.items():
      values = getattr(arm_trace, field)
      best_values = getattr(arms[best], field)
      mean, error = _pooled(values)
      variances = float(np.nanvar(values)), float(np.nanvar(best_values))
      signal = None
      if name != best and max(variances):
        gap = _pooled(best_values)[0] - mean
        signal = constant.feedback_signal(gap, *variances)
      row = {
        'method': name,
        'block_efficiency': efficiency,
        'block_efficiency_error': efficiency_error,
        'reward': reward,
        'mean': mean,
        'mean_error': error,
        'variance': variances[0],
        'zeros': float((values == 0).sum() / (~np.isnan(values)).sum()),
        'signal': signal,
      }
      quantiles = np.nanquantile(values, list(_QUANTILES.values())).tolist()
      rows.append(row | dict(zip(_QUANTILES, quantiles)))
  return rows


def is_selected(method_trace, arm):
  """Returns `[P, T]`: 1 if the arm was selected, 0 if another one, else NaN."""
  return np.where(np.isnan(method_trace.arm), np.nan, method_trace.arm == arm)


def share(selected):
  """Returns how often the best arm was selected: Figure 3 in numbers.

  `settled` is the first round, from 1, after which at least half of the prompts
  always select the best arm, for as long as half of the prompts are live; None
  if there is no such round.
  """
  shares, *_ = _by_round(selected)
  settled = 1 + max(np.flatnonzero(shares < 0.5) + 1, default=0)
  estimate = metrics.estimate(*_sums(selected))
  return {
    'share': estimate.value,
    'share_error': estimate.error,
    'settled': int(settled) if settled <= len(shares) else None,
    paper.PAIRED: {'share': estimate},
  }


def rounds(values, field, most):
  """Returns a row per round, up to `most` rounds: Figures 3, 6 and 7."""
  columns = zip(*(array[:most].tolist() for array in _by_round(values)))
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
  """Draws rewards as boxes, BD by round, and selections of the best arm.

  Boxes have whiskers from the 5th to the 95th percentile.
  """
  if len({row['prompts'] for row in rows}) > 1:
    name = lambda row: f'{row["prompts"]}, {row["domain"]}'
    rows = [row | {'domain': name(row)} for row in rows]
  boxes = {
    name.lower(): _boxes([r for r in rows if r.get('reward') == name], name)
    for name in _REWARDS
  }
  rows = [row for row in rows if row['part'] == 'rounds']
  arms = [row for row in rows if 'divergence' in row]
  bandits = [row for row in rows if 'share' in row]
  return boxes | {
    'divergence_by_round': _lines(
      arms, 'divergence', error='divergence_error', ylabel='mean BD'
    ),
    'deviation_by_round': _lines(
      arms, 'deviation', ylabel='standard deviation of BD'
    ),
    'best_arm': _lines(
      bandits,
      'share',
      error='share_error',
      ylabel='share of prompts that select the best arm',
    ),
  }


def _pooled(values: np.ndarray) -> tuple[float, float]:
  """Returns the mean of `[P, T]` over all live rounds, and its error."""
  return metrics.ratio(*_sums(values))


def _sums(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
  """Returns `[P]` sums over the live rounds of `[P, T]`, and their numbers."""
  return np.nansum(values, 1), (~np.isnan(values)).sum(1)


def _by_round(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns each round's mean, standard deviation and number of live prompts.

  Only rounds in which at least half of the `P` prompts are live are returned,
  as prompts with long answers differ from the others.
  """
  num_live = (~np.isnan(values)).sum(0)
  is_common = num_live >= len(values) / 2
  values = values[:, is_common]
  return np.nanmean(values, 0), np.nanstd(values, 0), num_live[is_common]


def _lines(
  rows: list[dict[str, Any]], y: str, **options: Any
) -> figure_lib.Figure:
  """Draws a line per method, over integer rounds."""
  figure = plots.lines(rows, 'round', y, 'method', panel='domain', **options)
  for axes in figure.axes:
    axes.locator_params('x', integer=True)
  return figure


def _boxes(rows: list[dict[str, Any]], ylabel: str) -> figure_lib.Figure:
  """Draws a box per method, from the quantiles of its row."""
  panels: dict[str, list[dict[str, Any]]] = {}
  for row in rows:
    stats = {new: row[old] for new, old in _BOX.items()}
    panels.setdefault(row['domain'], []).append(stats)
  figure, axes = plots.panels(
    [*panels], '', f'{ylabel} per round\n(5 to 95%; triangle: mean)'
  )
  for panel, stats in zip(axes, panels.values()):
    panel.bxp(stats, showfliers=False, showmeans=True)
    panel.tick_params('x', rotation=45, labelsize=8)
    panel.set_ylim(-0.02, 1.02)
  return figure
