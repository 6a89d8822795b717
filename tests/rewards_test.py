"""Rewards, by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import rewards

# Rows: done, a correction alone, 1 of 2 accepted, 2 of 2, an expectation, no
# draft. The deepest arm has depth 4.
INFO = base.RoundInfo(
  arm=jnp.array([0, 0, 0, 0, 0, 1]),
  live=jnp.array([False, True, True, True, True, True]),
  tokens=jnp.zeros((6, 5), jnp.int32),
  num_emitted=jnp.array([0.0, 1.0, 2.0, 3.0, 2.5, 1.0]),
  num_accepted=jnp.array([0, 0, 1, 2, 1, 0]),
  # Nothing is measured by how much of a tree was valid.
  depth=jnp.array([1, 0, 1, 2, 1, 0]),
  tree_depth=jnp.array([2, 2, 2, 2, 2, 0]),
  acceptance=jnp.array([0.0, 0.25, 0.5, 1 + 1e-6, 0.75, 0.0]),
  raw_acceptance=jnp.array([0.0, 0.5, 1 + 1e-6, 0.125, 0.25, 0.0]),
  fidelity=jnp.array([1.0, 0.5, 1.0, 1 + 1e-6, 0.0, 1.0]),
  num_catch_up_tokens=jnp.array([0, 0, 3, 0, 0, 9]),
)


@pytest.mark.parametrize(
  ('reward', 'expected'),
  [
    (rewards.Emitted(), [0, 0, 1 / 4, 2 / 4, 1.5 / 4, 0]),
    (rewards.AcceptedFraction(), [0, 0, 1 / 2, 1, 1.5 / 2, 0]),
    (rewards.BlockDivergence(), [0, 0.5, 1, 0.125, 0.25, 0]),
    (
      rewards.Tradeoff(0.25),
      [0.25, 0.125, 0.4375, 0.625, 0.75 * 1.5 / 4, 0.25],
    ),
  ],
)
def test_rewards_by_hand(reward, expected):
  np.testing.assert_allclose(reward(INFO), expected, rtol=1e-6)


@pytest.mark.parametrize(
  ('costs', 'late', 'expected'),
  [
    # Most a second: 3 tokens in 2 against 1 in 1.
    ([2, 1], None, [0, 1 / 3, 2 / 3, 1, 2.5 / 3, 2 / 3]),
    # In other units.
    ([2e-3, 1e-3], None, [0, 1 / 3, 2 / 3, 1, 2.5 / 3, 2 / 3]),
    # The plain round is so cheap that it is the best: 1 in 1/4.
    ([2, 0.25], None, [0, 1 / 8, 1 / 4, 3 / 8, 2.5 / 8, 1]),
    # Three tokens at half a second each; nine at 0 seconds.
    ([2, 1], [0.5, 0], [0, 1 / 3, 2 / 3.5 / 1.5, 1, 2.5 / 3, 2 / 3]),
  ],
)
def test_throughput_by_hand(costs, late, expected):
  reward = rewards.Throughput(costs, [2, 0], late)
  np.testing.assert_allclose(reward(INFO), expected, rtol=1e-6)


def test_costs_are_data():
  """A sweep over tables of costs is one program, or one array."""
  num_traced = 0

  @jax.jit
  def evaluate(reward):
    nonlocal num_traced
    num_traced += 1
    return reward(INFO)

  tables = np.float32([[2, 1], [2, 0.25], [1, 1]])
  outputs = [evaluate(rewards.Throughput(costs, [2, 0])) for costs in tables]
  assert num_traced == 1
  reward_by_costs = jax.vmap(
    lambda costs: rewards.Throughput(costs, [2, 0])(INFO)
  )
  np.testing.assert_allclose(
    jax.jit(reward_by_costs)(tables), outputs, rtol=1e-6
  )


@pytest.mark.parametrize(
  ('options', 'words'),
  [
    ({'costs': [1.0]}, 'an entry for each arm, got 1, 2 and 1'),
    ({'catch_up_costs': [0.0]}, 'an entry for each arm, got 2, 2 and 1'),
    ({'costs': [1.0, 0.0]}, r'costs must be > 0 and finite, got \[1. 0.\]'),
    ({'costs': [1.0, -1.0]}, 'costs must be > 0'),
    ({'costs': 1.0}, 'costs must be a sequence, got 1.0'),
    ({'costs': [1.0, np.nan]}, 'costs must be > 0'),
    ({'costs': [1.0, np.inf]}, 'costs must be > 0 and finite'),
    ({'catch_up_costs': [0.0, -0.1]}, 'catch_up_costs must be >= 0'),
    ({'catch_up_costs': [0.0, np.nan]}, 'catch_up_costs must be >= 0'),
  ],
)
def test_bad_costs_are_refused(options, words):
  with pytest.raises(ValueError, match=words):
    rewards.Throughput(**{'costs': [1.0, 1.0], 'depths': [2, 0]} | options)
