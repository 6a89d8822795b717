"""Halving: a few pulls of every arm, again of the better half, then of one.

MetaSD (Kim et al. 2026), Algorithms 4 and 5, after Karnin, Koren and Somekh
(2013). As printed, Algorithm 5 keeps the worse half, and rounds the number of
halvings down, which leaves two of five arms.
"""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components


class Halving(NamedTuple):
  """Holds what the current phase has shown."""

  survivors: jax.Array  # [A] bool
  pulls: jax.Array  # [A] int32, in this phase
  rewards: jax.Array  # [A] float32, summed over those pulls
  phase: jax.Array  # [] int32


@components.component
class HalvingBandit(base.Bandit):
  """Pulls each survivor equally often in each phase, and keeps the better half.

  The last phase has one survivor and no end. The pulls of an arm follow one
  another, since a drafter reads what others have committed whenever it is
  selected again.
  """

  @property
  def sizes(self) -> np.ndarray:
    """How many arms survive in each phase: `[P]`, from all to one."""
    sizes = [self.num_arms]
    while sizes[-1] > 1:
      sizes.append(-(-sizes[-1] // 2))
    return np.array(sizes, np.int32)

  def pulls_by_phase(self) -> jax.Array:
    """Returns `[P - 1]` pulls of each survivor in each phase but the last."""
    raise NotImplementedError

  def init(self) -> Halving:
    """Returns the first phase, in which all arms survive."""
    return self._begin_phase(jnp.ones(self.num_arms, bool), jnp.int32(0))

  def select(self, key: jax.Array, state: Halving) -> jax.Array:
    """Returns the first survivor that has pulls left in its phase."""
    del key
    return jnp.argmax(self._is_waiting(state)).astype(jnp.int32)

  def update(
    self, state: Halving, arm: jax.Array, reward: jax.Array, /, **extra: Any
  ) -> Halving:
    """Counts a pull of the arm; the next phase begins after the last pull."""
    del extra
    return self._add(state, jnp.arange(self.num_arms) == arm, reward)

  def update_all(self, state: Halving, rewards: jax.Array) -> Halving:
    """Counts a pull of every survivor."""
    return self._add(state, state.survivors, rewards)

  def _begin_phase(self, survivors: jax.Array, phase: jax.Array) -> Halving:
    zeros = jnp.zeros(self.num_arms, jnp.float32)
    return Halving(survivors, zeros.astype(jnp.int32), zeros, phase)

  def _is_waiting(self, state: Halving) -> jax.Array:
    """Returns `[A]` bool, which survivors have pulls left in this phase."""
    endless = jnp.int32(np.iinfo(np.int32).max)
    pulls = jnp.append(self.pulls_by_phase(), endless)
    return state.survivors & (state.pulls < pulls[state.phase])

  def _add(
    self, state: Halving, is_pulled: jax.Array, rewards: jax.Array
  ) -> Halving:
    rewards = jnp.where(is_pulled, rewards, 0).astype(jnp.float32)
    state = state._replace(
      pulls=state.pulls + is_pulled.astype(jnp.int32),
      rewards=state.rewards + rewards,
    )
    next_sizes = jnp.asarray([*self.sizes[1:], 1], jnp.int32)
    better = state.survivors & (_ranks(state) < next_sizes[state.phase])
    following = self._begin_phase(better, state.phase + 1)
    is_over = ~self._is_waiting(state).any()
    return jax.tree.map(
      lambda *leaves: jnp.where(is_over, *leaves), following, state
    )


@components.component
class SequentialHalving(HalvingBandit):
  """Halves the arms after phases with the same number of pulls per arm.

  In MetaSD's Algorithm 5 a budget sets the pulls; its experiments name a period
  of 1 instead.

  Attributes:
    period: pulls of every survivor in each phase, at least 1.
  """

  period: int = 1

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_integers('period', self.period, 1)

  def pulls_by_phase(self) -> jax.Array:
    """Returns `[P - 1]` times the period."""
    return jnp.full(len(self.sizes) - 1, self.period, jnp.int32)


@components.component
class PETC(HalvingBandit):
  """Explores purely, then commits to one arm (MetaSD, Algorithm 4).

  This is sequential halving with a budget that is spread evenly over its
  phases. With a budget of `c log(tokens)`, few rounds are lost to changing arms
  (Theorem 8).

  Attributes:
    budget: the highest number of rounds to explore in; enough for one pull of
      each arm in each of `ceil(log2(A))` phases.
  """

  budget: int = 64

  def __post_init__(self) -> None:
    super().__post_init__()
    num_halvings = len(self.sizes) - 1
    checks.check_integers('budget', self.budget, self.num_arms * num_halvings)

  def pulls_by_phase(self) -> jax.Array:
    """Returns `[P - 1]` shares of the budget."""
    sizes = self.sizes[:-1]
    return jnp.asarray(self.budget, jnp.int32) // (sizes * len(sizes))


def _ranks(state: Halving) -> jax.Array:
  """Returns `[A]` how many survivors are better: ties go to the lower arm."""
  rewards = jnp.where(state.survivors, state.rewards, -jnp.inf)
  arms = jnp.arange(len(rewards))
  is_better = rewards[None] > rewards[:, None]
  is_tied = (rewards[None] == rewards[:, None]) & (arms[None] < arms[:, None])
  return (is_better | is_tied).sum(1)
