"""Bandits that learn from the rewards of all arms: full feedback."""

import math
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import bisection
from specjax import checks
from specjax import components
from specjax.bandits import exponential_weights

# Halvings of an interval of at most 1/2, down to the steps of float32.
_HALVINGS = 24


class Losses(NamedTuple):
  """Holds what Hedge has learned."""

  losses: jax.Array  # [A] float32, summed, beyond those of the best arm
  gap: jax.Array  # [] float32, summed mixability gap: the cost of mixing


class Regrets(NamedTuple):
  """Holds what NormalHedge has learned."""

  # [A] float32, summed: the rewards of an arm beyond those of the drawn arms.
  regrets: jax.Array


@components.component
class FullFeedbackBandit(exponential_weights.RandomizedBandit):
  """Draws arms by probabilities, and needs the rewards of all arms."""

  needs_all_rewards = True

  def update(
    self,
    state: base.BanditState,
    arm: jax.Array,
    reward: jax.Array,
    /,
    *,
    rewards: jax.Array | None = None,
    **extra: Any,
  ) -> base.BanditState:
    """Returns what `update_all` does.

    Args:
      state: the state before the round.
      arm: unused.
      reward: unused.
      rewards: `[A]` floats in [0, 1], those of all arms.
      **extra: unused.

    Raises:
      ValueError: there are no rewards of all arms.
    """
    del arm, reward, extra
    if rewards is None:
      raise ValueError(
        f'{type(self).__name__} needs the rewards of all arms, got '
        'rewards=None: the round must keep all drafters current '
        "(make_round(..., feedback='full'))."
      )
    return self.update_all(state, rewards)


@components.component
class Hedge(FullFeedbackBandit):
  """Draws arms by exponential weights of the losses of all arms.

  Attributes:
    learning_rate: rate of the exponential weights, in [1e-6, 1e6]. None is
      AdaHedge (de Rooij et al. 2014): it follows the leader, the lowest arm
      among equals, until that costs something, and lowers the rate by what
      mixing has cost. So the first arm is the one to begin with.
    discount: factor in (0, 1] by which a round counts less for each later one;
      below 1, Hedge follows arms that change.
  """

  learning_rate: float | None = None
  discount: float = 1.0

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('discount', self.discount, 1e-6, 1)
    if self.learning_rate is not None:
      checks.check_range('learning_rate', self.learning_rate, 1e-6, 1e6)

  def init(self) -> Losses:
    """Returns losses of no round."""
    return Losses(jnp.zeros(self.num_arms, jnp.float32), jnp.float32(0))

  def rate(self, state: Losses) -> jax.Array:
    """Returns the learning rate, infinity as long as it follows the leader."""
    if self.learning_rate is not None:
      return jnp.asarray(self.learning_rate, jnp.float32)
    # A sum this small is rounding; it also keeps the division finite.
    positive = state.gap > 1e-6
    rate = math.log(self.num_arms) / jnp.where(positive, state.gap, 1)
    return jnp.where(positive, rate, jnp.inf)

  def log_probs(self, state: Losses) -> jax.Array:
    """Returns `[A]` log probabilities of the next arm."""
    return _log_weights(self.rate(state), state.losses)

  def update_all(self, state: Losses, rewards: jax.Array) -> Losses:
    """Adds the losses of all arms, and what mixing has cost."""
    losses = 1 - jnp.asarray(rewards, jnp.float32)
    gap = _mixability_gap(self.rate(state), state.losses, losses)
    total = exponential_weights.beyond_best(state.losses + losses)
    return Losses(self.discount * total, self.discount * (state.gap + gap))


@components.component
class NormalHedge(FullFeedbackBandit):
  """Draws arms by NormalHedge (Chaudhuri, Freund and Hsu 2009).

  It has no learning rate. An arm with less reward than the drawn arms is not
  drawn at all; before any has more, all have the same probability.
  """

  def init(self) -> Regrets:
    """Returns regrets of no round."""
    return Regrets(jnp.zeros(self.num_arms, jnp.float32))

  def log_probs(self, state: Regrets) -> jax.Array:
    """Returns `[A]` log probabilities: the slope of `exp(regret**2 / 2c)`.

    The mean of these exponentials over the arms is e, which sets `c`.

    Args:
      state: the regrets so far.
    """
    positive = jnp.maximum(state.regrets, 0)
    largest = positive.max()
    share = positive / jnp.where(largest > 0, largest, 1)
    squares = share**2

    # The largest arm reaches this mean without the others at the lower bound;
    # at the upper bound, even equal arms do not exceed it. An exponential that
    # overflows to infinity exceeds it as well.
    low, high = bisection.bisect(
      lambda scale: jnp.exp(squares / (2 * scale)).mean() > math.e,
      jnp.float32(0.5 / (1 + math.log(self.num_arms))),
      jnp.float32(0.5),
      _HALVINGS,
    )
    logits = jnp.log(share) + squares / (low + high)
    uniform = jnp.zeros_like(share)
    return jax.nn.log_softmax(jnp.where(largest > 0, logits, uniform))

  def update_all(self, state: Regrets, rewards: jax.Array) -> Regrets:
    """Adds the rewards of all arms, less their mean under `log_probs`."""
    rewards = jnp.asarray(rewards, jnp.float32)
    expected = (jnp.exp(self.log_probs(state)) * rewards).sum()
    return Regrets(state.regrets + rewards - expected)


def _log_weights(rate: jax.Array, losses: jax.Array) -> jax.Array:
  """Returns `[A]` normalized; an infinite rate has all on the lowest leader."""
  losses = losses - losses.min()
  finite = jnp.where(jnp.isinf(rate), 1, rate)
  leader = jnp.where(
    jnp.arange(len(losses)) == jnp.argmin(losses), 0.0, -jnp.inf
  )
  logits = jnp.where(jnp.isinf(rate), leader, -finite * losses)
  return jax.nn.log_softmax(logits)


def _mixability_gap(
  rate: jax.Array, past: jax.Array, losses: jax.Array
) -> jax.Array:
  """Returns how far the mean of losses exceeds their mix loss; at least 0."""
  log_weights = _log_weights(rate, past)
  mean = (jnp.exp(log_weights) * losses).sum()
  above = losses - mean
  # Near 0 the first order cancels inside the sum, not after the logarithm.
  small = jnp.minimum(rate, 1)
  growth = (jnp.exp(log_weights) * jnp.expm1(-small * above)).sum()
  large = jnp.where(jnp.isinf(rate), 1, rate)
  log_mix = jax.scipy.special.logsumexp(log_weights - large * above)
  gap = jnp.where(rate < 1, jnp.log1p(growth) / small, log_mix / large)
  leader = mean - ((past + losses).min() - past.min())
  return jnp.maximum(jnp.where(jnp.isinf(rate), leader, gap), 0)
