"""The best mean so far, and now and then any arm."""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import registry
from specjax.bandits import counts


@registry.component
def epsilon_greedy(num_arms: int, *, epsilon: float = 0.1) -> base.Bandit:
  """Builds the epsilon-greedy rule.

  Args:
    num_arms: `A`, at least 1.
    epsilon: chance of a round with a uniformly drawn arm, in [0, 1].
  """
  checks.check_range('epsilon', epsilon, 0, 1)

  def select(key, state):
    explore_key, arm_key = jax.random.split(key)
    arm = jax.random.randint(arm_key, (), 0, num_arms, jnp.int32)
    explore = jax.random.uniform(explore_key, (), jnp.float32) < epsilon
    return jnp.where(explore, arm, counts.best(state, state.means))

  return counts.bandit(num_arms, select)
