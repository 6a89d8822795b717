"""Compares bandits' regret on simulated arms with its bounds.

The bounds are those of BanditSpec, and of MetaSD for UCB1. It also counts how
often each arm, and the currently best one, are selected.
"""

from typing import Any

import jax
from matplotlib import figure as figure_lib
from matplotlib import ticker
import numpy as np

from experiments.banditspec import simulated_arms
from experiments.common import calls
from experiments.common import components
from experiments.common import log
from experiments.common import plots
from specjax import bandits
from specjax import base
from specjax import checks
from specjax import metrics
from specjax import registry
from specjax.theory import regret as regret_lib

MAY_CHANGE = (
  'environments',
  'bandits',
  'lengths',
  'trace_rounds',
  'traced',
  'pulls',
)
# Points of the horizontal axis; selections are counted in windows around them.
_WINDOWS = 50


def prepare(config):
  """Returns the units of work, and the arms of each environment."""
  checks.check_range('lengths', config.lengths, 1)
  checks.check_range('runs', config.runs, 2)
  environments = {
    name: calls.parse(text, f'environments.{name}')
    for name, text in config.environments.items()
  }
  arms = {
    name: _arms(config, name, call) for name, call in environments.items()
  }
  for name in config.traced:
    registry.lookup(arms, 'environment of traced', name)
  for name in config.pulls:
    registry.lookup(dict.fromkeys(config.bandits), 'bandit of pulls', name)
  units = [
    {
      'environment': name,
      'arms': str(call),
      'bandit': bandit,
      'traced': config.trace_rounds if name in config.traced else 0,
      'pulls': bandit in config.pulls,
    }
    | {
      field: config[field]
      for field in ('draft_length', 'lengths', 'runs', 'seed')
    }
    for name, call in environments.items()
    for bandit in config.bandits
  ]
  for unit in units:  # Errors come before the first simulation.
    _bandit(unit, arms[unit['environment']])
  return units, arms


def run(config, workdir):
  """Returns rows of regret by tokens, and of selected arms by round."""
  units, arms = prepare(config)
  compute = lambda unit: _simulate(unit, arms[unit['environment']])
  outcomes = log.resume(workdir, units, compute, 'bandits')
  rows = [
    {name: unit[name] for name in ('environment', 'bandit')} | row
    for unit, outcome in zip(units, outcomes)
    for row in outcome['rows']
  ]
  return sorted(rows, key=lambda row: 'part' in row)


def _arms(
  config: Any, name: str, call: calls.Call
) -> simulated_arms.Environment:
  """Builds the simulated arms of an environment."""
  location = f'environments.{name}'
  try:
    factory = registry.lookup(
      simulated_arms.ENVIRONMENTS, 'environment', call.name
    )
    options = components.bind(factory, call, location)
    return factory(**options, draft_length=config.draft_length)
  except (TypeError, ValueError) as error:
    raise ValueError(f'{location}: {error}') from error


def _bandit(
  unit: dict[str, Any], arms: simulated_arms.Environment
) -> base.Bandit:
  providers = {'num_arms': lambda value: arms.num_arms}
  return components.build(base.Bandit, unit['bandit'], 'bandits', providers)


def _simulate(
  unit: dict[str, Any], arms: simulated_arms.Environment
) -> dict[str, Any]:
  """Simulates one bandit in one environment; returns its rows."""
  # A round emits `L + 1` tokens at most.
  most = max(*unit['lengths'], unit['traced'] * (unit['draft_length'] + 1))
  key = jax.random.key(unit['seed'])
  runs = simulated_arms.simulate(
    key, _bandit(unit, arms), arms, most, unit['runs']
  )
  rows = [_regret(unit, arms, runs, tokens) for tokens in unit['lengths']]
  return {
    'rows': rows + (_selected(unit, arms, runs) if unit['traced'] else [])
  }


def _selected(
  unit: dict[str, Any],
  arms: simulated_arms.Environment,
  runs: simulated_arms.Runs,
) -> list[dict[str, Any]]:
  """Returns rows of the arms in the first rounds; the best arm may change."""
  rounds, rows = np.arange(unit['traced']), []
  best = np.asarray(jax.vmap(arms.means)(rounds)).argmax(1)
  for window in np.array_split(rounds, min(_WINDOWS, len(rounds))):
    selected = runs.arms[:, window]
    row = {
      'part': 'selected arms',
      'round': float(window.mean()),
      'best_arm': float((selected == best[window]).mean()),
    }
    if unit['pulls']:
      indices = range(arms.num_arms)
      row |= {f'arm_{i}': float((selected == i).mean()) for i in indices}
    rows.append(row)
  return rows


def _regret(
  unit: dict[str, Any],
  arms: simulated_arms.Environment,
  runs: simulated_arms.Runs,
  tokens: int,
) -> dict[str, Any]:
  """Returns a row of regret, with the bound if there is one.

  Block efficiency is emitted tokens per round.
  """
  lost = runs.lost_rounds(tokens)
  best_rounds = float(runs.fixed_rounds(tokens).mean(0).min())
  rounds = runs.rounds(tokens)
  # What the last round emits beyond `tokens` is cut off, as when decoding.
  efficiency, error = metrics.ratio(np.full(len(rounds), tokens), rounds)
  return {
    'tokens': tokens,
    'regret': float(lost.mean()),
    'regret_error': float(lost.std(ddof=1) / len(lost) ** 0.5),
    'bound': _bound(unit, arms, tokens, best_rounds),
    'rounds': float(rounds.mean()),
    'best_rounds': best_rounds,
    'block_efficiency': efficiency,
    'block_efficiency_error': error,
  } | _reward_regret(unit, arms, runs, tokens)


def _reward_regret(
  unit: dict[str, Any],
  arms: simulated_arms.Environment,
  runs: simulated_arms.Runs,
  tokens: int,
) -> dict[str, float]:
  """Returns the regret of rewards, and that of rounds which follows from it.

  Lemma 8 of MetaSD has a range, whose center is given; only stationary arms.
  """
  if not _is_stationary(unit):
    return {}
  length, means = unit['draft_length'], np.asarray(arms.means(0), np.float64)
  lost = runs.pulls(tokens).mean(0) @ (means.max() - means) / length
  low, high = regret_lib.rounds_of_reward_regret(lost, means.max(), length)
  return {'reward_regret': float(lost), 'predicted': (low + high) / 2}


def _is_stationary(unit: dict[str, Any]) -> bool:
  return unit['arms'].startswith('truncated_geometric')


def _bound(
  unit: dict[str, Any],
  arms: simulated_arms.Environment,
  tokens: int,
  best_rounds: float,
) -> float | None:
  """Returns the bound of a bandit, where the papers prove one."""
  bandit, length = _bandit(unit, arms), unit['draft_length']
  means = np.asarray(arms.means(0))
  if isinstance(bandit, bandits.UCBSpec) and _is_stationary(unit):
    return regret_lib.ucb_upper_bound(means, length, tokens, bandit.delta)
  if type(bandit) is bandits.UCB1 and _is_stationary(unit):
    # Theorem 7 of MetaSD has no bound for less exploration.
    if bandit.beta > 0.5:
      rewards = (means - 1) / length
      return regret_lib.ucb1_upper_bound(rewards, tokens, bandit.beta)
  if isinstance(bandit, bandits.EXP3Spec):
    return regret_lib.exp3_upper_bound(
      arms.num_arms, length, tokens, best_rounds
    )
  return None


def figures(rows):
  """Draws regret with its bounds, and the shares of selected arms."""
  drawn = {'regret': _regret_figure([row for row in rows if 'part' not in row])}
  selected = [row for row in rows if 'part' in row]
  if selected:
    drawn['best_arm'] = plots.lines(
      selected,
      'round',
      'best_arm',
      'bandit',
      panel='environment',
      ylabel='share of runs that select the best arm',
    )
  pulls = [row for row in selected if 'arm_0' in row]
  return drawn | ({'pulls': _pulls(pulls)} if pulls else {})


def _regret_figure(rows: list[dict[str, Any]]) -> figure_lib.Figure:
  """Draws regret; it is negative if a bandit beats the best fixed arm."""
  bounds = [
    row
    | {
      'bandit': f'bound of {row["bandit"]}',
      'regret': row['bound'],
      'regret_error': 0,
    }
    for row in rows
    if row['bound'] is not None
  ]

  def adjust(axes):
    axes.set_xscale('log')
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_yscale('symlog', linthresh=10)
    axes.autoscale_view()

  return plots.lines(
    [*rows, *bounds],
    'tokens',
    'regret',
    'bandit',
    panel='environment',
    error='regret_error',
    ylabel='regret in rounds',
    adjust=adjust,
  )


def _pulls(rows: list[dict[str, Any]]) -> figure_lib.Figure:
  """Draws shares of arms by round, one panel per bandit and environment."""
  cases: dict[str, list[dict[str, Any]]] = {}
  for row in rows:
    title = f'{row["bandit"]}, {row["environment"]}'
    cases.setdefault(title, []).append(row)
  figure, axes = plots.panels(list(cases), 'round', 'share of pulls')
  for panel, case_rows in zip(axes, cases.values()):
    names = [name for name in case_rows[0] if name.startswith('arm_')]
    shares = [[row[name] for row in case_rows] for name in names]
    labels = [name.replace('_', ' ') for name in names]
    rounds = [row['round'] for row in case_rows]
    panel.stackplot(rounds, shares, labels=labels)
    panel.set_ylim(0, 1)
  plots.legend(figure, axes)
  return figure
