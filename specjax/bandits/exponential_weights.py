"""Exponential weights of what was earned by the arm that was played."""

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


def _estimating(num_arms, log_probs, loss):
  """Sums of `loss(reward)` over the chance of the arm that was played."""
  checks.check_range('num_arms', num_arms, 1)

  def init():
    return Sums(jnp.int32(0), jnp.zeros(num_arms, jnp.float32))

  def select(key, state):
    return draw(key, log_probs(state))

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
    return Sums(state.rounds + 1, beyond_best(total))

  return base.Bandit(num_arms, init, select, update, update_all)


def beyond_best(losses: jax.Array) -> jax.Array:
  """Returns losses over the least: small sums keep their digits."""
  return losses - losses.min()


def draw(key: jax.Array, log_probs: jax.Array) -> jax.Array:
  """Draws an arm. Noise is bounded: no arm below 1e-10 is ever drawn.

  Inverting one uniform would draw such an arm about once in 10^7 rounds, and
  dividing by its chance would end the run for it.
  """
  return jax.random.categorical(key, log_probs).astype(jnp.int32)
