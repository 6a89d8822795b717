"""Pulls and rewards of each arm: the state of every bandit that averages."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks


class Counts(NamedTuple):
  """The rewards of the arms.

  A float32 sum of rewards would stop growing at 2**24: it is kept in two.
  """

  pulls: jax.Array  # [A] int32
  part: jax.Array  # [A] float32, rewards of all pulls, less `whole`
  whole: jax.Array | int = 0  # [A] int32

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
    return jnp.asarray(self.whole, jnp.float32) + self.part


def bandit(
  num_arms: int, select: Callable[[jax.Array, Counts], jax.Array]
) -> base.Bandit:
  """Builds a bandit that needs only counts.

  Args:
    num_arms: `A`, at least 1.
    select: `(key, counts) -> arm`.
  """
  checks.check_range('num_arms', num_arms, 1)

  def init():
    zeros = jnp.zeros(num_arms, jnp.int32)
    return Counts(zeros, jnp.zeros(num_arms, jnp.float32), zeros)

  def add(state, played, rewards):
    total = state.part + jnp.where(played, rewards, 0).astype(jnp.float32)
    whole = jnp.floor(total)
    return Counts(
      state.pulls + played.astype(jnp.int32),
      total - whole,
      state.whole + whole.astype(jnp.int32),
    )

  def update(state, arm, reward, /, **extra):
    del extra
    # Not a scatter: over many runs at once, that is much slower.
    return add(state, jnp.arange(num_arms) == arm, reward)

  return base.Bandit(
    num_arms,
    init,
    select,
    update,
    update_all=lambda state, rewards: add(
      state, jnp.ones(num_arms, bool), rewards
    ),
  )


def best(counts: Counts, indices: jax.Array) -> jax.Array:
  """Returns the arm of the largest index; one without a pull goes first.

  Ties go to the lowest arm.
  """
  indices = jnp.where(counts.pulls == 0, jnp.inf, indices)
  return jnp.argmax(indices).astype(jnp.int32)
