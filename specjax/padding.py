"""Pytrees of arrays that differ in their sizes."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import Any
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

# Slots of a cache come in so many: XLA pads and copies others in every round,
# on TPUs as on GPUs.
_TILE = 32
# Tokens that the narrowest program reads, and how many times wider the next is:
# few, since each is compiled.
NARROWEST, _STEP = 16, 2
# Where a call is bound by computation, its time is that of its tokens: another
# width stands between two that are at least so wide.
_WIDE = 64

_Result = TypeVar('_Result')


def slots(size: int) -> int:
  """Returns how many slots a cache needs to hold `size` tokens."""
  return -(-size // _TILE) * _TILE


def widths(size: int) -> list[int]:
  """Returns widths of programs that read up to `size` tokens, ascending."""
  found = [size]
  while (wider := found[0]) > NARROWEST:
    narrower = max(wider // _STEP, NARROWEST)
    if narrower >= _WIDE:
      found.insert(0, (narrower + wider) // 2)
    found.insert(0, narrower)
  return found


def zeros(shapes: Any) -> Any:
  """Returns zeros of some shapes and dtypes."""
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def widest(results: Sequence[Any]) -> Any:
  """Returns shapes that all results can be padded to."""

  def largest(*leaves):
    shape = np.max([leaf.shape for leaf in leaves], axis=0)
    return jax.ShapeDtypeStruct(tuple(shape), leaves[0].dtype)

  return jax.tree.map(largest, *results)


def pad_to(arrays: Any, shapes: Any) -> Any:
  """Pads arrays with zeros, at the ends of their axes, to other shapes."""
  return jax.tree.map(_pad_leaf, arrays, shapes)


def _pad_leaf(leaf, like):
  if leaf.shape == like.shape:  # Of any dtype, keys among them.
    return leaf
  widths = [(0, new - old) for old, new in zip(leaf.shape, like.shape)]
  return jnp.pad(leaf, widths)


def one_of(
  index: jax.Array, functions: Sequence[Callable[[], _Result]]
) -> _Result:
  """Runs the function at an index.

  Args:
    index: `[]` int32. A single function always runs.
    functions: each is compiled; their results are pytrees that may differ in
      their sizes.

  Returns:
    What it returned, padded with zeros to the largest sizes of all.
  """
  if len(functions) == 1:
    return functions[0]()
  # Each is traced once, although its shapes are asked for first.
  functions = [jax.jit(each, inline=True) for each in functions]
  shapes = widest([jax.eval_shape(each) for each in functions])
  branches = [lambda each=each: pad_to(each(), shapes) for each in functions]
  return jax.lax.switch(index, branches)


def narrowest(
  widths: Sequence[int], needed: jax.Array, function: Callable[[int], _Result]
) -> _Result:
  """Returns `function(width)` of the least width that is at least `needed`.

  Args:
    widths: static, ascending; each is compiled.
    needed: `[]` int32, at most the last width.
    function: its results are padded with zeros to those of the last width.
  """
  return one_of(
    (needed > np.array(widths[:-1], np.int32)).sum(dtype=jnp.int32),
    [functools.partial(function, each) for each in widths],
  )
