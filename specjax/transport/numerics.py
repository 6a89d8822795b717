"""Sums and powers of probabilities that stay accurate near 0 and near 1.

In float32, a probability near 1 is known to 6e-8, and its `k`-th power to `k`
times that. Its complement is known to a much smaller absolute error, and so is
every value that is computed from the complement instead.
"""

import jax
import jax.numpy as jnp
import jax.scipy as jsp

# Probabilities are rounded to multiples of one over this.
_RESOLUTION = 2.0**20


def pairwise_sum(values: jax.Array) -> jax.Array:
  """Returns `[]` the sum of `values` `[M]`, by pairwise summation.

  The error is that of `log2(M)` additions. `jnp.sum` may add equal values one
  after the other and round in the same direction each time.
  """
  num_zeros = 2 ** (values.size - 1).bit_length() - values.size
  values = jnp.pad(values, (0, num_zeros))
  while values.size > 1:
    low, high = jnp.split(values, 2)
    values = low + high
  return values[0]


def any_success(prob: jax.Array, num: jax.typing.ArrayLike) -> jax.Array:
  """Returns `1 - (1 - prob)**num`, that at least one of `num` trials succeeds.

  Args:
    prob: any shape. Values above 1, which a rounded sum may have, count as 1.
    num: number of trials, broadcasts with `prob`; 0 trials never succeed.
  """
  negative = -jnp.minimum(prob, 1.0)
  num = jnp.asarray(num, negative.dtype)
  return -jnp.expm1(jsp.special.xlog1py(num, negative))


def all_succeed(
  prob: jax.Array, complement: jax.Array, num: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Returns `prob**num`, that all `num` trials succeed, and 1 minus that.

  Args:
    prob: any shape.
    complement: `1 - prob`, summed from its own terms.
    num: number of trials, at least 1; broadcasts with the other two.
  """
  power = prob**num
  log_power = num * jnp.log1p(-jnp.minimum(complement, 0.5))
  return (
    jnp.where(complement < 0.5, jnp.exp(log_power), power),
    jnp.where(complement < 0.5, -jnp.expm1(log_power), 1 - power),
  )


def rounded(prob: jax.Array) -> jax.Array:
  """Returns a probability without its last digits.

  The last digits depend on the order in which a program happens to add, and
  comparisons must not depend on them.
  """
  return jnp.round(_RESOLUTION * prob) / _RESOLUTION


def sum_before(values: jax.Array) -> jax.Array:
  """Returns `[M]`, for each position, the sum of all earlier `values` `[M]`."""
  return jnp.append(jnp.zeros_like(values[:1]), jnp.cumsum(values)[:-1])


def sum_after(values: jax.Array) -> jax.Array:
  """Returns `[M]`, for each position, the sum of all later `values` `[M]`."""
  return sum_before(values[::-1])[::-1]
