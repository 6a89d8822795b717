"""MetaSD's bound of UCB1, its two regrets, and the lengths of texts."""

import itertools
import math

import jax
import numpy as np
import pytest

from experiments.banditspec import simulated_arms
from specjax import bandits
from specjax.theory import regret

ACCEPTANCES, LENGTH = (0.3, 0.5, 0.8), 4


def test_bound_of_pulls_has_the_factors_of_theorem_7():
  bound = regret.ucb1_pulls_bound
  slope = bound(0.25, 100 * math.e, 0.7) - bound(0.25, 100, 0.7)
  assert slope == pytest.approx(8 * 0.7**2 / 0.25**2)
  # At beta 1, the slope is that of Lemma 10, with a larger constant.
  slope = bound(0.5, math.e, 1.0) - bound(0.5, 1, 1.0)
  assert slope == pytest.approx(8 / 0.5**2)
  assert bound(0.5, 1, 1.0) == pytest.approx(1 + 4 / math.log(2.5) * 25 / 9)
  assert bound(0.5, 1, 1.0) > 1 + math.pi**2 / 3
  # The mean of four terms is as good as a gap that is twice as large.
  assert bound(0.2, 50, 0.8, 4) == pytest.approx(bound(0.4, 50, 0.8))


def test_bound_of_rounds_sums_the_pulls_of_suboptimal_arms():
  """Checks also that a random number of tokens has no higher bound."""
  bound = regret.ucb1_upper_bound
  gaps = 0.2, 0.5
  pulls = [regret.ucb1_pulls_bound(gap, 300, 0.9) for gap in gaps]
  assert bound([0.3, 0.8, 0.6], 300, 0.9) == pytest.approx(sum(pulls))
  assert bound([0.4, 0.4], 300, 0.9) == 0
  random = (bound([0.1, 0.6], 100, 1) + bound([0.1, 0.6], 500, 1)) / 2
  assert random < bound([0.1, 0.6], 300, 1)


def _runs(bandit, num_tokens, num_runs):
  arms = simulated_arms.truncated_geometric(ACCEPTANCES, LENGTH)
  means = np.asarray(arms.means(0), np.float64)
  runs = simulated_arms.simulate(
    jax.random.key(0), bandit, arms, num_tokens, num_runs
  )
  return runs, means


@pytest.mark.parametrize(
  ('bandit', 'is_bounded'),
  [
    (bandits.UCB1(3, beta=1.0), True),
    (bandits.UCB1(3, beta=0.6), True),
    (bandits.Uniform(3), False),
  ],
  ids=['1.0', '0.6', 'uniform'],
)
def test_pulls_of_suboptimal_arms_are_bounded(bandit, is_bounded):
  """Checks the bound of each arm; selections without learning exceed it."""
  num_tokens = 8000
  runs, means = _runs(bandit, num_tokens, 40)
  pulls, num_rounds = runs.pulls(num_tokens), runs.rounds(num_tokens)
  gaps = (means.max() - means[:2]) / LENGTH
  beta = bandit.beta if is_bounded else 0.6
  bounds = [
    regret.ucb1_pulls_bound(gap, num_rounds.mean(), beta) for gap in gaps
  ]
  assert (pulls.mean(0)[:2] < bounds).all() == is_bounded
  if is_bounded:
    rewards = (means - 1) / LENGTH
    limit = regret.ucb1_upper_bound(rewards, num_tokens, beta)
    assert 0 < runs.lost_rounds(num_tokens).mean() < limit


def _alternating(num_tokens):
  """Returns expected rounds and pulls of arms 0 and 2 in turns, exactly."""
  probs = {}
  for arm in (0, 2):
    a = ACCEPTANCES[arm]
    probs[arm] = [a**k * (1 - a) for k in range(LENGTH)] + [a**LENGTH]
  # Expected rounds and pulls by the tokens that are left and the next arm.
  table = {}
  for left in range(1, num_tokens + 1):
    for arm in (0, 2):
      pulls = np.array([arm == 0, arm == 2], float)
      for k, prob in enumerate(probs[arm]):
        if left - k - 1 > 0:
          pulls += prob * table[left - k - 1, 2 - arm]
      table[left, arm] = pulls
  fixed = {arm: np.zeros(num_tokens + 1) for arm in (0, 2)}
  for arm, left in itertools.product(fixed, range(1, num_tokens + 1)):
    later = [
      p * fixed[arm][max(0, left - k - 1)] for k, p in enumerate(probs[arm])
    ]
    fixed[arm][left] = 1 + sum(later)
  return table[num_tokens, 0], fixed[2][num_tokens]


@pytest.mark.parametrize('num_tokens', [1, 7, 60])
def test_regret_of_rounds_follows_from_that_of_rewards(num_tokens):
  """Checks Lemma 8 exactly; the printed factor 1 / L is wrong."""
  means = [sum(a**k for k in range(LENGTH + 1)) for a in ACCEPTANCES]
  pulls, best_rounds = _alternating(num_tokens)
  lost_rounds = pulls.sum() - best_rounds
  lost_rewards = pulls[0] * (means[2] - means[0]) / LENGTH
  low, high = regret.rounds_of_reward_regret(lost_rewards, means[2], LENGTH)
  assert low <= lost_rounds <= high
  assert high - low == pytest.approx(2 * LENGTH / means[2])
  if num_tokens == 60:
    assert LENGTH * lost_rewards > high  # Equation (19) as printed.


def test_lengths_are_those_of_a_markov_chain():
  """Enumerates all texts over two tokens that are equally likely to go on."""
  ends = np.array([0.1, 0.4])
  first, num = 0.25, 6
  texts = np.array(list(itertools.product((0, 1), repeat=num - 1)))
  probs = np.column_stack([np.full(len(texts), first), ends[texts]])
  actual = regret.length_distribution(probs)
  state, expected = np.full(2, (1 - first) / 2), [first]
  for _ in range(num - 1):
    expected.append(state @ ends)
    state = np.full(2, (state @ (1 - ends)) / 2)
  np.testing.assert_allclose(actual, expected)
  certain = regret.length_distribution([[0.0, 1.0, 0.5]])
  np.testing.assert_array_equal(certain, [0, 1, 0])


@pytest.mark.parametrize(
  ('call', 'message'),
  [
    (lambda: regret.ucb1_pulls_bound(0.0, 9, 1), 'gap must lie'),
    (lambda: regret.ucb1_pulls_bound(0.1, 0, 1), 'num_rounds must be >= 1'),
    (lambda: regret.ucb1_pulls_bound(0.1, 9, 0.5), r'beta must lie in \(0.5'),
    (lambda: regret.ucb1_upper_bound([0.1, 2], 9, 1), 'rewards must lie'),
    (lambda: regret.rounds_of_reward_regret(1, 6, 4), 'best_tokens must lie'),
    (lambda: regret.length_distribution([0.1]), 'end_probs must have'),
    (lambda: regret.length_distribution([[1.1]]), 'end_probs must lie'),
  ],
)
def test_bad_values_are_refused(call, message):
  with pytest.raises(ValueError, match=message):
    call()
