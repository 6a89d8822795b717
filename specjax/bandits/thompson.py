"""Thompson sampling: arms are selected as often as they may be the best."""

import jax
import jax.numpy as jnp

from specjax import components
from specjax.bandits import counts


@components.component
class Thompson(counts.CountsBandit):
  """Draws the mean of each arm from a beta posterior, and selects the largest.

  The prior is uniform. A reward between 0 and 1 counts as that share of a
  success, and the remainder as a failure (after Agrawal and Goyal 2012, who
  toss a coin for it).
  """

  def select(self, key: jax.Array, state: counts.Counts) -> jax.Array:
    """Returns the arm whose drawn mean is the largest."""
    # A sum may round past its pulls.
    pulls = state.pulls.astype(jnp.float32)
    failures = jnp.maximum(pulls - state.rewards, 0)
    means = jax.random.beta(
      key, 1 + state.rewards, 1 + failures, dtype=jnp.float32
    )
    return jnp.argmax(means).astype(jnp.int32)
