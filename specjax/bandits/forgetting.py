"""Optimism that forgets: UCB1 on what the arms have earned of late.

For arms whose means change. MetaSD (Kim et al. 2024), Algorithms 6 and 8, in
the forms of Garivier and Moulines (2011): means, radii and the logarithm all
count alike. As printed, discounted sums are divided by whole counts, so that
every mean shrinks to 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax.bandits import counts
from specjax.bandits import upper_confidence


class Discounted(counts.Counts):
  """Counts in which a round weighs less with age; the pulls are float32."""

  __slots__ = ()

  @property
  def divisors(self) -> jax.Array:
    """Pulls of each arm, `[A]`, often below 1; 1 where it has none."""
    return jnp.where(self.pulls > 0, self.pulls, 1)


class Window(NamedTuple):
  """The last rounds, the oldest first."""

  arms: jax.Array  # [window] int32, -1 where there was no round
  rewards: jax.Array  # [window] float32


def discounted_ucb(
  num_arms: int, *, beta: float = 0.01, discount: float = 0.95
) -> base.Bandit:
  """Builds UCB1 on discounted counts (MetaSD, Algorithm 6).

  Args:
    num_arms: `A`, at least 1.
    beta: as in `ucb1`.
    discount: what a round counts less for each that comes behind it, in (0, 1];
      1 is `ucb1`.
  """
  rule = upper_confidence.ucb1(num_arms, beta=beta)
  base.check_range('discount', discount, 1e-6, 1)

  def update(state, arm, reward, **extra):
    del extra
    faded = counts.Counts(discount * state.pulls, discount * state.rewards)
    return Discounted(*rule.update(faded, arm, reward))

  return base.Bandit(
    init=lambda: Discounted(jnp.zeros(num_arms), jnp.zeros(num_arms)),
    select=rule.select,
    update=update,
  )


def sliding_window_ucb(
  num_arms: int, *, beta: float = 0.01, window: int = 32
) -> base.Bandit:
  """Builds UCB1 on the last rounds alone (MetaSD, Algorithm 8).

  An arm that none of them has played is played next.

  Args:
    num_arms: `A`, at least 1.
    beta: as in `ucb1`.
    window: how many rounds count, at least one for each arm.
  """
  rule = upper_confidence.ucb1(num_arms, beta=beta)
  base.check_range('window', window, num_arms)

  def update(state, arm, reward, **extra):
    del extra
    return Window(
      jnp.append(state.arms[1:], jnp.int32(arm)),
      jnp.append(state.rewards[1:], jnp.float32(reward)),
    )

  return base.Bandit(
    init=lambda: Window(jnp.full(window, -1, jnp.int32), jnp.zeros(window)),
    select=lambda key, state: rule.select(key, _seen(state, num_arms)),
    update=update,
  )


def _seen(state, num_arms):
  """Counts of the window, anew each round: running sums would drift."""
  played = state.arms[:, None] == jnp.arange(num_arms)
  rewards = jnp.where(played, state.rewards[:, None], 0)
  return counts.Counts(played.sum(0, dtype=jnp.int32), rewards.sum(0))
