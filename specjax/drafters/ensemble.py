"""Several drafters at once: all of them draft, and one tree holds their drafts.

MetaSD (Kim et al. 2024) measures this as "draft-all", against bandits that play
one drafter a round.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees


@base.component(
  params=lambda drafters, model_params: (model_params,) * len(drafters)
)
def ensemble(drafters: Sequence[base.Drafter]) -> base.Drafter:
  """Builds a drafter whose trees are its members' trees, under one root.

  Siblings have laws of different members: sampled drafts need a verifier that
  asks each for its own, such as `VERIFIERS['ensemble']`. A member has read its
  own drafts only, and lags behind where another's was accepted.

  Args:
    drafters: the members, at least one. With others that sample, members that
      choose their tokens count as sampling from one-hot laws.

  Returns:
    The drafter; its parameters and its state are tuples of the members'.

  Raises:
    ValueError: there is no member, or they differ in their vocabularies.
  """
  members = tuple(drafters)
  if not members:
    raise ValueError('drafters must hold at least one drafter, got none.')
  topology, nodes = trees.join([member.topology for member in members])
  vocab_size = _vocab_size(members)

  def init(params, *args):
    return tuple(
      member.init(own, *args)
      for member, own in zip(members, params, strict=True)
    )

  def draft(keys, params, state, context):
    drafts = [
      member.draft(
        jax.vmap(jax.random.fold_in, (0, None))(keys, i), *own, context
      )
      for i, (member, *own) in enumerate(
        zip(members, params, state, strict=True)
      )
    ]
    forest, proposals = zip(*drafts)
    return _join(forest, topology, nodes, vocab_size), (
      tuple((tree.tokens, tree.valid) for tree in forest),
      proposals,
    )

  def commit(state, proposal, context, outcome, keep):
    return tuple(
      member.commit(
        own, drafted, context, _own(member.topology, *tree, outcome), keep
      )
      for member, own, tree, drafted in zip(
        members, state, *proposal, strict=True
      )
    )

  def catch_up(params, state, context, wanted, committed=None):
    del committed  # No round asks what lags for its overlaps.
    caught = [
      member.catch_up(*own, context, wanted)
      for member, *own in zip(members, params, state, strict=True)
    ]
    return base.CatchUp(
      tuple(each.state for each in caught),
      sum(each.num_tokens for each in caught),
    )

  return base.Drafter(
    topology=topology,
    init=init,
    draft=draft,
    commit=commit,
    catch_up=catch_up,
    num_calls=sum(member.num_calls for member in members),
    vocab_size=vocab_size,
    partial=any(member.partial for member in members),
    lags=True,
  )


def _vocab_size(members):
  """That of all members that have one, or None."""
  sizes = [member.vocab_size for member in members]
  known = sorted(set(sizes) - {None})
  if len(known) > 1:
    raise ValueError(
      f'drafters must share a vocabulary, got vocab_size {sizes}.'
    )
  return known[0] if known else None


def _join(forest, topology, nodes, vocab_size):
  """The members' trees as one, with nodes where `nodes` has each tree's.

  There are no `leaf_laws`: behind leaves that agree, members would differ.
  """
  order = np.argsort(np.concatenate(nodes))
  sampled = any(tree.probs is not None for tree in forest)

  def alike(tree):
    if sampled and tree.probs is None:
      tree = tree._replace(probs=jax.nn.one_hot(tree.tokens, vocab_size))
    return tree._replace(
      topology=topology, leaf_laws=None, untempered=tree.laws.untempered
    )

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
  agrees &= level < outcome.num_accepted[:, None]
  # Of root and nodes, those with no ancestor that disagrees.
  agrees = jnp.pad(agrees, ((0, 0), (1, 0)), constant_values=True)
  spells = (agrees[:, None] | ~topology.mask).all(-1)
  last = jnp.argmax(jnp.where(spells, topology.offsets, -1), axis=1)
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
