"""Pulls and rewards of each arm: the state of every bandit that averages."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base


class Counts(NamedTuple):
  """What the arms have earned."""

  pulls: jax.Array  # [A] int32
  rewards: jax.Array  # [A] float32, summed over the pulls

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


def bandit(
  num_arms: int, select: Callable[[jax.Array, Counts], jax.Array]
) -> base.Bandit:
  """Builds a bandit that needs only counts.

  Args:
    num_arms: `A`, at least 1.
    select: `(key, counts) -> arm`.
  """
  base.check_range('num_arms', num_arms, 1)

  def init():
    return Counts(jnp.zeros(num_arms, jnp.int32), jnp.zeros(num_arms))

  def update(state, arm, reward, **extra):
    del extra
    # Not a scatter: over many runs at once, that is much slower.
    played = jnp.arange(num_arms) == arm
    return Counts(
      state.pulls + played,
      state.rewards + jnp.where(played, reward, 0).astype(jnp.float32),
    )

  return base.Bandit(init, select, update)


def best(counts: Counts, indices: jax.Array) -> jax.Array:
  """Returns the arm of the largest index; one without a pull goes first.

  Ties go to the lowest arm.
  """
  indices = jnp.where(counts.pulls == 0, jnp.inf, indices)
  return jnp.argmax(indices).astype(jnp.int32)
