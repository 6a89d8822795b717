"""Orders the writes of a compiled loop after its reads."""

import jax
import jax.numpy as jnp


def after(value: jax.Array, computed: jax.Array) -> jax.Array:
  """Returns `value`, which XLA has only once it has computed `computed`.

  A round reads each KV cache and writes it once, at the end. XLA updates the
  buffer in place only if all reads come before the write; otherwise it copies
  the whole buffer in every round. Where the position or the length of a write
  is known before the reads are done, the write must take it from here.

  Args:
    value: `[B]` integers of each row, such as the position of a write.
    computed: `[B, ...]` of each row, computed from all that is to be read:
      numbers of tokens, tokens, or floats. With a NaN, the value is undefined.
  """
  # XLA for CPUs drops an `optimization_barrier` before it decides on copies, so
  # this is a sum with zeros that XLA cannot know.
  if jnp.issubdtype(computed.dtype, jnp.floating):
    never = jnp.isnan(computed)
  else:
    never = computed == jnp.iinfo(computed.dtype).min
  never = never.any(axis=tuple(range(1, computed.ndim)))
  return value + never.astype(value.dtype)
