"""Sums per bin, and table entries per bin index: a scatter and a gather.

On a TPU, scatters and gathers run one element at a time. There, they are
replaced by products with one-hot matrices, which read each value once.
"""

import jax
import jax.numpy as jnp
import numpy as np

# A bin index has two digits with this many bits each.
_BITS = 4
NUM_BINS = 1 << 2 * _BITS


def gather(table: jax.Array, index: jax.Array) -> jax.Array:
  """Returns `[V]`, the entries of a table at the positions `index`.

  Args:
    table: `[M]` with at most `NUM_BINS` entries.
    index: `[V]` int32.
  """
  return jax.lax.platform_dependent(
    table,
    index,
    tpu=gather_by_matmul,
    default=lambda table, index: table[index],
  )


def gather_by_matmul(table: jax.Array, index: jax.Array) -> jax.Array:
  """Returns the result of `gather`, computed with the algorithm for TPUs."""
  high, low = _one_hot_digits(index)
  square = jnp.pad(table, (0, NUM_BINS - table.size)).reshape(1 << _BITS, -1)
  rows = jnp.matmul(high, square, precision='highest')
  return (rows * low).sum(axis=1)


def bin_sums(values: jax.Array, index: jax.Array) -> jax.Array:
  """Returns `[NUM_BINS, C]`, the sums of `values` in each bin.

  Args:
    values: `[V, C]` in [0, 1]; the sum of each column is at most 1.
    index: `[V]` int32, the bin of each row.
  """
  return jax.lax.platform_dependent(
    values, index, tpu=bin_sums_by_matmul, default=bin_sums_by_integers
  )


def bin_sums_by_matmul(values: jax.Array, index: jax.Array) -> jax.Array:
  """Returns the result of `bin_sums`, computed with the algorithm for TPUs."""
  high, low = _one_hot_digits(index)
  squares = [
    jnp.matmul((column[:, None] * high).T, low, precision='highest')
    for column in values.T
  ]
  return jnp.stack([square.reshape(NUM_BINS) for square in squares], axis=1)


def bin_sums_by_integers(values: jax.Array, index: jax.Array) -> jax.Array:
  """Returns the result of `bin_sums`, computed with fixed-point integers.

  This is the algorithm for CPUs and GPUs. Adding thousands of small floats to a
  large one loses digits, and the result would depend on the order of additions,
  which may vary on a GPU. Each value is rounded to at least 40 bits after the
  binary point and split into two integers whose sums stay below `2**31`.
  """
  num_columns = values.shape[1]
  coarse, fine = 2.0**30, 2.0 ** (30 - len(values).bit_length())
  scaled = coarse * values
  whole = jnp.floor(scaled)
  remainder = jnp.round(fine * (scaled - whole))
  integers = jnp.concatenate([whole, remainder], axis=1).astype(jnp.int32)
  sums = jnp.zeros((NUM_BINS, 2 * num_columns), jnp.int32)
  sums = sums.at[index].add(integers).astype(values.dtype) / coarse
  return sums[:, :num_columns] + sums[:, num_columns:] / fine


def _one_hot_digits(index: jax.Array) -> tuple[jax.Array, ...]:
  """Returns two `[V, D]` one-hot matrices: the higher and the lower digit."""
  digits = np.arange(1 << _BITS, dtype=np.int32)[None]
  return tuple(
    (digit[:, None] == digits).astype(jnp.float32)
    for digit in (index >> _BITS, index & (1 << _BITS) - 1)
  )
