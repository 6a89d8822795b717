"""The Pareto front of rejection and bias for over-acceptance.

Yin et al. (2024), Theorems 4 and 5, for one token. A draft `x` is accepted with
probability `accept[x]`, and a rejected draft is replaced by a sample from
another distribution. Notation: the paper's p is the draft, its q is the target.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import registry
from specjax.transport import inputs


class Point(NamedTuple):
  """The rejection probability and the bias of a rule."""

  rejection: jax.Array  # [] probability that the draft is rejected
  bias: jax.Array  # [] total variation between the output and the target


def over_acceptance(
  draft: jax.Array, target: jax.Array, epsilon: float | jax.Array
) -> jax.Array:
  """Returns `[V]` `min(1, (target + epsilon) / draft)`; 1 if `draft` is 0."""
  passes = (target + epsilon) >= draft
  return jnp.where(
    passes, 1.0, (target + epsilon) / jnp.where(passes, 1, draft)
  )


def best_replacement(
  accept: jax.Array, draft: jax.Array, target: jax.Array
) -> jax.Array:
  """Returns `[V]`, the replacement with the least bias.

  It is `max(target - accept * draft, 0)`, normalized, or `target` if that is
  zero everywhere.
  """
  residual = jnp.maximum(target - accept * draft, 0.0)
  mass = residual.sum()
  return jnp.where(mass > 0, residual / jnp.where(mass > 0, mass, 1), target)


def point(
  accept: jax.Array,
  draft: jax.Array,
  target: jax.Array,
  replacement: jax.Array | None = None,
) -> Point:
  """Returns the rejection probability and the bias of a rule.

  Args:
    accept: `[V]` probability that a draft with each token is accepted.
    draft: `[V]` distribution of the draft.
    target: `[V]` distribution of the target model.
    replacement: `[V]` distribution that replaces a rejected draft; by default,
      the result of `best_replacement`.
  """
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
  """Returns the rejection and bias of `verifiers.OverAcceptance`.

  Args:
    draft: `[V]` distribution of the draft.
    target: `[V]` distribution of the target model.
    epsilon: see `over_acceptance`.
    replacement: 'residual', 'target' or 'draft'.

  Raises:
    ValueError: the replacement is unknown.
  """
  replacements = {'residual': None, 'target': target, 'draft': draft}
  probs = registry.lookup(replacements, 'replacement', replacement)
  accept = over_acceptance(draft, target, epsilon)
  return point(accept, draft, target, probs)


def front(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns `rejection + bias` of every point of the front (Theorem 5).

  The sum is the total variation between draft and target. It is the same for
  all rules that accept with a probability of at least `min(1, target / draft)`
  and use the best replacement. So the front is a straight line, from the
  lossless rule to the rule that accepts every draft.
  """
  inputs.check(draft, target, 1)
  return 0.5 * jnp.abs(jnp.asarray(draft) - jnp.asarray(target)).sum()
