"""Trees that are drawn level by level, from what is predicted behind each node.

A language model predicts from the tokens; a head on the target's features, from
what it has predicted itself, too. How the tree grows is the same.
"""

from collections.abc import Callable
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import padding
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import siblings


class Prediction(NamedTuple):
  """What is said of the token behind each node of a level."""

  logits: jax.Array  # [B, W, V]
  probs: base.Probs  # [B, W, V]
  outputs: Any = ()  # [B, W, ...] what nodes below are read with, of heads


# `(depth, tokens[B, W], at, pending) -> (behind, pending)`: reads a level, of a
# depth from 0 on; `at` is the prediction that each node was drawn from.
Read = Callable[
  [int, jax.Array, Prediction, base.PendingKV],
  tuple[Prediction, base.PendingKV],
]


class Growth(NamedTuple):
  """What is drafted, and how."""

  topology: trees.Topology
  sampling: sampling_lib.Sampling
  read_depth: int  # levels that are read; the leaves only for `bonus_probs`
  bonus_probs: bool = False
  stop: base.Stop | None = None
  distinct: bool = False  # siblings are drawn without replacement
  inner: bool = False  # only nodes with children are read, and bonus positions


class _Level(NamedTuple):
  """What was drafted at one depth of the tree."""

  tokens: jax.Array  # [B, W] int32
  valid: jax.Array  # [B, W] bool
  probs: jax.Array | None  # [B, W, V] that each was drawn from; None if chosen
  raw_probs: jax.Array  # [B, W, V] behind the parent of each
  behind: Prediction | None  # behind those that are read; None if none is


def read_depth(topology: trees.Topology, bonus_probs: bool) -> int:
  """Returns how many levels are to be read."""
  if topology.num_nodes < 1 and not bonus_probs:
    raise ValueError('topology must have at least one node, got none.')
  return topology.depth if bonus_probs else topology.depth - 1


def num_chosen(plan: Growth) -> int:
  """Returns how many tokens are chosen behind the root, if none is drawn."""
  chosen = plan.distinct and not plan.sampling.temperature
  return len(plan.topology.levels[0]) if chosen else 0


def predict(plan: Growth, logits: jax.Array, outputs: Any = ()) -> Prediction:
  """Returns the prediction of logits `[B, W, V]`."""
  return Prediction(
    logits, sampling_lib.both_probs(logits, plan.sampling), outputs
  )


def grow(
  plan: Growth,
  read: Read,
  keys: jax.Array,
  root: Prediction,
  pending: base.PendingKV,
  valid: jax.Array | None = None,
) -> tuple[base.DraftTree, base.PendingKV]:
  """Drafts a tree for each row.

  Args:
    plan: what is drafted.
    read: computes what is behind the nodes of a level.
    keys: `[B]` one key a row.
    root: the prediction behind the root, of one node a row.
    pending: of what was read until there.
    valid: `[B]` rows that draft; None for all.

  Returns:
    The tree, and what is pending behind it.
  """
  num_uniforms = sampling_lib.num_uniforms(root.logits.shape[-1])
  shape = plan.topology.num_nodes, num_uniforms
  uniforms = jax.vmap(lambda key: jax.random.uniform(key, shape, jnp.float32))(
    keys
  )
  if valid is None:
    valid = jnp.ones(len(root.logits), bool)
  levels, pending = _grow(
    plan, read, uniforms, 0, root, valid[:, None], pending
  )
  return _tree(plan, root, levels), pending


def level_mask(plan: Growth, depth: int, before: jax.Array) -> jax.Array:
  """Returns `[B, W, M + W]` what nodes of a level that are read attend to.

  Args:
    plan: of the whole tree.
    depth: of the level, from 0.
    before: `[B, M]` which of the pending tokens in front of the tree they see.
  """
  levels = [_read_nodes(plan, each) for each in range(depth + 1)]
  places = levels[-1][:, None] + 1, np.concatenate(levels)[None] + 1
  each = [
    jnp.broadcast_to(mask, (len(before), len(levels[-1]), mask.shape[-1]))
    for mask in (before[:, None], plan.topology.mask[places])
  ]
  return jnp.concatenate(each, axis=-1)


def _read_nodes(plan: Growth, depth):
  """The nodes of a level that are read."""
  level = plan.topology.levels[depth]
  if plan.inner and not plan.bonus_probs:
    return np.intersect1d(level, plan.topology.parents)
  return level


def _row_of_parent(plan: Growth, depth):
  """`[W]` which of what was read of the level above each node hangs below."""
  level = plan.topology.levels[depth]
  if not depth:
    return np.zeros(len(level), np.int32)
  parents = np.array(plan.topology.parents)[level]
  return np.searchsorted(_read_nodes(plan, depth - 1), parents)


def _grow(plan: Growth, read, uniforms, depth, behind, valid, pending):
  """Drafts the levels from a depth on; returns them, and what is pending.

  Args:
    plan: of the whole tree.
    read: as of `grow`.
    uniforms: `[B, N, U]`.
    depth: of the first level, from 0.
    behind: prediction behind the level above.
    valid: `[B, W]` of that level.
    pending: of what was read until there.
  """
  if depth == plan.topology.depth:
    return [], pending
  row = _row_of_parent(plan, depth)
  at = jax.tree.map(lambda each: each[:, row], behind)
  going = valid[:, row]
  if plan.stop is not None:
    going &= ~plan.stop(at.probs.raw)
  go = functools.partial(
    _grow_level, plan, read, uniforms, depth, behind, at, going, pending
  )
  if plan.stop is None:
    return go()
  # Once all rows have stopped, nothing is drawn or read any more.
  stop = functools.partial(_stopped, plan, read, depth, at, pending)
  return jax.lax.cond(going.any(), go, stop)


def _grow_level(plan: Growth, read, uniforms, depth, above, at, going, pending):
  """Draws and reads one level, and drafts what hangs below it."""
  level = plan.topology.levels[depth]
  drawn = uniforms[:, level]
  if plan.distinct:
    row = _row_of_parent(plan, depth)
    tokens, probs, exists = siblings.draw(
      drawn, above.logits, above.probs.processed, row, plan.sampling
    )
    going &= exists
  else:
    probs = at.probs.processed
    tokens = sampling_lib.tokens(drawn, at.logits, probs, plan.sampling)
  behind, below = None, going
  if depth < plan.read_depth:
    chosen = np.searchsorted(level, _read_nodes(plan, depth))
    of_read = lambda each: each[:, chosen]
    behind, pending = read(
      depth, tokens[:, chosen], jax.tree.map(of_read, at), pending
    )
    below = going[:, chosen]
  levels, pending = _grow(
    plan, read, uniforms, depth + 1, behind, below, pending
  )
  drafted = _Level(tokens, going, probs, at.probs.raw, behind)
  return [drafted, *levels], pending


def _stopped(plan: Growth, read, first, at, pending):
  """What `_grow` returns where nothing is drafted from a depth on."""
  levels, whole = [], pending
  for depth in range(first, plan.topology.depth):
    width = len(plan.topology.levels[depth])
    tokens, nothing = (
      jnp.zeros((len(at.logits), width), dtype) for dtype in (jnp.int32, bool)
    )
    behind = None
    if depth < plan.read_depth:
      behind = _junk(at, len(_read_nodes(plan, depth)))
      step, some = functools.partial(read, depth), behind.logits.shape[1]
      _, whole = jax.eval_shape(step, tokens[:, :some], behind, whole)
    probs = at.probs if depth == first else _junk(at, width).probs
    chosen = plan.distinct and not plan.sampling.temperature
    drawn = None if chosen else probs.processed
    levels.append(_Level(tokens, nothing, drawn, probs.raw, behind))
  return levels, padding.pad_to(pending, whole)


def _junk(prediction, width):
  """Zeros in the place of a prediction behind so many nodes."""
  return jax.tree.map(
    lambda each: jnp.zeros((len(each), width, *each.shape[2:]), each.dtype),
    prediction,
  )


def _tree(plan: Growth, root, levels):
  """Joins levels; `root` is the prediction behind the root."""
  join = lambda parts: jax.tree.map(
    lambda *each: jnp.concatenate(each, axis=1), *parts
  )
  nothing = jax.tree.map(lambda probs: probs[:, :0], root.probs)
  tokens = jnp.zeros((len(root.logits), 0), jnp.int32)
  bonus = None
  if plan.bonus_probs:
    behind = join([root.probs, *(level.behind.probs for level in levels)])
    leaves = plan.topology.leaf_entries
    bonus = jax.tree.map(lambda probs: probs[:, leaves], behind)
  drawn = [level.probs for level in levels]
  chosen = any(probs is None for probs in drawn)
  return base.DraftTree(
    tokens=join([tokens, *(level.tokens for level in levels)]),
    topology=plan.topology,
    valid=join([tokens.astype(bool), *(level.valid for level in levels)]),
    probs=None if chosen else join([nothing.processed, *drawn]),
    raw_probs=join([nothing.raw, *(level.raw_probs for level in levels)]),
    bonus_probs=bonus,
  )
