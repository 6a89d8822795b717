"""Optimism: the arm whose mean could still be the largest."""

import math

import jax
import jax.numpy as jnp
from jax.scipy import special

from specjax import base
from specjax import bisection
from specjax import checks
from specjax import registry
from specjax.bandits import counts

# Halvings of [mean, 1]: float32 has no more digits there.
_BISECTIONS = 22


@registry.component
def ucb_spec(num_arms: int, *, delta: float = 0.5) -> base.Bandit:
  """Builds UCBSpec (Hou et al. 2025, Algorithms 4 and 8).

  The paper's `Y` in [1, L + 1], the tokens of a round, is `1 + L reward` here:
  its radius loses a factor `L`.

  Args:
    num_arms: `A`, at least 1.
    delta: confidence in (0, 1]; the paper's proof takes 1/2.
  """
  checks.check_range('delta', delta, 1e-12, 1)

  def select(key, state):
    del key
    return counts.best(state, ucb_spec_indices(state, delta))

  return counts.bandit(num_arms, select)


def ucb_spec_indices(state: counts.Counts, delta: float) -> jax.Array:
  """Returns `[A]` means plus radii."""
  pulls = state.divisors
  inside = math.log(len(pulls) / delta) + 2 * jnp.log(state.rounds)
  inside = 1 + 2 * (inside + jnp.log1p(pulls) / 2)
  return state.means + jnp.sqrt((1 + pulls) * inside) / (2 * pulls)


@registry.component
def ucb1(num_arms: int, *, beta: float = 1.0) -> base.Bandit:
  """Builds UCB1 (Auer, Cesa-Bianchi and Fischer 2002).

  With `beta`, it is MetaSD-UCB (Kim et al. 2026, Algorithm 2).

  Args:
    num_arms: `A`, at least 1.
    beta: scale of the radius `sqrt(2 log(rounds) / pulls)`; 0.01 in MetaSD's
      experiments.
  """
  checks.check_range('beta', beta, 0)

  def select(key, state):
    del key
    radii = jnp.sqrt(2 * jnp.log(state.rounds) / state.divisors)
    return counts.best(state, state.means + beta * radii)

  return counts.bandit(num_arms, select)


@registry.component
def kl_ucb(num_arms: int, *, c: float = 0.0) -> base.Bandit:
  """Builds KL-UCB (Garivier and Cappé 2011).

  Args:
    num_arms: `A`, at least 1.
    c: weight of `log(log(rounds))`; 3 in the proof, 0 is best in practice.
  """
  checks.check_range('c', c, 0)

  def select(key, state):
    del key
    return counts.best(state, kl_ucb_indices(state, c))

  return counts.bandit(num_arms, select)


def kl_ucb_indices(state: counts.Counts, c: float) -> jax.Array:
  """Returns `[A]`: the largest means that the pulls do not yet rule out."""
  log = jnp.log(state.rounds)
  budget = (log + c * jnp.log(jnp.maximum(log, 1))) / state.divisors
  mean = jnp.clip(state.means, 0, 1)  # A sum may round past its pulls.
  entropy = special.entr(mean) + special.entr(1 - mean)

  def is_possible(index):
    cross = special.xlogy(mean, index) + special.xlog1py(1 - mean, -index)
    return -entropy - cross <= budget

  return bisection.bisect(is_possible, mean, jnp.ones_like(mean), _BISECTIONS)[
    0
  ]
