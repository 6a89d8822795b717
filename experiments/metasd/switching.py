"""Measures switching regret on simulated arms (MetaSD).

Equation (49) counts the rounds lost to the best arm, and adds `lambda` for each
token that an arm has missed since its last round began when it is selected
again.
"""

import math
from typing import Any

import jax
import numpy as np

from experiments.banditspec import simulated_arms
from experiments.common import components
from experiments.common import configs
from experiments.common import log
from experiments.common import plots
from specjax import base

MAY_CHANGE = ('bandits', 'lengths', 'token_costs')


def prepare(config):
  """Returns the units of work, and the bandit and the tokens of each."""
  configs.check_counts(config, ('lengths', 'runs'), 2)
  configs.check_counts(config, ('token_costs',), 0)
  names = 'acceptances', 'draft_length', 'exploration', 'runs', 'seed'
  shared = {name: config[name] for name in names}
  units = [
    {'bandit': bandit, 'tokens': tokens, **shared}
    for bandit in config.bandits
    for tokens in config.lengths
  ]
  cases = [(_bandit(config, unit), unit['tokens']) for unit in units]
  return units, cases


def run(config, workdir):
  """Returns a row per bandit, number of tokens and cost per token."""
  arms = simulated_arms.truncated_geometric(
    config.acceptances, config.draft_length
  )
  key = jax.random.key(config.seed)
  units, cases = prepare(config)

  def compute(case):
    bandit, tokens = case
    runs = simulated_arms.simulate(key, bandit, arms, tokens, config.runs)
    lost, missed = runs.lost_rounds(tokens), runs.missed_tokens(tokens)
    return {'lost': lost.tolist(), 'missed': missed.tolist()}

  outcomes = log.resume(workdir, units, compute, 'bandits', cases)
  return [
    {'token_cost': cost, 'bandit': unit['bandit'], 'tokens': unit['tokens']}
    | regret(np.array(outcome['lost']), np.array(outcome['missed']), cost)
    for unit, outcome in zip(units, outcomes)
    for cost in config.token_costs
  ]


def _bandit(config: Any, unit: dict[str, Any]) -> base.Bandit:
  """Builds a bandit; initial exploration takes O(ln(tokens)) rounds."""
  budget = math.ceil(config.exploration * math.log(unit['tokens']))
  providers = {
    'num_arms': lambda value: len(config.acceptances),
    'budget': lambda value: value or budget,
  }
  return components.build(base.Bandit, unit['bandit'], 'bandits', providers)


def regret(lost, missed, cost):
  """Returns the regret of equation (49), which Theorem 8 bounds for PETC.

  Args:
    lost: `[R]` rounds lost to the best arm.
    missed: `[R]` tokens that arms had missed when they were selected again.
    cost: the cost of a missed token in rounds.
  """
  charged = lost + cost * missed
  mean, error = charged.mean(), charged.std(ddof=1) / len(charged) ** 0.5
  return {
    'regret': float(mean),
    'regret_error': float(error),
    'lost_rounds': float(lost.mean()),
    'missed_tokens': float(missed.mean()),
  }


def figures(rows):
  """Draws the regret of each bandit by tokens, one panel per cost."""

  def adjust(axes):
    axes.set_xscale('log')
    axes.set_yscale('symlog', linthresh=10)
    axes.set_ylim(min(0, *(row['regret'] for row in rows)))

  figure = plots.lines(
    rows,
    'tokens',
    'regret',
    'bandit',
    panel=('token_cost',),
    error='regret_error',
    ylabel='regret in rounds, with costs of switching',
    adjust=adjust,
  )
  return {'switching_regret': figure}
