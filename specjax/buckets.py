"""Buckets of widths: a call is compiled for a few, and runs at the least.

A call that must read `n` tokens, where `n` is known only on the device, runs in
the program of the least width that holds them, instead of the greatest.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from specjax import padding

# Tokens that the narrowest program reads.
MIN_WIDTH = 16
# How many times wider the next program is. Widths are few, since each is
# compiled.
_GROWTH = 2
# From this width on, a call is bound by computation, and its time is
# proportional to its width: another width lies between two that are this wide.
_WIDE = 64

_Result = TypeVar('_Result')


def bucket_widths(size: int) -> list[int]:
  """Returns widths of programs that read up to `size` tokens, ascending."""
  widths = [size]
  while (wider := widths[0]) > MIN_WIDTH:
    narrower = max(wider // _GROWTH, MIN_WIDTH)
    if narrower >= _WIDE:
      widths.insert(0, (narrower + wider) // 2)
    widths.insert(0, narrower)
  return widths


def switch_bucket(
  widths: Sequence[int], needed: jax.Array, function: Callable[[int], _Result]
) -> _Result:
  """Runs `function(width)` for the least width that is at least `needed`.

  Args:
    widths: static, ascending; the function is compiled for each.
    needed: `[]` int32, at most the last width.
    function: returns a pytree, whose arrays are padded with zeros to the sizes
      of the last width.
  """
  return padding.switch_padded(
    (needed > np.array(widths[:-1], np.int32)).sum(dtype=jnp.int32),
    [functools.partial(function, width) for width in widths],
  )
