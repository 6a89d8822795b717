"""Sums and powers of chances, near 0 and near 1 alike.

In float32 a chance near 1 is known to 6e-8, and its power `k` to `k` times
that; what it lacks of 1 is known far better, and so is what follows from it.
"""

import jax
import jax.numpy as jnp
import jax.scipy as jsp

# What a chance is rounded to.
_DIGITS = 2.0**20


def total(values: jax.Array) -> jax.Array:
  """Returns `[]` the sum of `values` `[M]`, in pairs, pairs of pairs, ...

  Its error is that of `log2(M)` additions; `sum` may add equal values one by
  one, and round each time the same way.
  """
  missing = 2 ** (values.size - 1).bit_length() - values.size
  values = jnp.pad(values, (0, missing))
  while values.size > 1:
    low, high = jnp.split(values, 2)
    values = low + high
  return values[0]


def of_any(chance: jax.Array, num: jax.typing.ArrayLike) -> jax.Array:
  """Returns `1 - (1 - chance)**num`, that one of `num` trials succeeds.

  Args:
    chance: any shape; above 1, as a rounded sum may be, counts as 1.
    num: broadcasts with it; 0 trials never succeed.
  """
  failed = -jnp.minimum(chance, 1.0)
  num = jnp.asarray(num, failed.dtype)
  return -jnp.expm1(jsp.special.xlog1py(num, failed))


def of_all(
  chance: jax.Array, rest: jax.Array, num: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Returns `chance**num`, that all trials succeed, and what it lacks of 1.

  Args:
    chance: any shape.
    rest: `1 - chance`, summed on its own.
    num: at least 1; broadcasts with them.
  """
  small = chance**num
  exponent = num * jnp.log1p(-jnp.minimum(rest, 0.5))
  return (
    jnp.where(rest < 0.5, jnp.exp(exponent), small),
    jnp.where(rest < 0.5, -jnp.expm1(exponent), 1 - small),
  )


def rounded(chance: jax.Array) -> jax.Array:
  """Returns a chance of which comparisons do not see the last digits.

  These are as a program happens to sum.
  """
  return jnp.round(_DIGITS * chance) / _DIGITS


def before(values: jax.Array) -> jax.Array:
  """Returns `[M]` the sum of all `values` `[M]` that come earlier."""
  return jnp.append(jnp.zeros_like(values[:1]), jnp.cumsum(values)[:-1])


def behind(values: jax.Array) -> jax.Array:
  """Returns `[M]` the sum of all `values` `[M]` that come later."""
  return before(values[::-1])[::-1]
