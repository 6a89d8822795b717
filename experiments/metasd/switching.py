"""Regret that charges changes of arms (MetaSD), on simulated arms.

Equation (49): rounds lost to the best arm, and `lambda` for each token that an
arm has missed when it is played again, since its own last round began.
"""

import math

import jax
import numpy as np

from experiments.banditspec import laboratory
from experiments.common import components
from experiments.common import configs
from experiments.common import log
from experiments.common import plots
from specjax import base

MAY_CHANGE = ('bandits', 'lengths', 'token_costs')


def prepare(config):
  """Returns all that is played, and the bandit and the tokens of each."""
  configs.check_counts(config, ('lengths', 'runs'), 2)
  configs.check_counts(config, ('token_costs',), 0)
  names = 'acceptances', 'draft_length', 'exploration', 'runs', 'seed'
  shared = {name: config[name] for name in names}
  units = [
    {'bandit': each, 'tokens': tokens, **shared}
    for each in config.bandits
    for tokens in config.lengths
  ]
  cases = [(_bandit(config, unit), unit['tokens']) for unit in units]
  return units, cases


def run(config, workdir):
  """Returns a row for each bandit, number of tokens and cost of a token."""
  arms = laboratory.truncated_geometric(config.acceptances, config.draft_length)
  key = jax.random.key(config.seed)
  units, cases = prepare(config)

  def compute(case):
    rule, tokens = case
    runs = laboratory.play(key, rule, arms, tokens, config.runs)
    lost, missed = runs.lost(tokens), runs.missed(tokens)
    return {'lost': lost.tolist(), 'missed': missed.tolist()}

  outcomes = log.resume(workdir, units, compute, 'bandits', cases)
  return [
    {'token_cost': cost, 'bandit': unit['bandit'], 'tokens': unit['tokens']}
    | regret(np.array(outcome['lost']), np.array(outcome['missed']), cost)
    for unit, outcome in zip(units, outcomes)
    for cost in config.token_costs
  ]


def _bandit(config, unit):
  """One that explores first does so in `O(ln(tokens))` rounds."""
  budget = math.ceil(config.exploration * math.log(unit['tokens']))
  given = {
    'num_arms': lambda value: len(config.acceptances),
    'budget': lambda value: value or budget,
  }
  return components.build(base.Bandit, unit['bandit'], 'bandits', given)


def regret(lost, missed, cost):
  """Returns equation (49), and what Theorem 8 bounds for PETC.

  Of `[R]` rounds lost to the best arm, `[R]` tokens that arms had to read when
  they were changed to, and the cost of one of them in rounds.
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
  """Draws the regret of each bandit by tokens, a panel for each cost."""
  figure = plots.lines(
    rows,
    'tokens',
    'regret',
    'bandit',
    panel=('token_cost',),
    error='regret_error',
    ylabel='regret in rounds, changes charged',
  )
  for axes in figure.axes:
    axes.set_xscale('log')
    axes.set_yscale('symlog', linthresh=10)
    axes.set_ylim(min(0, *(row['regret'] for row in rows)))
  return {'switching_regret': figure}
