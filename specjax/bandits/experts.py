"""Bandits that learn from the rewards of all arms: full information."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import bisection
from specjax import checks
from specjax import registry
from specjax.bandits import exponential_weights

# Of an interval of at most a half, down to float32's own steps.
_HALVINGS = 24


class Losses(NamedTuple):
  """What Hedge knows."""

  losses: jax.Array  # [A] float32, summed, beyond those of the best arm
  gap: jax.Array  # [] float32, summed mixability gap: what mixing has cost


class Regrets(NamedTuple):
  """What NormalHedge knows."""

  regrets: jax.Array  # [A] float32, summed: an arm's rewards over those drawn


@registry.component
def hedge(
  num_arms: int,
  *,
  learning_rate: float | None = None,
  discount: float = 1.0,
) -> base.Bandit:
  """Builds Hedge, which learns from the rewards of all arms.

  Args:
    num_arms: `A`, at least 1.
    learning_rate: of the exponential weights. None is AdaHedge (de Rooij et
      al. 2014): it follows the leader, the lowest of equals, until that costs,
      and lowers the rate by what mixing has cost. So the first arm is the one
      to begin with.
    discount: what a round counts less for each that comes behind it, in (0, 1];
      below 1 it follows arms that change.
  """
  checks.check_range('num_arms', num_arms, 1)
  checks.check_range('discount', discount, 1e-6, 1)
  if learning_rate is not None:
    checks.check_range('learning_rate', learning_rate, 1e-6, 1e6)

  def rate_of(state):
    """Infinity as long as it follows the leader."""
    if learning_rate is not None:
      return jnp.float32(learning_rate)
    # A sum this small is rounding; it also keeps the division finite.
    positive = state.gap > 1e-6
    rate = math.log(num_arms) / jnp.where(positive, state.gap, 1)
    return jnp.where(positive, rate, jnp.inf)

  def init():
    return Losses(jnp.zeros(num_arms, jnp.float32), jnp.float32(0))

  def log_probs(state):
    return _log_weights(rate_of(state), state.losses)

  def update_all(state, rewards):
    losses = 1 - jnp.asarray(rewards, jnp.float32)
    gap = _mixability_gap(rate_of(state), state.losses, losses)
    total = exponential_weights.beyond_best(state.losses + losses)
    return Losses(discount * total, discount * (state.gap + gap))

  return _from_all_rewards('hedge', num_arms, init, log_probs, update_all)


@registry.component
def normal_hedge(num_arms: int) -> base.Bandit:
  """Builds NormalHedge (Chaudhuri, Freund and Hsu 2009), without a rate.

  It learns from the rewards of all arms, too. An arm that has earned less than
  what was drawn is not drawn at all; before any has earned more, all are alike.

  Args:
    num_arms: `A`, at least 1.
  """
  checks.check_range('num_arms', num_arms, 1)

  def init():
    return Regrets(jnp.zeros(num_arms, jnp.float32))

  def update_all(state, rewards):
    rewards = jnp.asarray(rewards, jnp.float32)
    expected = (jnp.exp(_normal_log_weights(state)) * rewards).sum()
    return Regrets(state.regrets + rewards - expected)

  return _from_all_rewards(
    'normal_hedge', num_arms, init, _normal_log_weights, update_all
  )


def _from_all_rewards(name, num_arms, init, log_probs, update_all):
  """A bandit that draws by probabilities, and asks for all rewards."""

  def select(key, state):
    return exponential_weights.draw(key, log_probs(state))

  def update(state, arm, reward, /, *, rewards=None, **extra):
    del arm, reward, extra
    if rewards is None:
      raise ValueError(
        f'{name} needs the rewards of all arms, got rewards=None: the round '
        "must keep all drafters current (make_round(..., catch_up='always'))."
      )
    return update_all(state, rewards)

  return base.Bandit(num_arms, init, select, update, update_all)


def _log_weights(rate, losses):
  """Normalised, `[A]`; of an infinite rate, all on the lowest leader."""
  losses = losses - losses.min()
  finite = jnp.where(jnp.isinf(rate), 1, rate)
  leader = jnp.where(
    jnp.arange(len(losses)) == jnp.argmin(losses), 0.0, -jnp.inf
  )
  logits = jnp.where(jnp.isinf(rate), leader, -finite * losses)
  return jax.nn.log_softmax(logits)


def _mixability_gap(rate, past, losses):
  """How far the weighted mean of losses exceeds their mix; at least 0."""
  log_weights = _log_weights(rate, past)
  mean = (jnp.exp(log_weights) * losses).sum()
  above = losses - mean
  # Near 0 the first order cancels inside the sum, not behind the logarithm.
  small = jnp.minimum(rate, 1)
  growth = (jnp.exp(log_weights) * jnp.expm1(-small * above)).sum()
  large = jnp.where(jnp.isinf(rate), 1, rate)
  log_mix = jax.scipy.special.logsumexp(log_weights - large * above)
  gap = jnp.where(rate < 1, jnp.log1p(growth) / small, log_mix / large)
  leader = mean - ((past + losses).min() - past.min())
  return jnp.maximum(jnp.where(jnp.isinf(rate), leader, gap), 0)


def _normal_log_weights(state):
  """Normalised: the slope of `exp(regret**2 / 2c)`, whose mean is e."""
  positive = jnp.maximum(state.regrets, 0)
  largest = positive.max()
  share = positive / jnp.where(largest > 0, largest, 1)
  squares = share**2

  # One arm has at least this mean alone; all have at most that. Infinity is too
  # much, as well.
  low, high = bisection.bisect(
    lambda scale: jnp.exp(squares / (2 * scale)).mean() > math.e,
    jnp.float32(0.5 / (1 + math.log(len(share)))),
    jnp.float32(0.5),
    _HALVINGS,
  )
  logits = jnp.log(share) + squares / (low + high)
  uniform = jnp.zeros_like(share)
  return jax.nn.log_softmax(jnp.where(largest > 0, logits, uniform))
