"""Several drafters at once: all of them draft, and one tree holds their drafts.

MetaSD (Kim et al. 2026) measures this as "draft-all", against bandits that play
one drafter a round.
"""

from collections.abc import Sequence
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import registry
from specjax import trees


@registry.component(
  params=lambda drafters, model_params: (model_params,) * len(drafters)
)
def ensemble(drafters: Sequence[base.Drafter]) -> base.Drafter:
  """Builds a drafter whose trees are its members' trees, under one root.

  Siblings come from different members: sampled drafts need a verifier that
  asks each for its own, such as `VERIFIERS['ensemble']`. A member has read its
  own drafts only, and lags behind where another's was accepted.

  Args:
    drafters: the members, at least one. With others that sample, members that
      choose their tokens count as sampling from one-hot distributions.

  Returns:
    The drafter; its parameters and its state are tuples of the members'.

  Raises:
    ValueError: there is no member, or they differ in their vocabularies.
  """
  members = tuple(drafters)
  if not members:
    raise ValueError('drafters must hold at least one drafter, got none.')
  topologies = []
  for member in members:
    if not isinstance(member.topology, trees.Topology):
      raise ValueError(
        f'drafters must draft static trees, got one of {member.topology}.'
      )
    topologies.append(member.topology)
  vocab_size = _vocab_size(members)
  topology, nodes = trees.join(topologies)
  return base.Drafter(
    topology=topology,
    init=functools.partial(_init, members),
    draft=functools.partial(_draft, members, topology, nodes, vocab_size),
    commit=functools.partial(_commit, members),
    catch_up=base.CatchUp(
      functools.partial(_catch_up, members), every_round=True
    ),
    taps=tuple(tap for member in members for tap in member.taps),
    num_calls=sum(member.num_calls for member in members),
    vocab_size=vocab_size,
    partial=any(member.partial for member in members),
    own_probs=any(member.own_probs for member in members)
    or (len(members) > 1 and vocab_size is not None),
    greedy=all(member.greedy for member in members),
    max_length=min(
      (each.max_length for each in members if each.max_length is not None),
      default=None,
    ),
  )


def _init(members: Sequence[base.Drafter], params, context, max_length):
  return tuple(
    member.init(own, each, max_length)
    for member, own, each in zip(
      members, params, _contexts(members, context), strict=True
    )
  )


def _draft(
  members: Sequence[base.Drafter],
  topology,
  nodes,
  vocab_size,
  keys,
  params,
  state,
  context,
):
  drafts = [
    member.draft(
      jax.vmap(jax.random.fold_in, (0, None))(keys, i), own, part, each
    )
    for i, (member, own, part, each) in enumerate(
      zip(members, params, state, _contexts(members, context), strict=True)
    )
  ]
  forest, proposals = zip(*drafts)
  return _join(forest, topology, nodes, vocab_size), (
    tuple((tree.tokens, tree.valid) for tree in forest),
    proposals,
  )


def _commit(
  members: Sequence[base.Drafter], state, proposal, context, outcome, rows
):
  return tuple(
    member.commit(
      own, drafted, each, _own(member.topology, tokens, valid, outcome), rows
    )
    for member, own, each, (tokens, valid), drafted in zip(
      members, state, _contexts(members, context), *proposal, strict=True
    )
  )


def _catch_up(members: Sequence[base.Drafter], params, state, context, rows):
  states, nums = [], [jnp.zeros_like(rows, jnp.int32)]
  for member, own, part, each in zip(
    members, params, state, _contexts(members, context), strict=True
  ):
    if member.catch_up is not None:
      part, num = member.catch_up.read(own, part, each, rows)
      nums.append(num)
    states.append(part)
  return tuple(states), sum(nums)


def _contexts(members: Sequence[base.Drafter], context):
  """What each member may see: of the features, its own."""
  ends = np.cumsum([len(member.taps) for member in members]).tolist()
  starts = [0, *ends[:-1]]
  return [
    context._replace(features=context.features[start:end])
    for start, end in zip(starts, ends)
  ]


def _vocab_size(members: Sequence[base.Drafter]):
  """That of all members that have one, or None."""
  sizes = [member.vocab_size for member in members]
  known = sorted({size for size in sizes if size is not None})
  if len(known) > 1:
    raise ValueError(
      f'drafters must share a vocabulary, got vocab_size {sizes}.'
    )
  return known[0] if known else None


def _join(forest, topology, nodes, vocab_size):
  """The members' trees as one, with nodes where `nodes` has each tree's.

  There are no `bonus_probs`: behind leaves that agree, members would differ.
  """
  order = np.argsort(np.concatenate(nodes))
  sampled = any(tree.probs is not None for tree in forest)
  predicted = any(tree.raw_probs is not None for tree in forest)

  def alike(tree):
    tree = tree._replace(topology=topology, bonus_probs=None)
    if not sampled and not predicted:
      return tree
    both = tree.both_probs(vocab_size)
    probs = both.processed if sampled else None
    return tree._replace(probs=probs, raw_probs=both.raw)

  return jax.tree.map(
    lambda *parts: jnp.concatenate(parts, axis=1)[:, order],
    *map(alike, forest),
  )


def _own(topology, tokens, valid, outcome):
  """The outcome for a member: its longest path that spells what was accepted.

  The tokens stay those of the rows; what follows its path is another's, or the
  correction.
  """
  level = topology.depths - 1
  agrees = valid & (tokens == outcome.tokens[:, level])
  agrees &= level[None] < outcome.num_accepted[:, None]
  # Of root and nodes, those with no ancestor that disagrees.
  agrees = jnp.pad(agrees, ((0, 0), (1, 0)), constant_values=True)
  spells = (agrees[:, None] | ~topology.mask[None]).all(-1)
  last = jnp.argmax(jnp.where(spells, topology.offsets[None], -1), axis=1)
  return base.Outcome(
    path=jnp.asarray(_paths(topology))[last],
    num_accepted=jnp.asarray(topology.offsets)[last],
    tokens=outcome.tokens[:, : topology.depth + 1],
  )


def _paths(topology):
  """`[N + 1, D]` the nodes from the root to each entry, then 0."""
  paths = np.zeros((topology.num_nodes + 1, topology.depth), np.int32)
  for path, mask in zip(paths, topology.mask[:, 1:]):
    path[: mask.sum()] = np.flatnonzero(mask)
  return paths
