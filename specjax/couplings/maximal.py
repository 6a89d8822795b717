"""The maximal coupling of one draft token with the target.

Leviathan et al. (2023); SpecTr (Sun et al. 2023), Algorithm 1. Notation:
SpecTr's p is `draft`, its q is `target`.
"""

import jax
import jax.numpy as jnp

from specjax import sampling


def maximal(key, candidates, active, draft, target):
  """Accepts the first active candidate with probability `min(1, target/draft)`.

  A rejected candidate is replaced by a sample of the residual, so the token has
  the law `target`. Several candidates are allowed, but only one is tried.

  Args:
    key: consumed.
    candidates: `[W]` int32 tokens, i.i.d. from `draft`.
    active: `[W]` bool, which of them stand here; without any, the token is a
      sample of the target.
    draft: `[V]` float32.
    target: `[V]` float32.

  Returns:
    `(token, accepted)`: `[]` int32, and whether it is an active candidate.
  """
  num_draw = sampling.num_uniforms(target.shape[0])
  # The first of these numbers is the same without the others, which only what
  # replaces a candidate needs.
  accept_uniform = jax.random.uniform(key)
  residual_uniforms = jax.random.uniform(key, (1 + num_draw,))[1:]
  return accept(
    accept_uniform,
    residual_uniforms,
    candidates,
    active,
    jnp.argmax(active),
    draft,
    target,
  )


def accept(
  accept_uniform, residual_uniforms, candidates, active, index, law, target
):
  """Couples the candidate at `index`, which has the law `law`, with the target.

  Args:
    accept_uniform: `[]` in [0, 1).
    residual_uniforms: `[U]` in [0, 1), as `sampling.draw` takes them.
    candidates: `[W]` int32 tokens.
    active: `[W]` bool; without any, the token is a sample of the target.
    index: `[]` int32, of an active candidate.
    law: `[V]` float32.
    target: `[V]` float32.

  Returns:
    `(token, accepted)`, as a coupling does.
  """
  any_active = active.any()
  candidate = candidates[index]
  # Strict, and without a division: a token of target mass 0 never passes.
  keep = any_active & (accept_uniform * law[candidate] < target[candidate])
  weights = jnp.where(any_active, residual(law, target), target)
  token = jnp.where(keep, candidate, sampling.draw(residual_uniforms, weights))
  if candidates.shape[0] == 1:
    return token, keep  # The residual has nothing of a candidate it replaces.
  return token, (active & (candidates == token)).any()


def residual(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns `[V]` `max(target - draft, 0)`, unnormalised; target if all 0."""
  excess = jnp.maximum(target - draft, 0.0)
  return jnp.where(excess.sum() > 0, excess, target)
