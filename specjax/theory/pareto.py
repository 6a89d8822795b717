"""Rejection against bias: the front of rules that accept more than they may.

Yin et al. (2024), Theorems 4 and 5, for one token. Notation: the paper's p is
the draft, its q is the target; `accept[x]` is the chance that draft `x` passes,
and a rejected draft is replaced by a sample of another distribution.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import registry
from specjax.transport import inputs


class Point(NamedTuple):
  """What a rule costs, and how far its output is from the target."""

  rejection: jax.Array  # chance that the draft is replaced
  bias: jax.Array  # total variation between output and target


def over_acceptance(
  draft: jax.Array, target: jax.Array, epsilon: float | jax.Array
) -> jax.Array:
  """Returns `[V]` `min(1, (target + epsilon) / draft)`; 1 if never drafted."""
  passes = (target + epsilon) >= draft
  return jnp.where(
    passes, 1.0, (target + epsilon) / jnp.where(passes, 1, draft)
  )


def best_replacement(
  accept: jax.Array, draft: jax.Array, target: jax.Array
) -> jax.Array:
  """Returns `[V]` a replacement of least bias, `[target - accept draft]_+`.

  It is the target where nothing is lacking.
  """
  lacking = jnp.maximum(target - accept * draft, 0.0)
  mass = lacking.sum()
  return jnp.where(mass > 0, lacking / jnp.where(mass > 0, mass, 1), target)


def point(
  accept: jax.Array,
  draft: jax.Array,
  target: jax.Array,
  replacement: jax.Array | None = None,
) -> Point:
  """Returns where a rule stands; with the best replacement by default."""
  inputs.check(draft, target, 1)
  if replacement is None:
    replacement = best_replacement(accept, draft, target)
  rejection = ((1 - accept) * draft).sum()
  output = accept * draft + rejection * replacement
  return Point(rejection, 0.5 * jnp.abs(output - target).sum())


def over_acceptance_point(
  draft: jax.Array,
  target: jax.Array,
  epsilon: float | jax.Array,
  replacement: str = 'residual',
) -> Point:
  """Returns where `verifiers.over_acceptance` of the same arguments stands.

  Raises:
    ValueError: the replacement is unknown.
  """
  known = {'residual': None, 'target': target, 'draft': draft}
  replaced = registry.lookup(known, 'replacement', replacement)
  accept = over_acceptance(draft, target, epsilon)
  return point(accept, draft, target, replaced)


def front(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns `rejection + bias` of every point of the front (Theorem 5).

  It is the total variation between draft and target, for all rules that accept
  at least `min(1, target / draft)`: a straight line from the lossless rule to
  the one that keeps every draft.
  """
  inputs.check(draft, target, 1)
  return 0.5 * jnp.abs(jnp.asarray(draft) - jnp.asarray(target)).sum()
