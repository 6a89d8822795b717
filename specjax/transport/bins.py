"""Sums of values by their bins, and what bins have for each value.

These are a scatter and a gather, which go one by one on a TPU. There, they are
products with matrices of ones instead, which read each value once.
"""

import jax
import jax.numpy as jnp
import numpy as np

# Bins are numbered by two digits, each of so many bits.
_BITS = 4
NUM_BINS = 1 << 2 * _BITS


def look_up(table: jax.Array, index: jax.Array) -> jax.Array:
  """Returns `[V]` what a table `[M]` of at most `NUM_BINS` has at `index`."""
  return jax.lax.platform_dependent(
    table,
    index,
    tpu=look_up_by_products,
    default=lambda table, index: table[index],
  )


def look_up_by_products(table: jax.Array, index: jax.Array) -> jax.Array:
  """Returns the same, as on a TPU."""
  high, low = _digits(index)
  square = jnp.pad(table, (0, NUM_BINS - table.size)).reshape(1 << _BITS, -1)
  rows = jnp.matmul(high, square, precision='highest')
  return (rows * low).sum(axis=1)


def sums(values: jax.Array, index: jax.Array) -> jax.Array:
  """Returns `[NUM_BINS, C]` sums of `values` `[V, C]` in [0, 1] by their bins.

  Args:
    values: the sum of each column is at most 1.
    index: `[V]` int32.
  """
  return jax.lax.platform_dependent(
    values, index, tpu=sums_by_products, default=sums_of_integers
  )


def sums_by_products(values: jax.Array, index: jax.Array) -> jax.Array:
  """Returns the same, as on a TPU."""
  high, low = _digits(index)
  columns = [
    jnp.matmul((column[:, None] * high).T, low, precision='highest')
    for column in values.T
  ]
  return jnp.stack([each.reshape(NUM_BINS) for each in columns], axis=1)


def sums_of_integers(values: jax.Array, index: jax.Array) -> jax.Array:
  """Returns the same, as elsewhere.

  Additions of thousands of small floats to one lose digits, and their order,
  which may vary on GPU, would show. Each value is rounded to 40 bits or more
  behind the point, in two integers whose sums stay below `2**31`.
  """
  num = values.shape[1]
  coarse, fine = 2.0**30, 2.0 ** (30 - len(values).bit_length())
  parts = coarse * values
  whole = jnp.floor(parts)
  rest = jnp.round(fine * (parts - whole))
  pieces = jnp.concatenate([whole, rest], axis=1).astype(jnp.int32)
  added = jnp.zeros((NUM_BINS, 2 * num), jnp.int32).at[index].add(pieces)
  added = added.astype(values.dtype) / coarse
  return added[:, :num] + added[:, num:] / fine


def _digits(index):
  """`[V, D]` ones where the higher digit is, and where the lower is."""
  digit = np.arange(1 << _BITS, dtype=np.int32)[None]
  return tuple(
    (each[:, None] == digit).astype(jnp.float32)
    for each in (index >> _BITS, index & (1 << _BITS) - 1)
  )
