"""Halving: every arm a few times, the better half again, then one for ever.

MetaSD (Kim et al. 2026), Algorithms 4 and 5, after Karnin, Koren and Somekh
(2013). As printed, Algorithm 5 keeps the worse half, and rounds the number of
halvings down, which leaves two of five arms.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry


class Halving(NamedTuple):
  """What the current phase has seen."""

  survivors: jax.Array  # [A] bool
  pulls: jax.Array  # [A] int32, in this phase
  rewards: jax.Array  # [A] float32, summed over those pulls
  phase: jax.Array  # [] int32


@registry.component
def sequential_halving(num_arms: int, *, period: int = 1) -> base.Bandit:
  """Builds sequential halving with phases of equally many pulls an arm.

  MetaSD's Algorithm 5, where a budget sets the pulls; its experiments name a
  period instead, of 1.

  Args:
    num_arms: `A`, at least 1.
    period: pulls of every survivor in each phase.
  """
  sizes = _sizes(num_arms)
  checks.check_range('period', period, 1)
  return _halving(sizes, [period] * (len(sizes) - 1))


@registry.component
def petc(num_arms: int, *, budget: int = 64) -> base.Bandit:
  """Builds pure exploration, then commitment (MetaSD, Algorithm 4).

  Sequential halving with a budget, spread evenly over its phases; with
  `c log(tokens)` of it, few rounds are lost to changing arms (Theorem 8).

  Args:
    num_arms: `A`, at least 1.
    budget: rounds to explore in, at most; enough for one pull of each arm in
      each of `ceil(log2(A))` phases.
  """
  sizes = _sizes(num_arms)
  halvings = len(sizes) - 1
  checks.check_range('budget', budget, num_arms * halvings)
  return _halving(sizes, [budget // (size * halvings) for size in sizes[:-1]])


def _sizes(num_arms):
  """How many arms survive, phase by phase: from all to one."""
  checks.check_range('num_arms', num_arms, 1)
  sizes = [num_arms]
  while sizes[-1] > 1:
    sizes.append(-(-sizes[-1] // 2))
  return sizes


def _halving(sizes: Sequence[int], pulls: Sequence[int]) -> base.Bandit:
  """Plays each survivor so often in each phase; the last phase has no end.

  An arm's pulls follow one another: a drafter reads what others have committed
  whenever it is played again.
  """
  num_arms = sizes[0]
  due = jnp.asarray([*pulls, np.iinfo(np.int32).max], jnp.int32)
  sizes_behind = jnp.asarray([*sizes[1:], 1], jnp.int32)

  def begin(survivors, phase):
    zeros = jnp.zeros(num_arms, jnp.float32)
    return Halving(survivors, zeros.astype(jnp.int32), zeros, phase)

  def waiting(state):
    return state.survivors & (state.pulls < due[state.phase])

  def add(state, played, rewards):
    rewards = jnp.where(played, rewards, 0).astype(jnp.float32)
    state = state._replace(
      pulls=state.pulls + played.astype(jnp.int32),
      rewards=state.rewards + rewards,
    )
    better = state.survivors & (_ranks(state) < sizes_behind[state.phase])
    following = begin(better, state.phase + 1)
    ended = ~waiting(state).any()
    return jax.tree.map(lambda *each: jnp.where(ended, *each), following, state)

  def update(state, arm, reward, /, **extra):
    del extra
    return add(state, jnp.arange(num_arms) == arm, reward)

  return base.Bandit(
    num_arms,
    init=lambda: begin(jnp.ones(num_arms, bool), jnp.int32(0)),
    select=lambda key, state: jnp.argmax(waiting(state)).astype(jnp.int32),
    update=update,
    # One pull of every survivor.
    update_all=lambda state, rewards: add(state, state.survivors, rewards),
  )


def _ranks(state):
  """Returns `[A]` how many survivors earned more, or as much and are lower."""
  earned = jnp.where(state.survivors, state.rewards, -jnp.inf)
  arms = jnp.arange(len(earned))
  more = earned[None] > earned[:, None]
  tied = (earned[None] == earned[:, None]) & (arms[None] < arms[:, None])
  return (more | tied).sum(1)
