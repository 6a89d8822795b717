"""Optimism that forgets: UCB1 on the latest rewards of the arms.

For arms whose means change. MetaSD (Kim et al. 2026), Algorithms 6 and 8, in
the forms of Garivier and Moulines (2011): means, radii and the logarithm all
count alike. As printed, discounted sums are divided by whole counts, so that
every mean shrinks to 0.
"""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components
from specjax.bandits import counts
from specjax.bandits import upper_confidence


class Discounted(counts.Counts):
  """Holds counts in which a round weighs less with age; pulls are float32.

  Both sums are bounded, so that the whole part of the rewards is not kept
  apart.
  """

  __slots__ = ()

  @property
  def divisors(self) -> jax.Array:
    """Pulls of each arm, `[A]`, often below 1; 1 where it has none."""
    return jnp.where(self.pulls > 0, self.pulls, 1)


class Window(NamedTuple):
  """Holds the last rounds, the oldest first."""

  arms: jax.Array  # [window] int32, -1 where there was no round
  rewards: jax.Array  # [window] float32


@components.component
class DiscountedUCB(upper_confidence.UCB1):
  """Selects by UCB1 on discounted counts (MetaSD, Algorithm 6).

  Attributes:
    beta: see `UCB1`.
    discount: factor in (0, 1] by which a round counts less for each later one;
      1 is `UCB1`.
  """

  beta: float = 0.01
  discount: float = 0.95

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('discount', self.discount, 1e-6, 1)

  def init(self) -> Discounted:
    """Returns counts without a pull."""
    return Discounted(*[jnp.zeros(self.num_arms, jnp.float32)] * 2)

  def add(
    self, state: counts.Counts, is_pulled: jax.Array, rewards: jax.Array
  ) -> Discounted:
    """Returns discounted counts with one more pull of some arms."""
    rewards = jnp.where(is_pulled, rewards, 0).astype(jnp.float32)
    return Discounted(
      self.discount * state.pulls + is_pulled.astype(jnp.float32),
      self.discount * state.fraction + rewards,
    )


@components.component
class SlidingWindowUCB(base.Bandit):
  """Selects by UCB1 on the last rounds only (MetaSD, Algorithm 8).

  An arm that was not selected in any of them is selected next.

  Attributes:
    beta: see `UCB1`.
    window: number of rounds that count, at least one for each arm.
  """

  beta: float = 0.01
  window: int = components.static(default=32)

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('beta', self.beta, 0)
    checks.check_integers('window', self.window, self.num_arms)

  def init(self) -> Window:
    """Returns a window without a round."""
    return Window(
      jnp.full(self.window, -1, jnp.int32), jnp.zeros(self.window, jnp.float32)
    )

  def select(self, key: jax.Array, state: Window) -> jax.Array:
    """Returns the arm of the largest index, by the rounds of the window."""
    # Counted anew each round: running sums would drift.
    is_pulled = state.arms[:, None] == jnp.arange(self.num_arms)[None]
    rewards = jnp.where(is_pulled, state.rewards[:, None], 0)
    pulls = is_pulled.sum(0, dtype=jnp.int32)
    rule = upper_confidence.UCB1(self.num_arms, self.beta)
    return rule.select(key, counts.Counts(pulls, rewards.sum(0)))

  def update(
    self, state: Window, arm: jax.Array, reward: jax.Array, /, **extra: Any
  ) -> Window:
    """Appends a round."""
    del extra
    return _append(state, *map(jnp.atleast_1d, (arm, reward)))

  def update_all(self, state: Window, rewards: jax.Array) -> Window:
    """Appends a round with each arm."""
    return _append(state, jnp.arange(self.num_arms), rewards)


def _append(window: Window, arms: jax.Array, rewards: jax.Array) -> Window:
  """Appends `[N]` rounds; as many old ones are forgotten."""
  num = arms.shape[0]
  return Window(
    jnp.append(window.arms[num:], arms.astype(jnp.int32)),
    jnp.append(window.rewards[num:], rewards.astype(jnp.float32)),
  )
