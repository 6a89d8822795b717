"""What the rejection of one draft leaves of the target."""

import jax
import jax.numpy as jnp


def reject(draft: jax.Array, left: jax.Array) -> jax.Array:
  """Returns the normalised residual of `left`.

  Args:
    draft: `[V]` distribution of the draft.
    left: `[V]` distribution that it was tested against.

  Returns:
    `[V]` `max(left - draft, 0)`, normalised, or `left` itself where nothing is
    over and the draft was accepted for sure.
  """
  excess = jnp.maximum(left - draft, 0.0)
  mass = excess.sum()
  # A factor, as XLA may or may not turn a division into a multiplication.
  scale = 1 / jnp.where(mass > 0, mass, 1.0)
  return jnp.where(mass > 0, excess * scale, left)
