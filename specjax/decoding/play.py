"""Playing an arm: it drafts, the target scores, its verifier picks.

Only what was chosen runs. Arms read the caches and return what is to be written
to them.
"""

import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import goals
from specjax import sampling as sampling_lib
from specjax.decoding import evidence
from specjax.decoding import state as state_lib


class Played(NamedTuple):
  """What an arm's round computed; padded, so that arms have one type."""

  outcome: base.Outcome  # batched, of the deepest tree
  depth: jax.Array  # [B] int32, of the deepest valid node
  evidence: evidence.Evidence


class Draft(NamedTuple):
  """What an arm's drafter proposes, and what is needed to verify it."""

  keys: jax.Array  # [B] one key a row, for the verifier
  tree: base.DraftTree
  proposal: Any  # for the drafter's `commit`


def draft(
  drafter: base.Drafter,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  arm: int = 0,
  memory: int | None = None,
) -> Draft:
  """Lets a drafter propose.

  Args:
    drafter: of the arm.
    params: of all models.
    state: of the decode; only read.
    arm: whose parameters are the drafter's.
    memory: which of `state.drafters` is its own; that of the arm, by default.
  """
  draft_keys, verify_keys = _keys(state)
  tree, proposal = drafter.draft(
    draft_keys,
    params.drafters[arm],
    state.drafters[arm if memory is None else memory],
    base.Context(tokens=state.tokens, lengths=state.lengths),
  )
  return Draft(verify_keys, tree, proposal)


def make_batch_play(target, arms, memories, sampling, always):
  """One arm for all rows: a switch that drafts, scores and verifies.

  Returns:
    `(arm[B], params, state)` to what was played, the target's block, `[B]`
    whether what it said was not finite, and a proposal for each memory, which
    is zeros where it was not played.
  """

  def run(i, params, state):
    drafted = draft(arms[i].drafter, params, state, i, memories[i])

    def judge(depth):
      """Scores the tree down to a depth; of an empty one, no more is asked."""
      scored = _cut(drafted.tree, depth)
      laws, block, nonfinite = score(target, sampling, params, state, scored)
      tree = drafted.tree if depth else scored
      room = tree.topology.num_nodes - scored.topology.num_nodes
      laws = jax.tree.map(
        lambda law: jnp.pad(law, ((0, 0), (0, room), (0, 0))), laws
      )
      played = _verify(arms[i], drafted.keys, tree, laws, always)
      return played, block, nonfinite

    depths = _depths(arms[i].drafter)
    deepest = jnp.max(_deepest(drafted.tree) * ~state.done)
    index = jnp.searchsorted(jnp.asarray(depths), deepest)
    return _narrowest(depths, index, judge), drafted.proposal

  def play(arm, *args):
    runs = [functools.partial(run, i) for i in range(len(arms))]
    if len(arms) == 1:
      scored, proposal = run(0, *args)
      return *scored, (proposal,)
    shapes = [jax.eval_shape(run, *args) for run in runs]
    # A switch needs one type: the largest tree's, and every memory's proposal.
    widest = _widest([scored for scored, _ in shapes])
    proposals = [proposal for _, proposal in shapes]
    rooms = [_widest(each) for each in _by_memory(memories, proposals)]

    def branch(i, *args):
      scored, proposal = runs[i](*args)
      scored = jax.tree.map(base.pad_to, scored, widest)
      kept = [
        jax.tree.map(base.pad_to, proposal, room)
        if slot == memories[i]
        else _zeros(room)
        for slot, room in enumerate(rooms)
      ]
      return *scored, tuple(kept)

    branches = [functools.partial(branch, i) for i in range(len(arms))]
    return jax.lax.switch(arm[0], branches, *args)

  return play


def make_row_play(target, arms, memories, sampling, always):
  """An arm for each row: drafts of chosen arms, one target call for all.

  Rows have trees of their own shapes in it, under masks of their own. Returns
  what `make_batch_play` does.
  """
  sizes = [arm.drafter.topology.num_nodes for arm in arms]
  offsets, masks = _tables([arm.drafter.topology for arm in arms])
  # Nodes of each arm's tree, cut at some depths.
  cuts = [
    [arm.drafter.topology.cut(d).num_nodes for d in _depths(arm.drafter)]
    for arm in arms
  ]
  widths = np.unique(np.concatenate(cuts))

  def score_rows(arm, params, state, tokens, plays, forest):
    """Scores a block as wide as the largest tree that was drafted."""
    needed = [
      jnp.where(rows, _nodes_up_to(arms[i], cuts[i], tree), 0).max()
      for i, (rows, tree) in enumerate(zip(plays, forest))
    ]
    return _narrowest(
      widths,
      jnp.searchsorted(widths, functools.reduce(jnp.maximum, needed)),
      lambda width: _score(
        target,
        sampling,
        params,
        state,
        tokens[:, :width],
        jnp.asarray(offsets)[arm, : width + 1],
        jnp.asarray(masks)[arm, : width + 1, : width + 1],
      ),
    )

  def play(arm, params, state):
    plays = [~state.done & (arm == i) for i in range(len(arms))]
    drafts = [
      _if_any(
        plays[i],
        lambda i=i: draft(arms[i].drafter, params, state, i, memories[i])[1:],
      )
      for i in range(len(arms))
    ]
    _, verify_keys = _keys(state)
    forest = [tree for tree, _ in drafts]
    tokens = _of_rows(plays, [tree.tokens for tree in forest])
    laws, block, nonfinite = score_rows(
      arm, params, state, tokens, plays, forest
    )
    played = [
      _if_any(
        plays[i],
        lambda i=i, tree=tree: _verify(
          arms[i],
          verify_keys,
          tree,
          jax.tree.map(lambda law: law[:, : sizes[i] + 1], laws),
          always,
        ),
      )
      for i, (tree, _) in enumerate(drafts)
    ]
    proposals = tuple(
      _of_rows(*zip(*each))
      for each in _by_memory(
        memories,
        [(rows, proposal) for rows, (_, proposal) in zip(plays, drafts)],
      )
    )
    return _of_rows(plays, played), block, nonfinite, proposals

  return play


@jax.vmap
def where(rows: jax.Array, new: Any, old: Any) -> Any:
  """Returns the rows of `new` where `rows` `[B]` is true, else of `old`."""
  return jax.tree.map(lambda new, old: jnp.where(rows, new, old), new, old)


def _keys(state):
  """Keys of every row for drafting and for verifying, by what it has said."""
  keys = jax.vmap(jax.random.fold_in)(state.keys, state.lengths)
  return jax.vmap(jax.random.split, out_axes=1)(keys)


def score(
  target: base.LanguageModel,
  sampling: sampling_lib.Sampling,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  tree: base.DraftTree,
) -> tuple[base.Laws, Any, jax.Array]:
  """Returns `[B, N + 1, V]` the target's laws, and more as `_score` does."""
  topology = tree.topology
  return _score(
    target,
    sampling,
    params,
    state,
    tree.tokens,
    topology.offsets,
    topology.mask,
  )


def _score(target, sampling, params, state, tokens, offsets, mask):
  """Scores root and nodes.

  Args:
    target: the model to sample from.
    sampling: how its tokens are drawn.
    params: of all models.
    state: of the decode.
    tokens: `[B, N]` the nodes.
    offsets: `[N + 1]` or `[B, N + 1]` position of root and nodes behind the
      root; negative where there is no node.
    mask: `[N + 1, N + 1]`, or one for each row, of ancestors.

  Returns:
    `[B, N + 1, V]` laws, the target's open block, and `[B]` whether a logit or
    a probability was not finite.
  """
  last = state.lengths[:, None] - 1
  root = jnp.take_along_axis(state.tokens, last, axis=1)
  extension = target.extend(
    params.target,
    state.target,
    jnp.concatenate([root, tokens], axis=1),
    positions=jnp.where(offsets < 0, -1, last + offsets),
    mask=mask,
  )
  # A softmax is finite if and only if the largest logit is, after temperature.
  largest = extension.logits.max(-1) / (sampling.temperature or 1.0)
  return (
    sampling_lib.laws(extension.logits, sampling),
    extension.block,
    ~jnp.isfinite(largest).all(axis=1),
  )


def _verify(arm, keys, tree, laws, always):
  goal = None
  if arm.goal is not None:
    goal = jax.vmap(functools.partial(goals.laws, arm.goal))(tree, laws)
  sampled = laws.sampled if goal is None else goal
  outcome = jax.vmap(arm.verifier)(keys, tree, sampled)
  return Played(
    outcome, _deepest(tree), evidence.of_tree(tree, laws, goal, outcome, always)
  )


def _cut(tree, depth):
  """The tree down to a depth; cut, it says nothing behind its leaves."""
  if depth == tree.topology.depth:
    return tree
  topology = tree.topology.cut(depth)
  nodes = slice(topology.num_nodes)
  tree = tree._replace(leaf_laws=None)
  tree = jax.tree.map(lambda leaf: leaf[:, nodes], tree)
  return tree._replace(topology=topology)


def _deepest(tree):
  """`[B]` depth of the deepest valid node of each row."""
  return (tree.valid * tree.topology.depths).max(axis=1, initial=0)


def _depths(drafter):
  """Depths at which the target's call may end: few, since each is compiled."""
  depth = drafter.topology.depth
  steps = [0, *(4**i for i in range(depth.bit_length()))]
  return [*(each for each in steps if drafter.partial and each < depth), depth]


def _nodes_up_to(arm, cuts, tree):
  """`[B]` nodes of the arm's tree that hold all valid ones of each row."""
  depths = jnp.asarray(_depths(arm.drafter))
  return jnp.asarray(cuts)[jnp.searchsorted(depths, _deepest(tree))]


def _tables(topologies):
  """`[A, N + 1]` offsets and `[A, N + 1, N + 1]` masks, of the widest tree."""
  size = max(topology.num_nodes for topology in topologies) + 1
  offsets = np.full((len(topologies), size), -1, np.int32)
  masks = np.tile(np.eye(size, dtype=bool), (len(topologies), 1, 1))
  for i, topology in enumerate(topologies):
    own = topology.num_nodes + 1
    offsets[i, :own] = topology.offsets
    masks[i, :own, :own] = topology.mask
  return offsets, masks


def _narrowest(widths, index, score):
  """Returns `score(widths[index])`, padded to what the last width gives."""
  if len(widths) == 1:
    return score(widths[0])
  widest = jax.eval_shape(lambda: score(widths[-1]))
  branches = [
    lambda width=width: jax.tree.map(base.pad_to, score(width), widest)
    for width in widths
  ]
  return jax.lax.switch(index, branches)


def _if_any(rows, function):
  """Calls a function if any row wants it; else the result is zeros."""
  shape = jax.eval_shape(function)
  return jax.lax.cond(rows.any(), function, lambda: _zeros(shape))


def _of_rows(plays, results):
  """Merges the results of arms, each from the rows that played it."""
  widest = _widest(results)
  padded = [jax.tree.map(base.pad_to, result, widest) for result in results]
  merged = _zeros(widest)
  for rows, result in zip(plays, padded):
    merged = where(rows, result, merged)
  return merged


def _by_memory(memories, values):
  """Lists the arms' values memory by memory."""
  return [
    [value for value, memory in zip(values, memories) if memory == slot]
    for slot in range(max(memories) + 1)
  ]


def _zeros(shapes):
  return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)


def _widest(results):
  """Shapes that all results, which differ in their sizes, can be padded to."""

  def widest(*leaves):
    shape = np.max([leaf.shape for leaf in leaves], axis=0)
    return jax.ShapeDtypeStruct(tuple(shape), leaves[0].dtype)

  return jax.tree.map(widest, *results)
