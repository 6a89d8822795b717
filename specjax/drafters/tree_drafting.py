"""Tree drafting: static trees, level by level, from predictions at each node.

A language model predicts from the tokens; a head on the target's hidden states
also predicts from its own outputs. The recursion over levels is the same:

    level 0    draw the children of the root from the root's prediction
               read them (their KV stays uncommitted), which predicts ...
    level 1    ... their children: draw, read, and so on

The leaves are read only if the probabilities at the bonus positions are
required.
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
  """Predictions of the token after each node of a level."""

  logits: jax.Array  # [B, W, V]
  probs: base.Probs  # [B, W, V]
  outputs: Any = ()  # [B, W, ...] with which a head reads the nodes below


# `(depth, tokens[B, W], parents, pending) -> (prediction, pending)`: reads the
# nodes of a level, of a depth from 0 on; `parents` are the predictions from
# which they were drawn.
ReadLevel = Callable[
  [int, jax.Array, Prediction, base.PendingKV],
  tuple[Prediction, base.PendingKV],
]


class TreeSpec(NamedTuple):
  """Specifies which tree is drafted, and how."""

  topology: trees.Topology
  sampling: sampling_lib.Sampling
  bonus_probs: bool = False
  stop: base.StopRule | None = None
  siblings: base.Siblings = base.Siblings.IID
  # Whether a level is read in full; else, nodes without children are skipped
  # unless `bonus_probs` are required.
  reads_leaves: bool = True

  @property
  def read_depth(self) -> int:
    """Number of levels that are read; the last one only for `bonus_probs`."""
    return self.topology.depth - (not self.bonus_probs)

  @property
  def num_chosen(self) -> int:
    """Number of tokens chosen after the root; 0 if they are drawn."""
    is_chosen = self.siblings is base.Siblings.CHOSEN
    return len(self.topology.levels[0]) if is_chosen else 0

  def read_nodes(self, depth: int) -> np.ndarray:
    """Returns the nodes of a level that are read."""
    level = self.topology.levels[depth]
    if self.reads_leaves or self.bonus_probs:
      return level
    return np.intersect1d(level, self.topology.parents)

  def parent_index(self, depth: int) -> np.ndarray:
    """Returns `[W]` the parents of a level among `read_nodes(depth - 1)`."""
    level = self.topology.levels[depth]
    if not depth:
      return np.zeros(len(level), np.int32)
    parents = np.array(self.topology.parents)[level]
    return np.searchsorted(self.read_nodes(depth - 1), parents)


class _Level(NamedTuple):
  """The drafted nodes of one depth."""

  tokens: jax.Array  # [B, W] int32
  valid: jax.Array  # [B, W] bool
  probs: jax.Array | None  # [B, W, V] that each was drawn from; None if chosen
  raw_probs: jax.Array  # [B, W, V] after the parent of each
  prediction: Prediction | None  # after those that are read; None if none is


def check_topology(topology: trees.Topology, bonus_probs: bool) -> None:
  """Raises a `ValueError` if there is nothing to draft and nothing to read."""
  if topology.num_nodes < 1 and not bonus_probs:
    raise ValueError('topology must have at least one node, got none.')


def tree_siblings(
  topology: trees.Topology, sampling: sampling_lib.Sampling, distinct: bool
) -> base.Siblings:
  """Returns how siblings are drawn.

  Args:
    topology: of the tree.
    sampling: how tokens are drawn; shared noise chooses all of them.
    distinct: whether all siblings are to be different.
  """
  if sampling.shared_noise:
    return base.Siblings.CHOSEN
  if not distinct or topology.width <= 1:
    return base.Siblings.IID
  if not sampling.is_greedy:
    return base.Siblings.WITHOUT_REPLACEMENT
  return base.Siblings.CHOSEN


def predict(
  logits: jax.Array, sampling: sampling_lib.Sampling, outputs: Any = ()
) -> Prediction:
  """Returns the prediction of logits `[B, W, V]`."""
  return Prediction(logits, sampling_lib.both_probs(logits, sampling), outputs)


def repeat(prediction: Prediction, width: int) -> Prediction:
  """Returns one prediction `[B, 1, ...]` for all nodes of a level.

  Args:
    prediction: one for the level, or already one for each node.
    width: number of nodes, `W`.
  """
  return jax.tree.map(
    lambda leaf: jnp.broadcast_to(leaf, (len(leaf), width, *leaf.shape[2:])),
    prediction,
  )


def draft_tree(
  tree_spec: TreeSpec,
  read_level: ReadLevel,
  keys: jax.Array,
  context: base.Context,
  root: Prediction,
  pending: base.PendingKV,
  valid: jax.Array | None = None,
) -> tuple[base.DraftTree, base.PendingKV]:
  """Drafts a tree for each row.

  Args:
    tree_spec: of the tree.
    read_level: reads the nodes of a level.
    keys: `[B]` one key per row.
    context: the committed text.
    root: the prediction after the root, `[B, 1, ...]`.
    pending: uncommitted KV of what was read before the tree.
    valid: `[B]` rows that draft; None for all.

  Returns:
    The tree, and the uncommitted KV with that of the nodes that were read.
  """
  num_uniforms = sampling_lib.num_uniforms(root.logits.shape[-1])
  shape = tree_spec.topology.num_nodes, num_uniforms
  uniforms = jax.vmap(lambda key: jax.random.uniform(key, shape, jnp.float32))(
    keys
  )
  if valid is None:
    valid = jnp.ones(len(root.logits), bool)
  recursion = _Recursion(tree_spec, read_level, uniforms, context)
  path_probs = jnp.ones((len(root.logits), 1), jnp.float32)
  levels, pending = recursion.draft_levels(
    0, root, valid[:, None], path_probs, pending
  )
  return _join_levels(tree_spec, root, levels), pending


def level_mask(tree_spec: TreeSpec, depth: int, exists: jax.Array) -> jax.Array:
  """Returns `[B, W, M + W]` what the nodes of a level attend to.

  For the tree with parents (-1, -1, 0, 0) after a tail of two entries, the
  first of which does not exist in this row, the mask of level 1 is

                tail   level 0   level 1
      node 2    0 1    1 0       1 0
      node 3    0 1    1 0       0 1

  Args:
    tree_spec: of the tree.
    depth: of the level, from 0.
    exists: `[B, tail]` which uncommitted entries before the tree exist.
  """
  levels = [tree_spec.read_nodes(level) for level in range(depth + 1)]
  entries = levels[-1][:, None] + 1, np.concatenate(levels)[None] + 1
  masks = [
    jnp.broadcast_to(mask, (len(exists), len(levels[-1]), mask.shape[-1]))
    for mask in (exists[:, None], tree_spec.topology.mask[entries])
  ]
  return jnp.concatenate(masks, axis=-1)


class _Recursion(NamedTuple):
  """Drafts a level, and with it all levels below."""

  tree_spec: TreeSpec
  read_level: ReadLevel
  uniforms: jax.Array  # [B, N, U]
  context: base.Context

  def draft_levels(
    self,
    depth: int,
    prediction: Prediction | None,
    valid: jax.Array,
    path_probs: jax.Array,
    pending: base.PendingKV,
  ) -> tuple[list[_Level], base.PendingKV]:
    """Drafts the levels from a depth on.

    Args:
      depth: of the first level, from 0.
      prediction: after the nodes of the level above that were read.
      valid: `[B, W]` bool, of these nodes.
      path_probs: `[B, W]` of these nodes, see `base.DraftPosition`.
      pending: uncommitted KV of everything above.

    Returns:
      The levels, and the uncommitted KV.
    """
    stop = self.tree_spec.stop
    if depth == self.tree_spec.topology.depth:
      return [], pending
    assert prediction is not None  # As all levels but the last are read.
    index = self.tree_spec.parent_index(depth)
    parents = jax.tree.map(lambda leaf: leaf[:, index], prediction)
    valid, path_probs = valid[:, index], path_probs[:, index]
    if stop is not None:
      valid &= ~stop(base.DraftPosition(parents.probs.raw, path_probs, depth))
    go_on = functools.partial(
      self._draft_level, depth, prediction, parents, valid, path_probs, pending
    )
    if stop is None:
      return go_on()
    # Once all rows in use have stopped, nothing is drawn or read any more.
    is_any_left = self.context.of_rows(valid).any()
    end = functools.partial(self._stopped_levels, depth, parents, pending)
    return jax.lax.cond(is_any_left, go_on, end)

  def _draft_level(
    self,
    depth: int,
    above: Prediction,
    parents: Prediction,
    valid: jax.Array,
    path_probs: jax.Array,
    pending: base.PendingKV,
  ) -> tuple[list[_Level], base.PendingKV]:
    """Draws and reads one level, and drafts the levels below it.

    Args:
      depth: of the level.
      above: the prediction after the nodes above that were read.
      parents: that of each node's parent.
      valid: `[B, W]` bool, of the level's nodes.
      path_probs: `[B, W]` of each node's parent.
      pending: uncommitted KV of everything above.
    """
    tree_spec = self.tree_spec
    level = tree_spec.topology.levels[depth]
    uniforms = self.uniforms[:, level]
    probs: jax.Array | None
    if tree_spec.siblings is not base.Siblings.IID:
      tokens, probs, exists = siblings.draw(
        uniforms,
        self._scores(depth, above),
        above.probs.processed,
        tree_spec.parent_index(depth),
        tree_spec.sampling,
      )
      valid &= exists
    else:
      probs = parents.probs.processed
      tokens = sampling_lib.tokens(
        uniforms, parents.logits, probs, tree_spec.sampling
      )
    token_probs = jnp.take_along_axis(
      parents.probs.raw, tokens[..., None], axis=-1, mode='clip'
    )
    path_probs = path_probs * token_probs[..., 0]
    prediction, valid_read = None, valid
    if depth < tree_spec.read_depth:
      index = np.searchsorted(level, tree_spec.read_nodes(depth))
      prediction, pending = self.read_level(
        depth,
        tokens[:, index],
        jax.tree.map(lambda leaf: leaf[:, index], parents),
        pending,
      )
      valid_read, path_probs = valid[:, index], path_probs[:, index]
    below, pending = self.draft_levels(
      depth + 1, prediction, valid_read, path_probs, pending
    )
    drafted = _Level(tokens, valid, probs, parents.probs.raw, prediction)
    return [drafted, *below], pending

  def _scores(self, depth: int, above: Prediction) -> jax.Array:
    """Returns `[B, P, V]` scores of a level's tokens, the best of which count.

    Args:
      depth: of the level.
      above: the prediction after the nodes above that were read.
    """
    if not self.tree_spec.sampling.shared_noise:
      return above.logits
    return siblings.shared_scores(
      self.context.noise, np.array([depth]), above.probs.processed
    )

  def _stopped_levels(
    self, first: int, parents: Prediction, pending: base.PendingKV
  ) -> tuple[list[_Level], base.PendingKV]:
    """Returns what `draft_levels` does, where nothing is drafted any more."""
    tree_spec = self.tree_spec
    is_chosen = tree_spec.siblings is base.Siblings.CHOSEN
    levels, padded = [], pending
    for depth in range(first, tree_spec.topology.depth):
      width = len(tree_spec.topology.levels[depth])
      tokens, valid = (
        jnp.zeros((len(parents.logits), width), dtype)
        for dtype in (jnp.int32, bool)
      )
      prediction = None
      if depth < tree_spec.read_depth:
        num_read = len(tree_spec.read_nodes(depth))
        prediction = _zeros(parents, num_read)
        read_level = functools.partial(self.read_level, depth)
        _, padded = jax.eval_shape(
          read_level, tokens[:, :num_read], prediction, padded
        )
      probs = parents.probs if depth == first else _zeros(parents, width).probs
      drawn_from = None if is_chosen else probs.processed
      levels.append(_Level(tokens, valid, drawn_from, probs.raw, prediction))
    return levels, padding.pad_to(pending, padded)


def _zeros(prediction: Prediction, width: int) -> Prediction:
  """Returns zeros in place of a prediction after so many nodes."""
  return jax.tree.map(
    lambda leaf: jnp.zeros((len(leaf), width, *leaf.shape[2:]), leaf.dtype),
    prediction,
  )


def _join_levels(
  tree_spec: TreeSpec, root: Prediction, levels: list[_Level]
) -> base.DraftTree:
  """Returns the tree of levels; `root` is the prediction after the root."""
  join = lambda parts: jax.tree.map(
    lambda *leaves: jnp.concatenate(leaves, axis=1), *parts
  )
  no_probs = jax.tree.map(lambda probs: probs[:, :0], root.probs)
  no_tokens = jnp.zeros((len(root.logits), 0), jnp.int32)
  bonus_probs = None
  if tree_spec.bonus_probs:
    predictions = [root, *(level.prediction for level in levels)]
    predicted = join([node.probs for node in predictions if node])
    leaves = tree_spec.topology.leaf_entries
    bonus_probs = jax.tree.map(lambda probs: probs[:, leaves], predicted)
  drawn_from = [level.probs for level in levels]
  is_chosen = any(probs is None for probs in drawn_from)
  valid = [no_tokens.astype(bool), *(level.valid for level in levels)]
  return base.DraftTree(
    tokens=join([no_tokens, *(level.tokens for level in levels)]),
    topology=tree_spec.topology,
    valid=join(valid),
    probs=None if is_chosen else join([no_probs.processed, *drawn_from]),
    raw_probs=join([no_probs.raw, *(level.raw_probs for level in levels)]),
    bonus_probs=bonus_probs,
  )
