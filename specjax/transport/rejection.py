"""The residual of the target distribution after one draft is rejected."""

import jax
import jax.numpy as jnp


def reject(draft: jax.Array, target: jax.Array) -> jax.Array:
  """Returns the normalized residual.

  Args:
    draft: `[V]` distribution of the draft.
    target: `[V]` distribution that the draft was tested against: the target
      model's, or the residual of the test before.

  Returns:
    `[V]` `max(target - draft, 0)`, normalized. If that is zero everywhere, the
    draft is always accepted, and `target` itself is returned.
  """
  excess = jnp.maximum(target - draft, 0.0)
  mass = excess.sum()
  # Multiply by the reciprocal: XLA may or may not do so by itself, and the
  # result must not depend on that.
  scale = 1 / jnp.where(mass > 0, mass, 1.0)
  return jnp.where(mass > 0, excess * scale, target)
