"""Compares bandits over rules: lossless, lossy and cascades with one drafter.

The reward is a weighted sum of emitted tokens and fidelity, the mean of 1 - TV
between the sampled distribution and the target's. The weight takes the place of
a rule's threshold. Each row of a batch has its own bandit.
"""

from collections.abc import Iterator
import itertools
from typing import Any

import ml_collections
import numpy as np

from experiments.cascades import frontier
from experiments.cascades import texts
from experiments.common import choice
from experiments.common import compare
from experiments.common import configs
from experiments.common import plots
from specjax import base
from specjax import rewards as rewards_lib

MAY_CHANGE = (*frontier.MAY_CHANGE, 'weights')
# Fields of each round that rewards are computed from.
_FIELDS = ('num_emitted', 'fidelity')


def prepare(config):
  """Returns the arms, the bandits for each weight, and the prompts."""
  configs.check_counts(config, ('weights',), 0)
  setup = choice.prepare(_with_rewards(config))
  texts.rater(config, setup)
  _check(setup)
  return setup


def run(config, workdir):
  """Returns a row per weight and method: single arms, and bandits over them.

  A bandit receives the reward with its weight. Single arms learn nothing and
  are decoded once for all weights.
  """
  setup = prepare(config)
  rate = texts.rater(config, setup)
  decoded = texts.decode(config, workdir, setup, fields=_FIELDS)
  points = [(result, rate(result)) for result in decoded]
  rows = []
  for prompts, weight in itertools.product(setup.prompt_sets, config.weights):
    selected = [
      (result, row)
      for result, row in points
      if result.prompts is prompts and row.get('weight', weight) == weight
    ]
    rows += [{'weight': weight} | row for row in _rows(selected, weight)]
  return rows


def figures(rows):
  """Draws gains over the best arm, and the target's nats by target calls."""
  named = [row | {'weight': f'weight {row["weight"]}'} for row in rows]
  return {
    'over_best': plots.bars(
      named,
      'weight',
      'over_best',
      'method',
      error='over_best_error',
      ylabel='reward per round minus that of the best arm',
    ),
    'target_nats': frontier.plot(rows, 'target_calls', 'target_nats'),
  }


def _rows(
  points: list[tuple[compare.Decoded, dict[str, Any]]], weight: float
) -> Iterator[dict[str, Any]]:
  """Yields the rows of one weight on one prompt set.

  `over_best` is the mean reward per round minus that of the best arm; its error
  is the error of this difference on the same prompts.
  """
  depth = max(len(result.records[0]['drafted']) for result, _ in points)
  means = {
    result.method.label: _mean_reward(result.records, weight, depth)
    for result, _ in points
  }
  single_arms = [
    result.method.label for result, _ in points if len(result.method.arms) == 1
  ]
  best = max(single_arms, key=lambda label: means[label][0])
  error = lambda deviations: float(np.sqrt((deviations**2).sum()))
  for result, row in points:
    mean, deviations = means[result.method.label]
    best_mean, best_deviations = means[best]
    fidelity, fidelity_deviations = _mean_reward(result.records, 1.0, depth)
    pulls = np.sum([record['pulls'] for record in result.records], axis=0)
    yield row | {
      'reward': mean,
      'reward_error': error(deviations),
      'best_arm': best,
      'over_best': mean - best_mean,
      'over_best_error': error(deviations - best_deviations),
      'fidelity': fidelity,
      'fidelity_error': error(fidelity_deviations),
      'pulls': ' '.join(map(str, pulls)),
    }


def _mean_reward(
  records: list[dict[str, Any]], weight: float, depth: int
) -> tuple[float, np.ndarray]:
  """Returns the mean reward per round, and `[P]` deviations of the prompts.

  Rewards of single arms are scaled by the depth of the deepest arm, like those
  of the bandits.
  """
  fields = {n: np.concatenate([r[n] for r in records]) for n in _FIELDS}
  fields['tokens'] = np.zeros((len(fields['fidelity']), depth + 1))
  info = base.RoundInfo(**dict.fromkeys(base.RoundInfo._fields) | fields)
  rounds = np.array([len(record['fidelity']) for record in records])
  rewards = np.asarray(rewards_lib.Tradeoff(weight)(info), np.float64)
  sums = np.add.reduceat(rewards, np.cumsum(rounds) - rounds)
  mean = float(sums.sum() / rounds.sum())
  return mean, (sums - mean * rounds) / rounds.sum()


def _with_rewards(config: Any) -> ml_collections.ConfigDict:
  """Returns the config with a copy of each bandit per weight."""
  bandits = tuple(
    {
      'bandit': bandit,
      'label': str(bandit),
      'reward': f'tradeoff(weight={weight})',
      'columns': {'weight': weight},
    }
    for weight in config.weights
    for bandit in config.bandits
  )
  return ml_collections.ConfigDict({**config, 'bandits': bandits})


def _check(setup: compare.Setup) -> None:
  """Raises `ValueError` for arms whose fidelity is not known."""
  for method in setup.methods:
    for arm in method.arms:
      if texts.is_lossy(arm):
        raise ValueError(
          f'{method.location}: {arm} is lossy by its verifier and has no goal, '
          "so that its fidelity is unknown; use 'small:5~lossy(0.5)'."
        )
