"""A bandit over rules: lossless, lossy and cascades as arms of one drafter.

The reward weighs emitted tokens against fidelity (the mean of 1 - TV between
what is sampled and the target): no threshold sets how much a token may cost,
but a weight. Each row of a batch learns on its own.
"""

import itertools

import ml_collections
import numpy as np

from experiments.cascades import frontier
from experiments.cascades import texts
from experiments.common import choice
from experiments.common import configs
from experiments.common import plots
from specjax import base
from specjax import rewards as rewards_lib

MAY_CHANGE = (*frontier.MAY_CHANGE, 'weights')
# Of each round, what rewards are computed from.
_FIELDS = ('num_emitted', 'fidelity')


def prepare(config):
  """Returns the arms, the bandits of each weight, and the prompts."""
  configs.check_counts(config, ('weights',), 0)
  prepared = choice.plan(_with_rewards(config))
  texts.rater(config, prepared.family)
  _check(prepared)
  return prepared


def run(config, workdir):
  """Returns a row per weight and method: single arms, and bandits over them.

  A bandit learns from the reward of its weight. Arms alone learn nothing, and
  are played once for all weights.
  """
  made = prepare(config)
  rate = texts.rater(config, made.family)
  decoded = texts.decode(config, workdir, made, fields=_FIELDS)
  points = [(each, rate(each)) for each in decoded]
  rows = []
  for prompts, weight in itertools.product(made.prompt_sets, config.weights):
    own = [
      (each, row)
      for each, row in points
      if each.prompts is prompts and row.get('weight', weight) == weight
    ]
    rows += [{'weight': weight} | row for row in _rows(own, weight)]
  return rows


def figures(rows):
  """Draws what choosing is worth, and the target's nats by target calls."""
  named = [row | {'weight': f'weight {row["weight"]}'} for row in rows]
  return {
    'over_best': plots.bars(
      named,
      'weight',
      'over_best',
      'method',
      error='over_best_error',
      ylabel='reward of a round, less that of the best arm',
    ),
    'target_nats': frontier.plot(rows, 'target_calls', 'target_nats'),
  }


def _rows(points, weight):
  """Rows of one weight on one set of prompts, beside the best arm alone.

  `over_best` is the mean reward of a round less that of the best arm; its error
  is that of the difference on the same prompts.
  """
  depth = max(len(each.records[0]['drafted']) for each, _ in points)
  means = {
    each.method.label: _mean_reward(each.records, weight, depth)
    for each, _ in points
  }
  alone = [
    each.method.label for each, _ in points if len(each.method.arms) == 1
  ]
  best = max(alone, key=lambda label: means[label][0])
  error = lambda moves: float(np.sqrt((moves**2).sum()))
  for each, row in points:
    (mean, moves), (highest, others) = means[each.method.label], means[best]
    fidelity, fidelity_moves = _mean_reward(each.records, 1.0, depth)
    pulls = np.sum([record['pulls'] for record in each.records], axis=0)
    yield row | {
      'reward': mean,
      'reward_error': error(moves),
      'best_arm': best,
      'over_best': mean - highest,
      'over_best_error': error(moves - others),
      'fidelity': fidelity,
      'fidelity_error': error(fidelity_moves),
      'pulls': ' '.join(map(str, pulls)),
    }


def _mean_reward(records, weight, depth):
  """The mean reward of a round, and `[P]` by how much each prompt moves it.

  Rewards of arms alone are on the scale of the deepest of all, as those of the
  bandits are.
  """
  fields = {n: np.concatenate([r[n] for r in records]) for n in _FIELDS}
  fields['tokens'] = np.zeros((len(fields['fidelity']), depth + 1))
  info = base.RoundInfo(**dict.fromkeys(base.RoundInfo._fields) | fields)
  rounds = np.array([len(record['fidelity']) for record in records])
  rewards = np.asarray(rewards_lib.Tradeoff(weight)(info), np.float64)
  sums = np.add.reduceat(rewards, np.cumsum(rounds) - rounds)
  mean = float(sums.sum() / rounds.sum())
  return mean, (sums - mean * rounds) / rounds.sum()


def _with_rewards(config):
  """The config, with a bandit for each weight."""
  bandits = tuple(
    {
      'bandit': bandit,
      'label': str(bandit),
      'reward': {'name': 'tradeoff', 'weight': weight},
      'columns': {'weight': weight},
    }
    for weight in config.weights
    for bandit in config.bandits
  )
  return ml_collections.ConfigDict({**config, 'bandits': bandits})


def _check(made):
  """Refuses arms that hide how far they are from the target."""
  for method in made.methods:
    for arm in method.arms:
      if arm.verifier and arm.verifier.name in texts.LOSSY:
        raise ValueError(
          f'{method.place}: {arm} is lossy by its verifier, without a goal, '
          'and '
          "so has no fidelity. 'small:5~lossy(0.5)' has one."
        )
