"""Optimism that forgets: UCB1 on the arms' rewards of late.

For arms whose means change. MetaSD (Kim et al. 2026), Algorithms 6 and 8, in
the forms of Garivier and Moulines (2011): means, radii and the logarithm all
count alike. As printed, discounted sums are divided by whole counts, so that
every mean shrinks to 0.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import registry
from specjax.bandits import counts
from specjax.bandits import upper_confidence


class Discounted(counts.Counts):
  """Counts in which a round weighs less with age; the pulls are float32.

  Both sums are bounded, so that none of the rewards is counted apart.
  """

  __slots__ = ()

  @property
  def divisors(self) -> jax.Array:
    """Pulls of each arm, `[A]`, often below 1; 1 where it has none."""
    return jnp.where(self.pulls > 0, self.pulls, 1)


class Window(NamedTuple):
  """The last rounds, the oldest first."""

  arms: jax.Array  # [window] int32, -1 where there was no round
  rewards: jax.Array  # [window] float32


@registry.component
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
  checks.check_range('discount', discount, 1e-6, 1)

  def add(state, played, rewards):
    rewards = jnp.where(played, rewards, 0).astype(jnp.float32)
    return Discounted(
      discount * state.pulls + played.astype(jnp.float32),
      discount * state.part + rewards,
    )

  def update(state, arm, reward, /, **extra):
    del extra
    return add(state, jnp.arange(num_arms) == arm, reward)

  return base.Bandit(
    num_arms,
    init=lambda: Discounted(*[jnp.zeros(num_arms, jnp.float32)] * 2),
    select=rule.select,
    update=update,
    update_all=lambda state, rewards: add(
      state, jnp.ones(num_arms, bool), rewards
    ),
  )


@registry.component
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
  checks.check_range('window', window, num_arms)

  def append(state, arms, rewards):
    """Adds rounds; as many old ones are forgotten."""
    num = arms.shape[0]
    return Window(
      jnp.append(state.arms[num:], arms.astype(jnp.int32)),
      jnp.append(state.rewards[num:], rewards.astype(jnp.float32)),
    )

  def update(state, arm, reward, /, **extra):
    del extra
    return append(state, *map(jnp.atleast_1d, (arm, reward)))

  return base.Bandit(
    num_arms,
    init=lambda: Window(
      jnp.full(window, -1, jnp.int32), jnp.zeros(window, jnp.float32)
    ),
    select=lambda key, state: rule.select(key, _seen(state, num_arms)),
    update=update,
    # As if every arm had been played once.
    update_all=lambda state, rewards: append(
      state, jnp.arange(num_arms), rewards
    ),
  )


def _seen(state, num_arms):
  """Counts of the window, anew each round: running sums would drift."""
  played = state.arms[:, None] == jnp.arange(num_arms)[None]
  rewards = jnp.where(played, state.rewards[:, None], 0)
  return counts.Counts(played.sum(0, dtype=jnp.int32), rewards.sum(0))
