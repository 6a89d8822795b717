"""Bisection, with several steps per pass on accelerators.

A step of a bisection is a reduction over a vocabulary. On GPUs and TPUs, its
time hardly depends on the size, so that several steps share a pass, which tests
all points that these steps could reach. On CPUs, the time is proportional to
the number of points, so that each step tests one.
"""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp

# Number of steps that share a pass.
_STEPS_PER_PASS = 5


def bisect(
  is_below: Callable[[jax.Array], jax.Array],
  low: jax.Array,
  high: jax.Array,
  num_steps: int,
) -> tuple[jax.Array, jax.Array]:
  """Bisects intervals for the boundary below which a condition holds.

  The result is that of ordinary bisection on all platforms, up to rounding of
  points and of `is_below`.

  Args:
    is_below: returns `[...]` bool, whether points `[...]` are below the
      boundary. It holds up to some point of each interval, and for none after
      it.
    low: `[...]` lower ends of the intervals, float32 or int32.
    high: `[...]` upper ends, of the same type. For integers, `high - low` must
      be a multiple of `2**num_steps`.
    num_steps: static number of steps; each halves the intervals.

  Returns:
    The lower and the upper ends of the last intervals.
  """
  low, high = jnp.broadcast_arrays(low, high)
  return jax.lax.platform_dependent(
    low,
    high,
    cpu=functools.partial(_one_by_one, is_below, num_steps),
    default=functools.partial(_together, is_below, num_steps),
  )


def _one_by_one(
  is_below: Callable[[jax.Array], jax.Array],
  num_steps: int,
  low: jax.Array,
  high: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Bisects with one point per step."""

  def halve(
    _: jax.Array, interval: tuple[jax.Array, jax.Array]
  ) -> tuple[jax.Array, jax.Array]:
    low, high = interval
    middle = _point(low, high, 1, 1)
    below = is_below(middle)
    return jnp.where(below, middle, low), jnp.where(below, high, middle)

  return jax.lax.fori_loop(0, num_steps, halve, (low, high))


def _together(
  is_below: Callable[[jax.Array], jax.Array],
  num_steps: int,
  low: jax.Array,
  high: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Bisects with several steps per pass, which tests all reachable points."""
  while num_steps:
    num = min(num_steps, _STEPS_PER_PASS)
    point = functools.partial(_point, low, high, num)
    below = jax.vmap(is_below)(jax.vmap(point)(jnp.arange(1, 1 << num)))
    index = jnp.int32(0)
    for step in reversed(range(num)):
      half = (1 << step) - 1
      index += jnp.where(below[half], 1 << step, 0)
      below = jnp.where(below[half], below[half + 1 :], below[:half])
    low, high = point(index), point(index + 1)
    num_steps -= num
  return low, high


def _point(
  low: jax.Array, high: jax.Array, num_steps: int, index: jax.Array | int
) -> jax.Array:
  """Returns one of the `2**num_steps + 1` equidistant points of an interval."""
  index = jnp.asarray(index).astype(low.dtype)
  if jnp.issubdtype(low.dtype, jnp.integer):
    return low + ((high - low) >> num_steps) * index
  return low + (high - low) * (index * 2.0**-num_steps)
