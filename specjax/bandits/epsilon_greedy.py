"""The best mean so far, and now and then any arm."""

import jax
import jax.numpy as jnp

from specjax import checks
from specjax import components
from specjax.bandits import counts


@components.component
class EpsilonGreedy(counts.CountsBandit):
  """Selects the arm with the highest mean, or sometimes any arm.

  Attributes:
    epsilon: probability of a round with a uniformly drawn arm, in [0, 1].
  """

  epsilon: float = 0.1

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('epsilon', self.epsilon, 0, 1)

  def indices(self, state: counts.Counts) -> jax.Array:
    """Returns `[A]` means."""
    return state.means

  def select(self, key: jax.Array, state: counts.Counts) -> jax.Array:
    """Returns a uniformly drawn arm with probability `epsilon`."""
    explore_key, arm_key = jax.random.split(key)
    arm = jax.random.randint(arm_key, (), 0, self.num_arms, jnp.int32)
    explores = jax.random.uniform(explore_key, (), jnp.float32) < self.epsilon
    return jnp.where(explores, arm, super().select(key, state))
