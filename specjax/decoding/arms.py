"""Several arms in one round: groups of arms, merged trees, widths of a call.

Only selected arms run. They read the caches and return what is to be written
to them, so that selecting among arms copies no KV cache.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import NamedTuple
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import padding

_Result = TypeVar('_Result')
# A call of the target may have the nodes of the widest level times powers of
# this: few widths, since each of them is compiled.
_WIDTH_FACTOR = 4


# Groups of arms.


def groups_by_size(
  drafters: Sequence[base.Drafter], per_row: bool
) -> list[tuple[int, ...]]:
  """Returns the groups of arms, each of which one compiled branch plays.

  If the batch has one bandit, these are the arms whose trees have the same
  number of nodes. Within a group only drafts and verifications are selected:
  the target's call is compiled once.

  Args:
    drafters: the drafter of each arm.
    per_row: whether each row selects an arm; all arms are then one group.
  """
  sizes = [drafter.topology.num_nodes for drafter in drafters]
  if per_row:
    return [tuple(range(len(sizes)))]
  return [
    tuple(i for i, other in enumerate(sizes) if other == size)
    for size in sorted({*sizes})
  ]


def group_index(
  groups: Sequence[Sequence[int]], arm: jax.Array, num_arms: int
) -> jax.Array:
  """Returns which of disjoint groups has an arm, `[]` int32; 0 if none has.

  Args:
    groups: arms of each group.
    arm: `[]` int32.
    num_arms: `A`.
  """
  index_of_arm = np.zeros(num_arms, np.int32)
  for index, group in enumerate(groups):
    index_of_arm[list(group)] = index
  return jnp.asarray(index_of_arm)[arm]


# Selection and merging.


def run_selected(
  selected: Sequence[jax.Array],
  functions: Sequence[Callable[[], _Result]],
  index: jax.Array | None = None,
) -> list[_Result]:
  """Runs the functions that some live row has selected.

  Args:
    selected: `[B]` bool for each function, the live rows that selected it.
    functions: one for each arm, or group of arms. A single one always runs.
    index: `[]` int32, the only function that rows have selected; None if rows
      may have selected several.

  Returns:
    The result of each function; zeros where no row has selected it.
  """
  if len(functions) == 1:
    return [functions[0]()]
  if index is None:
    return [_run_if_any(*pair) for pair in zip(selected, functions)]
  shapes = [jax.eval_shape(function) for function in functions]

  def run_one(i: int) -> list[_Result]:
    results = [padding.zeros(shape) for shape in shapes]
    results[i] = functions[i]()
    return results

  branches = [functools.partial(run_one, i) for i in range(len(functions))]
  return jax.lax.switch(index, branches)


def _run_if_any(rows: jax.Array, function: Callable[[], _Result]) -> _Result:
  """Calls a function if any row selected it; otherwise returns zeros."""
  shapes = jax.eval_shape(function)
  return jax.lax.cond(rows.any(), function, lambda: padding.zeros(shapes))


def merge(selected: Sequence[jax.Array], results: Sequence[_Result]) -> _Result:
  """Merges the results of arms, each from the rows that selected it.

  Args:
    selected: `[B]` bool of each arm.
    results: of each arm, pytrees `[B, ...]` that may differ in their sizes.

  Returns:
    One result, padded with zeros to the largest sizes.
  """
  if len(results) == 1:
    return results[0]
  shapes = padding.common_shapes(results)
  merged = padding.zeros(shapes)
  for rows, result in zip(selected, results):
    merged = where(rows, padding.pad_to(result, shapes), merged)
  return merged


@jax.vmap
def where(rows: jax.Array, new: _Result, old: _Result) -> _Result:
  """Returns the rows of `new` where `rows` `[B]` is true, else of `old`."""
  return jax.tree.map(lambda new, old: jnp.where(rows, new, old), new, old)


# The target's call.


class Nodes(NamedTuple):
  """Draft nodes of all rows, whose trees may differ."""

  tokens: jax.Array  # [B, N]
  # [N + 1] or [B, N + 1], of root and nodes: 1 + depth, or 0 for no node.
  levels: jax.Array | np.ndarray
  mask: jax.Array | np.ndarray  # [N + 1, N + 1] or [B, N + 1, N + 1]


def merge_trees(
  selected: Sequence[jax.Array], draft_trees: Sequence[base.DraftTree]
) -> Nodes:
  """Merges the trees of arms into the nodes of one call.

  Args:
    selected: `[B]` bool of each arm.
    draft_trees: of each arm, batched.
  """
  return merge(
    selected, [_nodes(tree, len(draft_trees) > 1) for tree in draft_trees]
  )


def _nodes(tree: base.DraftTree, by_row: bool) -> Nodes:
  """Returns the nodes of one arm; a static tree has rows only if `by_row`."""
  topology, rows = tree.topology, tree.tokens.shape[:1]
  levels, mask = topology.offsets + 1, topology.mask
  if by_row and levels.ndim == 1:
    levels = jnp.broadcast_to(levels, (*rows, *levels.shape))
    mask = jnp.broadcast_to(mask, (*rows, *mask.shape))
  return Nodes(tree.tokens, levels, mask)


def call_widths(drafters: Sequence[base.Drafter]) -> list[int]:
  """Returns the numbers of nodes that the target's call may have, ascending."""
  widths = set()
  for drafter in drafters:
    size, width = drafter.topology.num_nodes, drafter.topology.width
    widths |= {*drafter.tree_sizes}
    if drafter.may_stop_early:
      steps = [width * _WIDTH_FACTOR**i for i in range(size.bit_length())]
      widths |= {step for step in (0, *steps) if step < size}
  return sorted(widths)


def num_scored_nodes(
  selected: Sequence[jax.Array],
  drafters: Sequence[base.Drafter],
  draft_trees: Sequence[base.DraftTree],
) -> jax.Array:
  """Returns how many first nodes hold all valid ones of the batch, `[]` int32.

  Args:
    selected: `[B]` bool of each arm.
    drafters: of each arm.
    draft_trees: of each arm, batched.
  """
  needed = [
    jnp.where(rows, _num_first_nodes(drafter, tree), 0).max()
    for rows, drafter, tree in zip(selected, drafters, draft_trees)
  ]
  return functools.reduce(jnp.maximum, needed)


def _num_first_nodes(drafter: base.Drafter, tree: base.DraftTree) -> jax.Array:
  """Returns `[B]` how many first nodes of a tree hold all valid ones."""
  size = tree.topology.num_nodes
  if not drafter.may_stop_early:
    return jnp.full(tree.valid.shape[:1], size)
  count = np.arange(1, size + 1)[None]
  return jnp.where(tree.valid, count, 0).max(axis=1, initial=0)
