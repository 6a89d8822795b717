"""The test of one candidate, and residuals, which several couplings share.

SpecTr (Sun et al. 2023), Algorithms 1 and 2. Notation: SpecTr's p is `draft`,
its q is `target`.
"""

import jax
import jax.numpy as jnp

from specjax import sampling
from specjax.transport import division

# Relative rounding error of a few operations.
_ROUNDING = 2.0**-21


def accept(
  accept_uniform: jax.Array,
  residual_uniforms: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  index: jax.Array,
  probs: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Couples the candidate at `index`, a sample of `probs`, with the target.

  Args:
    accept_uniform: `[]` in [0, 1).
    residual_uniforms: `[U]` in [0, 1). See `sampling.draw`.
    candidates: `[W]` int32 tokens.
    active: `[W]` bool; without any, the token is a sample of the target.
    index: `[]` int32, of an active candidate.
    probs: `[V]` float32.
    target: `[V]` float32.

  Returns:
    `(token, accepted)`, as a coupling does.
  """
  any_active = active.any()
  candidate = candidates[index]
  # Strict, and without a division: a token of target mass 0 never passes.
  keep = any_active & (accept_uniform * probs[candidate] < target[candidate])
  weights = jnp.where(any_active, residual(probs, target), target)
  token = jnp.where(keep, candidate, sampling.draw(residual_uniforms, weights))
  if candidates.shape[0] == 1:
    # A rejected candidate is replaced by another token, as its residual mass is
    # 0. Where the residual is 0 everywhere, it counts as a correction as well.
    return token, keep
  return token, (active & (candidates == token)).any()


def residual(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns `[V]` `max(target - draft, 0)`, unnormalized; target if all 0."""
  excess = jnp.maximum(target - draft, 0.0)
  return jnp.where(excess.sum() > 0, excess, target)


def divided_residual(
  draft: jax.Array, target: jax.Array, divided: division.Division
) -> jax.Array:
  """Returns `[V]` the residual of the tests of k-Seq; the target if all 0."""
  covered = jnp.minimum(draft, target / divided.factor)
  per_overlap = jnp.where(
    divided.overlap > 0, divided.acceptance / divided.overlap, 0.0
  )
  taken = covered * per_overlap
  # Where all mass is taken, a difference would be a rounding error.
  is_all = jnp.abs(target - taken) <= _ROUNDING * target
  return residual(jnp.where(is_all, target, taken), target)
