"""Pytrees of arrays that differ in their sizes."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

# Slots of a cache come in so many: XLA pads and copies others in every round,
# on TPUs as on GPUs.
_TILE = 32


def slots(size: int) -> int:
  """Returns how many slots a cache needs to hold `size` tokens."""
  return -(-size // _TILE) * _TILE


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
  return jax.tree.map(
    lambda leaf, like: jnp.pad(
      leaf, [(0, new - old) for old, new in zip(leaf.shape, like.shape)]
    ),
    arrays,
    shapes,
  )
