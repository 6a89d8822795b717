"""Orders the writes of a compiled loop after its reads."""

import jax
import jax.numpy as jnp


def after(value: jax.Array, computed: jax.Array) -> jax.Array:
  """Returns `value`, available to XLA only after `computed`.

  A round reads each KV cache and writes it once, at the end. XLA updates the
  buffer in place only if all reads come before the write; otherwise it copies
  the whole buffer in every round. If the position or the length of a write is
  known before the reads are done, the write must use the result of this.

  Args:
    value: `[B]` integers, such as the position of a write.
    computed: `[B, ...]` that depends on all reads: integers >= 0, such as
      tokens or their number, or floats. If one is negative or NaN, the result
      is undefined.
  """
  # XLA for CPUs drops an `optimization_barrier` before it decides on copies.
  # This adds zeros instead that XLA cannot predict.
  axes = tuple(range(1, computed.ndim))
  if jnp.issubdtype(computed.dtype, jnp.floating):
    zero = jnp.isnan(computed).any(axis=axes)
  else:
    zero = jnp.minimum(computed.min(axis=axes), 0)
  return value + zero.astype(value.dtype)
