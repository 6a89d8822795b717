"""Exponential weights of the rewards of the arm that was selected."""

import math
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components


class Sums(NamedTuple):
  """Holds estimated sums over the completed rounds."""

  rounds: jax.Array  # [] int32
  losses: jax.Array  # [A] float32, beyond those of the best arm


@components.component
class RandomizedBandit(base.Bandit):
  """Draws the arm from a distribution, which a subclass returns."""

  def log_probs(self, state: base.BanditState) -> jax.Array:
    """Returns `[A]` log probabilities of the next arm.

    Args:
      state: what the bandit has learned so far.
    """
    raise NotImplementedError

  def select(self, key: jax.Array, state: base.BanditState) -> jax.Array:
    """Returns a drawn arm; none with a probability below 1e-10 is ever drawn.

    Inverting one uniform would draw such an arm about once in 10^7 rounds, and
    dividing by its probability would ruin the run. Gumbel noise is bounded.

    Args:
      key: a random key of this round.
      state: what the bandit has learned so far.
    """
    return jax.random.categorical(key, self.log_probs(state)).astype(jnp.int32)


@components.component
class ImportanceWeightedBandit(RandomizedBandit):
  """Sums the losses of each arm, estimated from the arms that were selected.

  The loss of an arm that was selected is divided by its probability.
  """

  def init(self) -> Sums:
    """Returns sums over no round."""
    return Sums(jnp.int32(0), jnp.zeros(self.num_arms, jnp.float32))

  def loss(self, reward: jax.Array) -> jax.Array:
    """Returns the loss that stands for a reward, of the same shape.

    Args:
      reward: of one arm, or of all.
    """
    raise NotImplementedError

  def update(
    self, state: Sums, arm: jax.Array, reward: jax.Array, /, **extra: Any
  ) -> Sums:
    """Adds the estimated loss of the arm."""
    del extra
    estimates = self.loss(reward) * jnp.exp(-self.log_probs(state))
    is_selected = jnp.arange(self.num_arms) == arm
    return _add(state, jnp.where(is_selected, estimates, 0))

  def update_all(self, state: Sums, rewards: jax.Array) -> Sums:
    """Adds the losses of all arms; nothing is estimated or divided."""
    return _add(state, self.loss(rewards))


@components.component
class EXP3Spec(ImportanceWeightedBandit):
  """Draws arms by EXP3Spec (Hou et al. 2025, Algorithms 5 and 9).

  It is anytime: the current learning rate multiplies the whole sum of losses.
  The paper's loss `(L + 1 - Y) / L` is `1 - reward` here.
  """

  def loss(self, reward: jax.Array) -> jax.Array:
    """Returns one minus the reward."""
    return 1 - reward

  def log_probs(self, state: Sums) -> jax.Array:
    """Returns `[A]` log probabilities of the next arm."""
    round_ = (state.rounds + 1).astype(jnp.float32)
    rate = jnp.sqrt(math.log(self.num_arms) / (round_ * self.num_arms))
    return jax.nn.log_softmax(-rate * state.losses)


@components.component
class EXP3(ImportanceWeightedBandit):
  """Draws arms by Exp3 (Auer, Cesa-Bianchi, Freund and Schapire 2002).

  With `gamma`, it is MetaSD-EXP3 (Kim et al. 2026, Algorithm 7).

  Attributes:
    gamma: share of rounds that are uniform, in (0, 1]; also the learning rate.
      0.4 in MetaSD's experiments.
  """

  gamma: float = 0.1

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('gamma', self.gamma, 1e-6, 1)

  def loss(self, reward: jax.Array) -> jax.Array:
    """Returns the negative reward: the paper sums gains."""
    return -reward

  def log_probs(self, state: Sums) -> jax.Array:
    """Returns `[A]` log probabilities of the next arm."""
    weights = jax.nn.softmax(-self.gamma / self.num_arms * state.losses)
    uniform = self.gamma / self.num_arms
    return jnp.log((1 - self.gamma) * weights + uniform)


def beyond_best(losses: jax.Array) -> jax.Array:
  """Returns losses beyond the lowest, so that small sums keep their digits."""
  return losses - losses.min()


def _add(state: Sums, losses: jax.Array) -> Sums:
  """Adds a round."""
  total = state.losses + jnp.asarray(losses, jnp.float32)
  return Sums(state.rounds + 1, beyond_best(total))
