"""Reads and replaces one row of a batch of pytrees."""

from typing import TypeVar

import jax

_Tree = TypeVar('_Tree')


def take_row(tree: _Tree, row: jax.Array) -> _Tree:
  """Returns a row of arrays `[B, ...]` as a batch of one, `[1, ...]`."""
  return jax.tree.map(
    lambda leaf: jax.lax.dynamic_slice_in_dim(leaf, row, 1), tree
  )


def replace_row(tree: _Tree, batch_of_one: _Tree, row: jax.Array) -> _Tree:
  """Returns arrays `[B, ...]` with a row replaced by that of `[1, ...]`."""
  return jax.tree.map(
    lambda leaf, new: jax.lax.dynamic_update_slice_in_dim(leaf, new, row, 0),
    tree,
    batch_of_one,
  )
