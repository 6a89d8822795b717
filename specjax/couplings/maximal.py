"""The maximal coupling of one draft token with the target.

Leviathan et al. (2023); SpecTr (Sun et al. 2023), Algorithm 1. Notation:
SpecTr's p is `draft`, its q is `target`.
"""

import jax
import jax.numpy as jnp

from specjax import sampling
from specjax.couplings import residuals


def maximal(
  key: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Accepts the first active candidate with probability `min(1, target/draft)`.

  A rejected candidate is replaced by a sample of the residual, so the token has
  the target's distribution. Several candidates are allowed, but only one is
  tried.

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
  # The numbers are independent of each other; the others are needed only where
  # a candidate is replaced, so that a chain draws them once.
  accept_uniform = jax.random.uniform(key, (), jnp.float32)
  residual_uniforms = jax.random.uniform(key, (1 + num_draw,), jnp.float32)[1:]
  return residuals.accept(
    accept_uniform,
    residual_uniforms,
    candidates,
    active,
    jnp.argmax(active),
    draft,
    target,
  )
