"""The maximal coupling of one draft token with the target.

Leviathan et al. (2023); SpecTr (Sun et al. 2023), Algorithm 1. Notation:
SpecTr's p is `draft`, its q is `target`.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components
from specjax import sampling
from specjax.couplings import residuals


@components.component
class Maximal(base.Coupling):
  """Accepts the first active candidate with probability `min(1, target/draft)`.

  A rejected candidate is replaced by a sample of the residual, so the token has
  the target's distribution. Several candidates are allowed, but only the first
  active one is tested.
  """

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    num_draw = sampling.num_uniforms(target.shape[0])
    # The numbers are independent of each other; the others are needed only
    # where a candidate is replaced, so that a chain draws them once.
    accept_uniform = jax.random.uniform(key, (), jnp.float32)
    residual_uniforms = jax.random.uniform(key, (1 + num_draw,), jnp.float32)
    return residuals.accept(
      accept_uniform,
      residual_uniforms[1:],
      candidates,
      active,
      jnp.argmax(active),
      draft,
      target,
    )
