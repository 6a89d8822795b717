"""Pads pytrees whose arrays differ in size to common shapes."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

_Result = TypeVar('_Result')


def zeros(shapes: Any) -> Any:
  """Returns zeros with the shapes and types of a pytree."""
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def common_shapes(results: Sequence[Any]) -> Any:
  """Returns the smallest shapes to which all results can be padded."""

  def largest(*leaves: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
    shape = np.max([leaf.shape for leaf in leaves], axis=0)
    return jax.ShapeDtypeStruct(tuple(shape), leaves[0].dtype)

  return jax.tree.map(largest, *results)


def pad_to(arrays: Any, shapes: Any) -> Any:
  """Returns arrays padded to shapes, with zeros at the ends of their axes."""
  return jax.tree.map(_pad_leaf, arrays, shapes)


def _pad_leaf(leaf: jax.Array, like: jax.ShapeDtypeStruct) -> jax.Array:
  """Returns an array padded to the shape of another."""
  if leaf.shape == like.shape:  # Types that cannot be padded, such as keys.
    return leaf
  widths = [(0, new - old) for old, new in zip(leaf.shape, like.shape)]
  return jnp.pad(leaf, widths)


def switch_padded(
  index: jax.Array, functions: Sequence[Callable[[], _Result]]
) -> _Result:
  """Runs the function at an index, as `lax.switch` does, for any sizes.

  Args:
    index: `[]` int32. A single function always runs.
    functions: functions that return pytrees, whose arrays may differ in their
      sizes; each function is compiled.

  Returns:
    The result, padded with zeros to the largest sizes of all functions.
  """
  if len(functions) == 1:
    return functions[0]()
  # Under `jit`, each function is traced once, and its shapes are known first.
  functions = [jax.jit(function, inline=True) for function in functions]
  shapes = common_shapes([jax.eval_shape(function) for function in functions])
  branches = [
    lambda function=function: pad_to(function(), shapes)
    for function in functions
  ]
  return jax.lax.switch(index, branches)
