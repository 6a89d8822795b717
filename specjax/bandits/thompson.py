"""Thompson sampling: an arm is played as often as it is believed to be best."""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import registry
from specjax.bandits import counts


@registry.component
def thompson(num_arms: int) -> base.Bandit:
  """Builds Thompson sampling with a beta belief about each arm.

  From a uniform belief; a reward between 0 and 1 counts as that much of a
  success and the rest of a failure (after Agrawal and Goyal 2012, who toss a
  coin for it).

  Args:
    num_arms: `A`, at least 1.
  """

  def select(key, state):
    # A sum may round past its pulls.
    pulls = state.pulls.astype(jnp.float32)
    failures = jnp.maximum(pulls - state.rewards, 0)
    means = jax.random.beta(
      key, 1 + state.rewards, 1 + failures, dtype=jnp.float32
    )
    return jnp.argmax(means).astype(jnp.int32)

  return counts.bandit(num_arms, select)
