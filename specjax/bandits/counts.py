"""Pulls and rewards of each arm: the state of every bandit that averages."""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components


class Counts(NamedTuple):
  """Holds how often each arm was pulled, and the sum of its rewards.

  A float32 sum of rewards would stop growing at 2**24, so the sum is kept as an
  integer and a fraction.
  """

  pulls: jax.Array  # [A] int32
  fraction: jax.Array  # [A] float32; all of the sum if it is discounted
  integer: jax.Array | int = 0  # [A] int32

  @property
  def rounds(self) -> jax.Array:
    """Completed rounds, `[]` float32, 1 before the first."""
    return jnp.maximum(self.pulls.sum(), 1).astype(jnp.float32)

  @property
  def divisors(self) -> jax.Array:
    """Pulls of each arm, `[A]` float32, 1 where it has none."""
    return jnp.maximum(self.pulls, 1).astype(jnp.float32)

  @property
  def means(self) -> jax.Array:
    """Mean reward of each arm, `[A]`, 0 where it has none."""
    return self.rewards / self.divisors

  @property
  def rewards(self) -> jax.Array:
    """Sum of the rewards of each arm, `[A]`, rounded to float32."""
    return jnp.asarray(self.integer, jnp.float32) + self.fraction


@components.component
class CountsBandit(base.Bandit):
  """Averages the rewards of each arm.

  A subclass implements `indices`, whose largest entry is selected, or overrides
  `select`.
  """

  def init(self) -> Counts:
    """Returns counts without a pull."""
    zeros = jnp.zeros(self.num_arms, jnp.int32)
    return Counts(zeros, jnp.zeros(self.num_arms, jnp.float32), zeros)

  def indices(self, state: Counts) -> jax.Array:
    """Returns `[A]` float32 index of each arm; the largest is selected.

    "Index" is the bandits' term for an arm's score, such as an upper confidence
    bound. The index of an arm without a pull is ignored: such arms go first.

    Args:
      state: pulls and rewards so far.
    """
    raise NotImplementedError

  def select(self, key: jax.Array, state: Counts) -> jax.Array:
    """Returns the first arm without a pull, or that of the largest index.

    Ties go to the lowest arm.

    Args:
      key: unused.
      state: pulls and rewards so far.
    """
    del key
    indices = jnp.where(state.pulls == 0, jnp.inf, self.indices(state))
    return jnp.argmax(indices).astype(jnp.int32)

  def update(
    self, state: Counts, arm: jax.Array, reward: jax.Array, /, **extra: Any
  ) -> Counts:
    """Counts a pull of the arm and adds its reward."""
    del extra
    # A mask, since a scatter is slow under `vmap` over many runs.
    return self.add(state, jnp.arange(self.num_arms) == arm, reward)

  def update_all(self, state: Counts, rewards: jax.Array) -> Counts:
    """Counts a pull of every arm and adds all rewards."""
    return self.add(state, jnp.ones(self.num_arms, bool), rewards)

  def add(
    self, state: Counts, is_pulled: jax.Array, rewards: jax.Array
  ) -> Counts:
    """Returns the counts with one more pull of some arms.

    Args:
      state: the counts before.
      is_pulled: `[A]` bool, the arms.
      rewards: `[A]` or `[]` float, of which only those of these arms count.
    """
    rewards = jnp.where(is_pulled, rewards, 0).astype(jnp.float32)
    fraction = state.fraction + rewards
    integer = jnp.floor(fraction)
    return Counts(
      state.pulls + is_pulled.astype(jnp.int32),
      fraction - integer,
      state.integer + integer.astype(jnp.int32),
    )
