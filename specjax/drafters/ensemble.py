"""Several drafters at once: all of them draft, and one tree holds their drafts.

MetaSD (Kim et al. 2026) measures this as "draft-all", against bandits that
select one drafter per round.
"""

from collections.abc import Iterable
from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import trees


@components.component
class Ensemble(base.Drafter):
  """Joins the trees of its members under one root.

  Siblings come from different members: sampled drafts need a verifier that
  takes a distribution for each, such as `VERIFIERS['ensemble']`. A member has
  read its own drafts only, and lags where another's was accepted. Parameters
  and state are tuples of the members'.

  Attributes:
    drafters: the members, at least one. If some members sample, those that
      choose their tokens count as sampling from one-hot distributions.

  Raises:
    ValueError: there is no member, or they differ in their vocabularies or in
      the size of the features that they read.
  """

  drafters: Sequence[base.Drafter]

  can_catch_up = True
  lags_after_own_rounds = True

  def __post_init__(self) -> None:
    components.freeze_sequences(self, 'drafters')
    if not self.drafters:
      raise ValueError('drafters must hold at least one drafter, got none.')
    for member in self.drafters:
      if not isinstance(member.topology, trees.Topology):
        raise ValueError(
          f'drafters must draft static trees, got one of {member.topology}.'
        )
    for name in ('vocab_size', 'feature_size'):
      sizes = [getattr(member, name) for member in self.drafters]
      if len({*sizes} - {None}) > 1:
        raise ValueError(f'drafters must share a {name}, got {sizes}.')

  @functools.cached_property
  def topologies(self) -> list[trees.Topology]:
    """The members' trees."""
    topologies = [member.topology for member in self.drafters]
    return [tree for tree in topologies if isinstance(tree, trees.Topology)]

  @functools.cached_property
  def topology(self) -> trees.Topology:
    """The members' trees under one root."""
    return trees.join(self.topologies)[0]

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """Those of all members, one after the other."""
    return tuple(tap for member in self.drafters for tap in member.taps)

  @functools.cached_property
  def num_calls(self) -> int:
    """The sum, as members draft one after the other."""
    return sum(member.num_calls for member in self.drafters)

  @functools.cached_property
  def vocab_size(self) -> int | None:
    """That of all members that have one."""
    return _first(member.vocab_size for member in self.drafters)

  @functools.cached_property
  def feature_size(self) -> int | None:
    """That of all members that read features."""
    return _first(member.feature_size for member in self.drafters)

  @functools.cached_property
  def max_length(self) -> int | None:
    """The smallest of the members'."""
    lengths = [member.max_length for member in self.drafters]
    return min((num for num in lengths if num is not None), default=None)

  @functools.cached_property
  def num_likeliest(self) -> int:
    """The largest of the members'."""
    return max(member.num_likeliest for member in self.drafters)

  @functools.cached_property
  def may_stop_early(self) -> bool:
    """True if a member may, and no other reads what follows invalid nodes."""
    return any(member.may_stop_early for member in self.drafters) and all(
      member.may_stop_early or not member.num_likeliest
      for member in self.drafters
    )

  @functools.cached_property
  def siblings(self) -> base.Siblings:
    """Those of one member; of several, independent if one of them samples."""
    kinds = {member.siblings for member in self.drafters}
    if len(self.drafters) == 1 or kinds == {base.Siblings.CHOSEN}:
      return self.drafters[0].siblings
    return base.Siblings.INDEPENDENT

  @functools.cached_property
  def greedy(self) -> bool:
    """True if all members are."""
    return all(member.greedy for member in self.drafters)

  def init(
    self, params: base.Params, context: base.Context, max_length: int
  ) -> tuple[base.DraftState, ...]:
    """Lets all members read the prompts."""
    members = zip(self.drafters, params, self._contexts(context), strict=True)
    return tuple(
      member.init(member_params, member_context, max_length)
      for member, member_params, member_context in members
    )

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: tuple[base.DraftState, ...],
    context: base.Context,
  ) -> tuple[base.DraftTree, Any]:
    """Lets all members draft, and joins their trees."""
    inputs = zip(params, state, self._contexts(context), strict=True)
    fold_in = jax.vmap(jax.random.fold_in, (0, None))
    drafts = [
      member.draft(fold_in(keys, i), *member_inputs)
      for i, (member, member_inputs) in enumerate(
        zip(self.drafters, inputs, strict=True)
      )
    ]
    forest, proposals = zip(*drafts)
    drafted = tuple((tree.tokens, tree.valid) for tree in forest)
    return self._join(forest), (drafted, proposals)

  def commit(
    self,
    state: tuple[base.DraftState, ...],
    proposal: Any,
    context: base.Context,
    outcome: base.Outcome,
    rows: jax.Array,
  ) -> tuple[base.DraftState, ...]:
    """Lets each member commit the part of the accepted path that it drafted."""
    contexts = self._contexts(context)
    return tuple(
      member.commit(
        member_state,
        member_proposal,
        member_context,
        member_outcome(topology, drafted, outcome),
        rows,
      )
      for (
        member,
        topology,
        member_state,
        member_context,
        drafted,
        member_proposal,
      ) in zip(
        self.drafters, self.topologies, state, contexts, *proposal, strict=True
      )
    )

  def catch_up(
    self,
    params: base.Params,
    state: tuple[base.DraftState, ...],
    context: base.Context,
    rows: jax.Array,
  ) -> tuple[tuple[base.DraftState, ...], jax.Array]:
    """Lets all members catch up that can; returns the sum of their tokens."""
    states, num_read = [], jnp.zeros_like(rows, jnp.int32)
    for member, member_params, member_state, member_context in zip(
      self.drafters, params, state, self._contexts(context), strict=True
    ):
      if member.can_catch_up:
        member_state, num = member.catch_up(
          member_params, member_state, member_context, rows
        )
        num_read += num
      states.append(member_state)
    return tuple(states), num_read

  def observe(
    self,
    state: tuple[base.DraftState, ...],
    scored: base.Scored,
    rows: jax.Array,
  ) -> tuple[base.DraftState, ...]:
    """Lets members read what the target has predicted, each its nodes first."""
    _, nodes = trees.join(self.topologies)
    members = zip(self.drafters, state, nodes, strict=True)
    return tuple(
      member.observe(member_state, _member_first(scored, member_nodes), rows)
      if member.num_likeliest
      else member_state
      for member, member_state, member_nodes in members
    )

  def _contexts(self, context: base.Context) -> list[base.Context]:
    """Returns what each member may see: only its own hidden states."""
    ends = np.cumsum([len(member.taps) for member in self.drafters]).tolist()
    starts = [0, *ends[:-1]]
    return [
      context._replace(features=context.features[start:end])
      for start, end in zip(starts, ends)
    ]

  def _join(self, forest: Sequence[base.DraftTree]) -> base.DraftTree:
    """Returns the members' trees as one.

    There are no `bonus_probs`: after leaves that agree, members would differ.
    """
    topology, nodes = trees.join(self.topologies)
    order = np.argsort(np.concatenate(nodes))
    is_sampled = any(tree.probs is not None for tree in forest)
    is_predicted = any(tree.raw_probs is not None for tree in forest)

    def convert(tree):
      tree = tree._replace(topology=topology, bonus_probs=None)
      if not is_sampled and not is_predicted:
        return tree
      probs = tree.both_probs(self.vocab_size)
      processed = probs.processed if is_sampled else None
      return tree._replace(probs=processed, raw_probs=probs.raw)

    return jax.tree.map(
      lambda *parts: jnp.concatenate(parts, axis=1)[:, order],
      *map(convert, forest),
    )


def member_outcome(
  topology: trees.Topology,
  drafted: tuple[jax.Array, jax.Array],
  outcome: base.Outcome,
) -> base.Outcome:
  """Returns the outcome for a member of a joint tree.

  Its path is the member's longest one that spells accepted tokens. The tokens
  stay those of the rows; after the path, they are another member's, or the
  correction.

  Args:
    topology: of the member.
    drafted: `[B, N]` tokens of the member, and `[B, N]` which are valid.
    outcome: of the joint tree.
  """
  tokens, valid = drafted
  level = topology.depths - 1
  agrees = valid & (tokens == outcome.tokens[:, level])
  agrees &= level[None] < outcome.num_accepted[:, None]
  # Of root and nodes, those with no ancestor that disagrees.
  agrees = jnp.pad(agrees, ((0, 0), (1, 0)), constant_values=True)
  spells = trees.hold_along_paths(agrees, topology.mask)
  last = jnp.argmax(jnp.where(spells, topology.offsets[None], -1), axis=1)
  return base.Outcome(
    path=jnp.asarray(_paths(topology))[last],
    num_accepted=jnp.asarray(topology.offsets)[last],
    tokens=outcome.tokens[:, : topology.depth + 1],
  )


def _first(sizes: Iterable[int | None]) -> int | None:
  """Returns the first size that is not None; None if there is none."""
  return next((size for size in sizes if size is not None), None)


def _member_first(scored: base.Scored, nodes: np.ndarray) -> base.Scored:
  """Returns scored tokens in another order: root, a member's nodes, others.

  If the ensemble has drafted them, the member finds its nodes where they would
  be if it had drafted them alone.

  Args:
    scored: what the target has predicted.
    nodes: `[N]` numbers of the member's nodes in the joint tree.
  """
  first = np.append(0, nodes + 1)
  others = np.setdiff1d(np.arange(scored.tokens.shape[1]), first)
  order = np.append(first, others)
  return jax.tree.map(lambda leaf: leaf[:, order], scored)


def _paths(topology: trees.Topology) -> np.ndarray:
  """Returns `[N + 1, D]` the nodes from the root to each entry, then 0."""
  paths = np.zeros((topology.num_nodes + 1, topology.depth), np.int32)
  for path, mask in zip(paths, topology.mask[:, 1:]):
    path[: mask.sum()] = np.flatnonzero(mask)
  return paths
