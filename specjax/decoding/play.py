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


class Scored(NamedTuple):
  """A draft that the target has scored, and what a verifier takes."""

  keys: jax.Array  # [B] one key a row
  tree: base.DraftTree
  laws: base.Laws  # [B, N + 1, V] the target's
  proposal: Any  # for the drafter's `commit`
  block: Any  # of the target, for `keep`
  nonfinite: jax.Array  # [B] bool


class Played(NamedTuple):
  """What an arm's round computed; padded, so that arms have one type."""

  outcome: base.Outcome  # batched, of the deepest tree
  depth: jax.Array  # [B] int32, of the deepest valid node
  evidence: evidence.Evidence


def draft_and_score(
  target: base.LanguageModel,
  drafter: base.Drafter,
  sampling: sampling_lib.Sampling,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  context: base.Context,
  arm: int = 0,
  memory: int | None = None,
) -> Scored:
  """Plays a round up to its verification.

  Args:
    target: the model to sample from.
    drafter: of the arm.
    sampling: how the target's tokens are drawn.
    params: of all models.
    state: of the decode; only read.
    context: what the drafter sees of it.
    arm: whose parameters are the drafter's.
    memory: which of `state.drafters` is its own; that of the arm, by default.
  """
  draft_keys, verify_keys = _keys(state)
  tree, proposal = drafter.draft(
    draft_keys,
    params.drafters[arm],
    state.drafters[arm if memory is None else memory],
    context,
  )
  laws, block, nonfinite = _score(
    target,
    sampling,
    params,
    state,
    tree.tokens,
    drafter.topology.offsets,
    drafter.topology.mask,
  )
  return Scored(verify_keys, tree, laws, proposal, block, nonfinite)


def make_batch_play(target, arms, memories, sampling, always):
  """One arm for all rows: a switch that drafts, scores and verifies.

  Returns:
    `(arm[B], params, state, context)` to what was played, the target's block,
    `[B]` whether its logits were not finite, and a proposal for each memory,
    which is zeros where it was not played.
  """

  def run(i, params, state, context):
    scored = draft_and_score(
      target, arms[i].drafter, sampling, params, state, context, i, memories[i]
    )
    played = _verify(arms[i], scored.keys, scored.tree, scored.laws, always)
    return (played, scored.block, scored.nonfinite), scored.proposal

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
  topologies = [arm.drafter.topology for arm in arms]
  sizes = np.array([topology.num_nodes for topology in topologies])
  widths = np.unique(sizes)
  offsets = np.full((len(arms), widths[-1] + 1), -1, np.int32)
  masks = np.tile(np.eye(widths[-1] + 1, dtype=bool), (len(arms), 1, 1))
  for i, (size, topology) in enumerate(zip(sizes, topologies)):
    offsets[i, : size + 1] = topology.offsets
    masks[i, : size + 1, : size + 1] = topology.mask

  def score(arm, params, state, tokens):
    """Scores a block as wide as the largest tree that was chosen."""

    def at(width):
      return lambda: _score(
        target,
        sampling,
        params,
        state,
        tokens[:, :width],
        jnp.asarray(offsets)[arm, : width + 1],
        jnp.asarray(masks)[arm, : width + 1, : width + 1],
      )

    if len(widths) == 1:
      return at(widths[0])()
    widest = jax.eval_shape(at(widths[-1]))
    branches = [
      lambda width=width: jax.tree.map(base.pad_to, at(width)(), widest)
      for width in widths
    ]
    needed = jnp.max(jnp.where(state.done, 0, jnp.asarray(sizes)[arm]))
    return jax.lax.switch(jnp.searchsorted(widths, needed), branches)

  def play(arm, params, state, context):
    draft_keys, verify_keys = _keys(state)
    plays = [~state.done & (arm == i) for i in range(len(arms))]
    drafts = [
      _if_any(
        plays[i],
        lambda i=i: arms[i].drafter.draft(
          draft_keys, params.drafters[i], state.drafters[memories[i]], context
        ),
      )
      for i in range(len(arms))
    ]
    tokens = _of_rows(plays, [tree.tokens for tree, _ in drafts])
    laws, block, nonfinite = score(arm, params, state, tokens)
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
    `[B, N + 1, V]` laws, the target's open block, and `[B]` whether a
    logit was NaN or infinite.
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
  return (
    sampling_lib.laws(extension.logits, sampling),
    extension.block,
    ~(extension.logits < jnp.inf).all(axis=(1, 2)),
  )


def _verify(arm, keys, tree, laws, always):
  goal = None
  if arm.goal is not None:
    goal = jax.vmap(functools.partial(goals.laws, arm.goal))(tree, laws)
  sampled = laws.sampled if goal is None else goal
  outcome = jax.vmap(arm.verifier)(keys, tree, sampled)
  return Played(
    outcome,
    (tree.valid * tree.topology.depths).max(axis=1, initial=0),
    evidence.of_tree(tree, laws, goal, outcome, always),
  )


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
