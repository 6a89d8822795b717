"""A bandit over rules: lossless, lossy and cascades as arms of one drafter.

The reward weighs emitted tokens against fidelity (the mean of 1 - TV between
what is sampled and the target): no threshold sets how much a token may cost,
but a weight. Each row of a batch learns on its own.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.cascades import frontier
from experiments.cascades import texts
from experiments.common import compare
from experiments.common import components
from experiments.common import plots
from experiments.common import runner
from experiments.common import ways as ways_lib
from specjax import base
from specjax import checks
from specjax import metrics
from specjax import rewards as rewards_lib

MAY_CHANGE = (*frontier.MAY_CHANGE, 'weights')
# Of each round, what rewards are computed from.
_FIELDS = ('num_emitted', 'fidelity')


def run(config, workdir):
  """Returns a row for each weight and way: arms alone, and bandits over them.

  A bandit learns from the reward of its weight. Arms alone learn nothing, and
  are played once for all weights.
  """
  score = texts.metric(config)
  config = _with_rewards(config)
  made = compare.plan(config)
  _check(made)
  decoded = frontier.measure(config, workdir, made, fields=_FIELDS)
  depth = max(_depth(config, made, way) for way in made.ways)
  points = [
    frontier.point(each, made.family, score, config) for each in decoded
  ]
  return [
    row
    for prompts in made.sets
    for weight in config.weights
    for row in _rows(
      [pair for pair in zip(decoded, points) if pair[0].prompts is prompts],
      weight,
      depth,
    )
  ]


def rewards(
  records: Sequence[runner.Record], weight: float, depth: int
) -> tuple[np.ndarray, np.ndarray]:
  """Returns `[P]` sums of rewards over the rounds of each prompt, and rounds.

  Args:
    records: of prompts, with `num_emitted` and `fidelity` of each round.
    weight: of the fidelity.
    depth: that of the deepest of all arms.
  """
  fields = {
    name: np.concatenate([r[name] for r in records]) for name in _FIELDS
  }
  num = len(fields['fidelity'])
  info = base.RoundInfo(*[np.zeros(num)] * len(base.RoundInfo._fields))
  info = info._replace(tokens=np.zeros((num, depth + 1)), **fields)
  each = np.asarray(rewards_lib.tradeoff(weight)(info), np.float64)
  rounds = np.array([len(record['fidelity']) for record in records])
  return np.add.reduceat(each, np.cumsum(rounds) - rounds), rounds


def figures(rows):
  """Draws what choosing is worth, and quality against target calls."""
  named = [row | {'weight': f'weight {row["weight"]}'} for row in rows]
  return {
    'over_best': plots.bars(
      named,
      'weight',
      'over_best',
      'way',
      error='over_best_error',
      ylabel='reward of a round, less that of the best arm',
    ),
    'target_nats': plots.lines(
      named,
      'target_calls',
      'target_nats',
      'way',
      panel='weight',
      error='target_nats_error',
      xlabel='target calls for each token',
      ylabel='nats a token, by the target',
    ),
  }


def _rows(pairs, weight, depth):
  """Rows of one weight, on one set of prompts.

  `over_best` is the mean reward of a round less that of the arm for which it is
  the highest, with the standard error of the difference on the same prompts.
  """
  pairs = [
    (each, row)
    for each, row in pairs
    if each.way.columns.get('weight', weight) == weight
  ]
  sums = {
    each.way.label: rewards(each.records, weight, depth) for each, _ in pairs
  }
  alone = [each.way.label for each, _ in pairs if len(each.way.arms) == 1]
  best = max(alone, key=lambda label: metrics.ratio(*sums[label])[0])
  for each, row in pairs:
    own = sums[each.way.label]
    reward, error = metrics.ratio(*own)
    gaps = _linearised(*own) - _linearised(*sums[best])
    gap, gap_error = metrics.ratio(gaps, np.ones(len(gaps)))
    fidelity = [sum(record['fidelity']) for record in each.records]
    fidelity, fidelity_error = metrics.ratio(fidelity, own[1])
    pulls = np.sum([record['pulls'] for record in each.records], axis=0)
    yield {
      'weight': weight,
      **row,
      'reward': reward,
      'reward_error': error,
      'best_arm': best,
      'over_best': gap,
      'over_best_error': gap_error,
      'fidelity': fidelity,
      'fidelity_error': fidelity_error,
      'pulls': ' '.join(map(str, pulls)),
    }


def _linearised(sums, rounds):
  """`[P]` each prompt's value of the mean `sums / rounds`, linearised."""
  mean = metrics.ratio(sums, rounds)[0]
  return mean + (sums - mean * rounds) / rounds.mean()


def _with_rewards(config: Any) -> Any:
  """The config, with a bandit for each weight."""
  if not config.weights:
    raise ValueError('weights must hold at least one weight, got none.')
  checks.check_range('weights', config.weights, 0, 1)
  config = config.copy_and_resolve_references()
  config.bandits = tuple(
    {
      'bandit': bandit,
      'label': str(components.parse(bandit, f'bandits[{i}]')),
      'reward': {'name': 'tradeoff', 'weight': weight},
      'columns': {'weight': weight},
    }
    for weight in config.weights
    for i, bandit in enumerate(config.bandits)
  )
  return config


def _check(made):
  """Refuses arms that hide how far they are from the target."""
  for way in made.ways:
    for arm in way.arms:
      if arm.verifier and arm.verifier.name in texts.LOSSY:
        raise ValueError(
          f'{way.place}: {arm} is lossy by its verifier, without a goal, and '
          "so has no fidelity. 'small:5~lossy(0.5)' has one."
        )
  if not any(len(way.arms) == 1 for way in made.ways):
    raise ValueError('ways must hold at least one arm alone, got none.')


def _depth(config, made, way):
  """Of the deepest arm of a way."""
  player = ways_lib.build(way, made.family, config.max_length)
  arms = player.decoder.round_fn.arms
  return max(arm.drafter.topology.depth for arm in arms)
