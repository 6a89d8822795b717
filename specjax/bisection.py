"""Bisection in as few passes as a platform has time for.

A step of a bisection is a reduction over a vocabulary, which GPUs compute in a
few kernels whatever its size: there, and on TPUs, several steps share a pass,
which tests all points that these steps could reach. On CPUs, which take as long
as there are points, each step tests one.
"""

from collections.abc import Callable
import functools

import jax
import jax.numpy as jnp

# Steps that share a pass, where points are tested together.
_STEPS_PER_PASS = 5


def bisect(
  is_below: Callable[[jax.Array], jax.Array],
  low: jax.Array,
  high: jax.Array,
  num_steps: int,
) -> tuple[jax.Array, jax.Array]:
  """Halves intervals until they are narrow around the end of what is below.

  On all platforms the steps are those of ordinary bisection, and so is the
  result, up to the rounding of points and of `is_below`.

  Args:
    is_below: whether a point `[...]` is below the end, `[...]` bool; the
      comparison holds up to some point of each interval and for none after it.
    low: `[...]` float32 or int32.
    high: of the same shape and type; of integers, `high - low` is a multiple of
      `2**num_steps`.
    num_steps: static; each halves the intervals.

  Returns:
    The ends of the last intervals.
  """
  low, high = jnp.broadcast_arrays(low, high)
  return jax.lax.platform_dependent(
    low,
    high,
    cpu=functools.partial(_one_by_one, is_below, num_steps),
    default=functools.partial(_together, is_below, num_steps),
  )


def _one_by_one(is_below, num_steps, low, high):
  """A point is tested in each step."""

  def halve(_, interval):
    low, high = interval
    middle = _point(low, high, 1, 1)
    below = is_below(middle)
    return jnp.where(below, middle, low), jnp.where(below, high, middle)

  return jax.lax.fori_loop(0, num_steps, halve, (low, high))


def _together(is_below, num_steps, low, high):
  """All points that a few steps could reach are tested, then picked from."""
  while num_steps:
    num = min(num_steps, _STEPS_PER_PASS)
    point = functools.partial(_point, low, high, num)
    below = jax.vmap(is_below)(jax.vmap(point)(jnp.arange(1, 1 << num)))
    place = jnp.int32(0)
    for step in reversed(range(num)):
      half = (1 << step) - 1
      place += jnp.where(below[half], 1 << step, 0)
      below = jnp.where(below[half], below[half + 1 :], below[:half])
    low, high = point(place), point(place + 1)
    num_steps -= num
  return low, high


def _point(low, high, num_steps, place):
  """The point at one of `2**num_steps + 1` places of an interval."""
  place = jnp.asarray(place).astype(low.dtype)
  if jnp.issubdtype(low.dtype, jnp.integer):
    return low + ((high - low) >> num_steps) * place
  return low + (high - low) * (place * 2.0**-num_steps)
