"""Bandits that learn nothing: what the others have to beat."""

from typing import Any

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components


@components.component
class Schedule(base.Bandit):
  """Learns nothing from rewards; its state is the arm of the next round."""

  learns_from_rewards = False

  def init(self) -> base.BanditState:
    """Returns the first arm."""
    return jnp.int32(0)

  def select(self, key: jax.Array, state: base.BanditState) -> jax.Array:
    """Returns the arm that is the state."""
    del key
    return state

  def update(
    self,
    state: base.BanditState,
    arm: jax.Array,
    reward: jax.Array,
    /,
    **extra: Any,
  ) -> base.BanditState:
    """Returns the state as it is."""
    del arm, reward, extra
    return state


@components.component
class Fixed(Schedule):
  """Always selects the same arm, which is its state.

  So a router need not be a bandit: with a bandit per row, the `[B]` int32 arms
  that it chose for the prompts are the `bandit_state` of `Decoder.init`. Rounds
  that differ in `arm` only share a compiled program.

  Attributes:
    arm: the arm of the first state, in [0, A).
  """

  arm: int = 0

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_integers('arm', self.arm, 0, self.num_arms - 1)

  def init(self) -> jax.Array:
    """Returns the arm."""
    return jnp.asarray(self.arm, jnp.int32)


@components.component
class RoundRobin(Schedule):
  """Selects one arm after the other."""

  def update(
    self, state: jax.Array, arm: jax.Array, reward: jax.Array, /, **extra: Any
  ) -> jax.Array:
    """Returns the next arm."""
    del arm, reward, extra
    return (state + 1) % self.num_arms


@components.component
class Uniform(Schedule):
  """Draws every arm with the same probability."""

  def init(self) -> tuple[()]:
    """Returns the empty state."""
    return ()

  def select(self, key: jax.Array, state: tuple[()]) -> jax.Array:
    """Returns a uniformly drawn arm."""
    del state
    return jax.random.randint(key, (), 0, self.num_arms, jnp.int32)
