"""What rewards show of arms, round by round (MetaSD): Table 2, Figures 3, 5-7.

Every arm alone shows how clearly the rewards BE (accepted over drafted tokens)
and BD (acceptance by raw probabilities) separate it from the best one. Bandits,
one for each prompt, show how soon they play that one.
"""

from typing import NamedTuple

import numpy as np

from experiments.common import compare
from experiments.common import paper
from experiments.common import plots
from specjax import checks
from specjax import metrics
from specjax.theory import constant

MAY_CHANGE = (*compare.MAY_CHANGE, 'num_rounds')
# Of `RoundInfo`: what is recorded of each round.
_FIELDS = 'arm', 'num_emitted', 'num_accepted', 'tree_depth', 'raw_acceptance'
_PARTS = 'rewards', 'best_arm', 'rounds'
_REWARDS = {'BE': 'fraction', 'BD': 'divergence'}
_QUANTILES = {'p5': 0.05, 'p25': 0.25, 'p50': 0.5, 'p75': 0.75, 'p95': 0.95}
# What matplotlib calls the columns of a box.
_BOX = {
  'label': 'method',
  'whislo': 'p5',
  'q1': 'p25',
  'med': 'p50',
  'q3': 'p75',
}
_BOX |= {'whishi': 'p95', 'mean': 'mean'}


class Trace(NamedTuple):
  """Rounds of some prompts; NaN where a prompt was done."""

  arm: np.ndarray  # [P, T]
  emitted: np.ndarray  # [P, T] tokens
  fraction: np.ndarray  # [P, T] accepted tokens over the depth of the tree
  divergence: np.ndarray  # [P, T] mean of 1 - TV over drafted tokens


def prepare(config):
  """Returns the methods and prompts of a config."""
  checks.check_range('num_rounds', config.num_rounds, 1)
  return compare.plan(config)


def run(config, workdir):
  """Returns rows of three parts: rewards, best arms, and both by round."""
  made = prepare(config)
  alone = [method.label for method in made.methods if len(method.arms) == 1]
  decoded = compare.decode(config, workdir, made, fields=_FIELDS)
  rows = []
  for prompts in made.prompt_sets:
    own = [each for each in decoded if each.prompts is prompts]
    played = {
      each.method.label: [] for each in own if len(each.method.arms) > 1
    }
    for domain in prompts.kinds:
      traces = {
        each.method.label: trace(compare.of_domain(each.records, domain))
        for each in own
      }
      best = best_arm({name: traces[name] for name in alone})
      for name, each in played.items():
        each.append(plays(traces[name], alone.index(best)))
      head = {'prompts': prompts.label, 'domain': domain}
      rows += _rows(head, traces, alone, best, config.num_rounds)
    if len(prompts.kinds) > 1:
      rows += _of_all(prompts.label, played)
  return sorted(rows, key=lambda row: _PARTS.index(row['part']))


def _rows(head, traces, alone, best, num_rounds):
  """All rows of the prompts of one domain."""
  arms = {name: traces[name] for name in alone}
  rows = [{'part': 'rewards', **head} | row for row in rewards(arms, best)]
  for name, own in traces.items():
    if name in arms:
      by_round = rounds(own.divergence, 'divergence', num_rounds)
    else:
      played = plays(own, alone.index(best))
      method = {'part': 'best_arm', **head, 'method': name, 'best_arm': best}
      rows.append(method | share(played))
      by_round = rounds(played, 'share', num_rounds)
    rows += [
      {'part': 'rounds', **head, 'method': name} | row for row in by_round
    ]
  return rows


def _of_all(label, played):
  """How often bandits played the best arm of each domain, of all domains."""
  head = {'part': 'best_arm', 'prompts': label, 'domain': 'all'}
  for name, parts in played.items():
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
  """Returns the arm that emits the most tokens a round, played alone."""
  return max(arms, key=lambda name: _pooled(arms[name].emitted)[0])


def rewards(arms, best):
  """Returns a row for each arm alone and reward: Table 2 and Figure 5.

  `signal` is equation (6): how clearly the reward separates the arm from the
  best one, which itself has none; nor is there one if no reward ever varies.
  """
  rows = []
  for name, own in arms.items():
    efficiency, efficiency_error = _pooled(own.emitted)
    for reward, field in _REWARDS.items():
      values, others = getattr(own, field), getattr(arms[best], field)
      mean, error = _pooled(values)
      variances = float(np.nanvar(values)), float(np.nanvar(others))
      signal = None
      if name != best and max(variances):
        gap = _pooled(others)[0] - mean
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


def plays(own, arm):
  """Returns `[P, T]` 1 where the arm was played, 0 where another one was."""
  return np.where(np.isnan(own.arm), np.nan, own.arm == arm)


def share(played):
  """Returns how often the best arm was played: Figure 3 in numbers.

  `settled` is the round, from 1, from which on at least half of the prompts
  play it, for as long as half of the prompts are live; None if there is none.
  """
  shares, *_ = _by_round(played)
  settled = 1 + max(np.flatnonzero(shares < 0.5) + 1, default=0)
  found = metrics.estimate(*_sums(played))
  return {
    'share': found.value,
    'share_error': found.error,
    'settled': int(settled) if settled <= len(shares) else None,
    paper.PAIRED: {'share': found},
  }


def rounds(values, field, most):
  """Returns a row for each of the first rounds: Figures 3, 6 and 7."""
  columns = zip(*(each[:most].tolist() for each in _by_round(values)))
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
      ylabel='share of prompts that play the best arm',
    ),
  }


def _pooled(values):
  """The mean over all live rounds of `[P, T]`, and its standard error."""
  return metrics.ratio(*_sums(values))


def _sums(values):
  """`[P]` sums over the live rounds of `[P, T]`, and how many these are."""
  return np.nansum(values, 1), (~np.isnan(values)).sum(1)


def _by_round(values):
  """For each round of `[P, T]` mean, standard deviation and number of prompts.

  Only of rounds in which at least half of the prompts are live: those that go
  on for long are of another kind.
  """
  live = (~np.isnan(values)).sum(0)
  many = live >= len(values) / 2
  values = values[:, many]
  return np.nanmean(values, 0), np.nanstd(values, 0), live[many]


def _lines(rows, y, **options):
  """A line for each method, over whole rounds."""
  figure = plots.lines(rows, 'round', y, 'method', panel='domain', **options)
  for axes in figure.axes:
    axes.locator_params('x', integer=True)
  return figure


def _boxes(rows, ylabel):
  """A box for each method, whose quantiles its row has."""
  panels = {}
  for row in rows:
    stats = {new: row[old] for new, old in _BOX.items()}
    panels.setdefault(row['domain'], []).append(stats)
  figure, axes = plots.panels(
    [*panels], '', f'{ylabel} of a round\n(5 to 95%; triangle: mean)'
  )
  for each, stats in zip(axes, panels.values()):
    each.bxp(stats, showfliers=False, showmeans=True)
    each.tick_params('x', rotation=45, labelsize=8)
    each.set_ylim(-0.02, 1.02)
  return figure
