"""Buckets of widths: a call is compiled for a few widths.

A call reads `n` tokens, where `n` is known only on the device. It runs the
program with the smallest width that holds them, not the one with the largest.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from specjax import padding

# Width of the narrowest program.
MIN_WIDTH = 16
# Ratio of consecutive widths. Each width is compiled, so that there are few.
_GROWTH = 2
# From this width on, a call is bound by computation, and its time is
# proportional to its width. There, widths are twice as dense.
_WIDE = 64

_Result = TypeVar('_Result')


def bucket_widths(size: int) -> list[int]:
  """Returns the widths of programs that read up to `size` tokens, ascending."""
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
  """Runs `function(width)` for the smallest width that is at least `needed`.

  Args:
    widths: static widths, ascending; the function is compiled for each.
    needed: `[]` int32, at most the last width.
    function: returns a pytree.

  Returns:
    The result, padded with zeros to the largest sizes over all widths.
  """
  return padding.switch_padded(
    (needed > np.array(widths[:-1], np.int32)).sum(dtype=jnp.int32),
    [functools.partial(function, width) for width in widths],
  )
