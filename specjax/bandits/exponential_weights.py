"""Exponential weights: arms drawn by their rewards or losses."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import registry


class Sums(NamedTuple):
  """Estimated sums over the completed rounds."""

  rounds: jax.Array  # [] int32
  losses: jax.Array  # [A] float32, beyond those of the best arm


class Losses(NamedTuple):
  """What Hedge knows."""

  losses: jax.Array  # [A] float32, summed, beyond those of the best arm
  gap: jax.Array  # [] float32, summed mixability gap: what mixing has cost


@registry.component
def exp3_spec(num_arms: int) -> base.Bandit:
  """Builds EXP3Spec (Hou et al. 2025, Algorithms 5 and 9).

  Anytime: the current learning rate multiplies the whole sum of losses. The
  paper's loss `(L + 1 - Y) / L` is `1 - reward` here.

  Args:
    num_arms: `A`, at least 1.
  """

  return _estimating(num_arms, exp3_spec_log_probs, lambda reward: 1 - reward)


def exp3_spec_log_probs(state: Sums) -> jax.Array:
  """Returns `[A]` log probabilities of the next arm."""
  num_arms = len(state.losses)
  round_ = (state.rounds + 1).astype(jnp.float32)
  rate = jnp.sqrt(math.log(num_arms) / (round_ * num_arms))
  return jax.nn.log_softmax(-rate * state.losses)


@registry.component
def exp3(num_arms: int, *, gamma: float = 0.1) -> base.Bandit:
  """Builds Exp3 (Auer, Cesa-Bianchi, Freund and Schapire 2002).

  With `gamma`, it is MetaSD-EXP3 (Kim et al. 2026, Algorithm 7).

  Args:
    num_arms: `A`, at least 1.
    gamma: share of rounds that are uniform, in (0, 1]; also the learning rate.
      0.4 in MetaSD's experiments.
  """
  checks.check_range('gamma', gamma, 1e-6, 1)

  def log_probs(state):
    weights = jax.nn.softmax(-gamma / num_arms * state.losses)
    return jnp.log((1 - gamma) * weights + gamma / num_arms)

  # The paper sums gains, which are losses of the other sign.
  return _estimating(num_arms, log_probs, lambda reward: -reward)


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
    return Losses(jnp.zeros(num_arms), jnp.float32(0))

  def select(key, state):
    return _draw(key, _log_weights(rate_of(state), state.losses))

  def update(state, arm, reward, /, *, rewards=None, **extra):
    del arm, reward, extra
    if rewards is None:
      raise ValueError(
        'hedge needs the rewards of all arms, got rewards=None: the round must '
        "keep all drafters current (make_round(..., catch_up='always'))."
      )
    return update_all(state, rewards)

  def update_all(state, rewards):
    losses = 1 - jnp.asarray(rewards, jnp.float32)
    gap = _mixability_gap(rate_of(state), state.losses, losses)
    total = _beyond_best(state.losses + losses)
    return Losses(discount * total, discount * (state.gap + gap))

  return base.Bandit(num_arms, init, select, update, update_all)


def _estimating(num_arms, log_probs, loss):
  """Sums of `loss(reward)` over the chance of the arm that was played."""
  checks.check_range('num_arms', num_arms, 1)

  def init():
    return Sums(jnp.int32(0), jnp.zeros(num_arms))

  def select(key, state):
    return _draw(key, log_probs(state))

  def update(state, arm, reward, /, **extra):
    del extra
    estimates = loss(reward) * jnp.exp(-log_probs(state))
    played = jnp.arange(num_arms) == arm
    return add(state, jnp.where(played, estimates, 0))

  def update_all(state, rewards):
    """Nothing is estimated, so that nothing is divided."""
    return add(state, loss(rewards))

  def add(state, losses):
    total = state.losses + jnp.asarray(losses, jnp.float32)
    return Sums(state.rounds + 1, _beyond_best(total))

  return base.Bandit(num_arms, init, select, update, update_all)


def _beyond_best(losses):
  """Only differences matter, and small sums keep their digits."""
  return losses - losses.min()


def _draw(key, log_probs):
  """Draws an arm. Noise is bounded: no arm below 1e-10 is ever drawn.

  Inverting one uniform would draw such an arm about once in 10^7 rounds, and
  dividing by its chance would end the run for it.
  """
  return jax.random.categorical(key, log_probs).astype(jnp.int32)


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
