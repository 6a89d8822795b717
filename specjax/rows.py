"""One row of a pytree whose arrays have an axis of rows in front."""

from typing import TypeVar

import jax

_Tree = TypeVar('_Tree')


def take(tree: _Tree, row: jax.Array) -> _Tree:
  """Returns a row `[]` of `[B, ...]`, as the only one: `[1, ...]`."""
  return jax.tree.map(
    lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, row, 1), tree
  )


def put(tree: _Tree, one: _Tree, row: jax.Array) -> _Tree:
  """Returns `[B, ...]` with `[1, ...]` written over a row `[]`."""
  return jax.tree.map(
    lambda leaf, own: jax.lax.dynamic_update_slice_in_dim(leaf, own, row, 0),
    tree,
    one,
  )
