"""Lookup where the match is long enough, and another drafter elsewhere.

SAM-Decoding (Hu et al. 2024, arXiv:2411.10666) selects in the same way between
the continuation of a match, from 5 tokens on, and an auxiliary drafter, such as
token recycling. There, a match in the corpus counts as 5 tokens shorter than
one in the row's own text; `Suffix` prefers neither.
"""

import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax import padding
from specjax import trees
from specjax.drafters import ensemble
from specjax.drafters import no_drafter
from specjax.drafters import stateless


class LookupOrProposal(NamedTuple):
  """What the other drafter has computed, if it was called."""

  inner: base.Proposal  # zeros if it was not called
  tokens: jax.Array  # [B, N] int32, its nodes
  valid: jax.Array  # [B, N] bool
  called: jax.Array  # [B] bool, equal in all rows


@components.component
class LookupOr(base.Drafter):
  """Drafts a lookup in rows with a long match, else with another drafter.

  The choice depends only on the committed text. The other drafter is called if
  a row whose draft is used has no match of `min_match` tokens; before that,
  it catches up with what was accepted from lookups. Parameters are a pair, of
  `lookup` and of `drafter`.

  Attributes:
    lookup: drafts a single chain; `PromptLookup`, `Suffix` or `Retrieval`.
    drafter: drafts a static tree in the other rows; by default, none, so that
      these rows decode plainly.
    min_match: number of tokens that must match for a lookup, from 1 to the
      longest match that `lookup` counts. It is data: arms that differ only in
      `min_match` share the state of `drafter`.

  Raises:
    ValueError: an argument is none of these.
  """

  lookup: base.Drafter
  drafter: base.Drafter = no_drafter.NoDrafter()
  _: dataclasses.KW_ONLY
  min_match: int = 2

  can_catch_up = True
  # What is accepted from a lookup, the other drafter has not read.
  lags_after_own_rounds = True

  def __post_init__(self) -> None:
    if not isinstance(self.lookup, stateless.MatchingDrafter):
      raise ValueError(
        'lookup must be a MatchingDrafter, such as PromptLookup, Suffix or '
        f'Retrieval, got a {type(self.lookup).__name__}.'
      )
    checks.check_integers(
      'min_match', self.min_match, 1, self.lookup.longest_match
    )
    if self.lookup.topology.width != 1:
      raise ValueError(
        'lookup must draft a single chain, got the tree '
        f'{self.lookup.topology}.'
      )
    if not isinstance(self.drafter.topology, trees.Topology):
      raise ValueError(
        f'drafter must draft static trees, got one of {self.drafter.topology}.'
      )

  @functools.cached_property
  def inner_topology(self) -> trees.Topology:
    """The tree of `drafter`."""
    topology = self.drafter.topology
    assert isinstance(topology, trees.Topology)  # See `__post_init__`.
    return topology

  @functools.cached_property
  def chain_nodes(self) -> np.ndarray:
    """The nodes of `topology` in which a lookup lies."""
    return trees.with_chain(self.inner_topology, self.lookup.topology.depth)[1]

  @functools.cached_property
  def topology(self) -> trees.Topology:
    """The tree of `drafter`, whose deepest path is as long as a lookup."""
    return trees.with_chain(self.inner_topology, self.lookup.topology.depth)[0]

  @functools.cached_property
  def tree_sizes(self) -> tuple[int, ...]:
    """Those of a lookup, and of the other drafter."""
    return tuple({self.topology.num_nodes, self.inner_topology.num_nodes})

  @functools.cached_property
  def slot(self) -> base.StateSlot | None:
    """Shared by drafters that differ in what they look up, and from when on."""
    slot = self.drafter.slot
    if slot is None:
      return None
    # Accepted nodes that were read are known by their numbers in the tree.
    tree = self.inner_topology if slot.num_levels else None
    return slot._replace(name=(slot.name, 'lookup_or', tree))

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    return self.drafter.taps

  @functools.cached_property
  def feature_size(self) -> int | None:
    return self.drafter.feature_size

  @functools.cached_property
  def num_calls(self) -> int:
    """The largest number, of a draft without a match."""
    return self.drafter.num_calls

  @functools.cached_property
  def vocab_size(self) -> int | None:
    return self.drafter.vocab_size

  @functools.cached_property
  def max_length(self) -> int | None:
    return self.drafter.max_length

  @functools.cached_property
  def may_stop_early(self) -> bool:
    """True unless `drafter` reads what follows invalid nodes."""
    return self.drafter.may_stop_early or not self.drafter.num_likeliest

  @functools.cached_property
  def num_likeliest(self) -> int:
    return self.drafter.num_likeliest

  @functools.cached_property
  def siblings(self) -> base.Siblings:
    """Those of `drafter`, as a lookup has none."""
    return self.drafter.siblings

  @functools.cached_property
  def greedy(self) -> bool:
    """Whether `drafter` is, as a lookup always is."""
    return self.drafter.greedy

  def init(
    self,
    params: tuple[base.Params, base.Params],
    context: base.Context,
    max_length: int,
  ) -> base.DraftState:
    """Lets the other drafter read the prompts."""
    return self.drafter.init(params[1], context, max_length)

  def draft(
    self,
    keys: jax.Array,
    params: tuple[base.Params, base.Params],
    state: base.DraftState,
    context: base.Context,
  ) -> tuple[base.DraftTree, LookupOrProposal]:
    """Drafts lookups, and calls the other drafter if a row needs it."""
    assert isinstance(self.lookup, stateless.MatchingDrafter)
    lookup = self.lookup.look_up(params[0], context)
    is_found = lookup.valid[:, 0] & (lookup.match_length >= self.min_match)
    call = functools.partial(
      self.drafter.draft, keys, params[1], state, context
    )
    shapes, inner_shapes = jax.eval_shape(call)
    found = self._convert(self._lookup_tree(lookup), shapes)

    def draft_rest() -> tuple[base.DraftTree, LookupOrProposal]:
      tree, inner = call()
      drafted = self._convert(self._extended(tree), shapes)
      chosen = _where(is_found, found, drafted)
      called = jnp.ones_like(is_found)
      return chosen, LookupOrProposal(inner, tree.tokens, tree.valid, called)

    def only_look_up() -> tuple[base.DraftTree, LookupOrProposal]:
      return found, LookupOrProposal(
        padding.zeros(inner_shapes),
        padding.zeros(shapes.tokens),
        padding.zeros(shapes.valid),
        jnp.zeros_like(is_found),
      )

    if not self.drafter.num_calls:
      return draft_rest()
    is_needed = context.of_rows(~is_found).any()
    return jax.lax.cond(is_needed, draft_rest, only_look_up)

  def commit(
    self,
    state: base.DraftState,
    proposal: LookupOrProposal,
    context: base.Context,
    outcome: base.Outcome,
    rows: jax.Array,
  ) -> base.DraftState:
    """Commits what the other drafter has read of the accepted path."""
    num = self.inner_topology.num_nodes
    drafted = proposal.tokens[:, :num], proposal.valid[:, :num]
    return self.drafter.commit(
      state,
      proposal.inner,
      context,
      ensemble.member_outcome(self.inner_topology, drafted, outcome),
      rows & proposal.called,
    )

  def catch_up(
    self,
    params: tuple[base.Params, base.Params],
    state: base.DraftState,
    context: base.Context,
    rows: jax.Array,
  ) -> tuple[base.DraftState, jax.Array]:
    """Lets the other drafter catch up, once it lags too far to draft."""
    if not self.drafter.can_catch_up:
      return state, jnp.zeros_like(rows, jnp.int32)
    return self.drafter.catch_up(params[1], state, context, rows)

  def observe(
    self, state: base.DraftState, scored: base.Scored, rows: jax.Array
  ) -> base.DraftState:
    """Lets the other drafter read what the target has predicted."""
    return self.drafter.observe(state, scored, rows)

  def _lookup_tree(self, lookup: stateless.Lookup) -> base.DraftTree:
    """Returns lookups as trees.

    Each node has the lookup's token of its level, so that siblings have equal
    distributions; only the chain is valid.
    """
    level = self.topology.depths - 1
    room = max(self.topology.depth - lookup.tokens.shape[1], 0)
    tokens, valid = (
      jnp.pad(leaf, ((0, 0), (0, room)))[:, level]
      for leaf in (lookup.tokens, lookup.valid)
    )
    is_chain = np.isin(np.arange(self.topology.num_nodes), self.chain_nodes)
    return base.DraftTree(tokens, self.topology, valid & is_chain[None], None)

  def _extended(self, tree: base.DraftTree) -> base.DraftTree:
    """Returns the other drafter's tree with the nodes that only lookups have.

    There are no `bonus_probs`: they would be those of another tree's leaves.
    """
    room = self.topology.num_nodes - self.inner_topology.num_nodes
    tree = tree._replace(topology=self.topology, bonus_probs=None)
    return jax.tree.map(
      lambda leaf: jnp.pad(leaf, [(0, 0), (0, room), (0, 0)][: leaf.ndim]), tree
    )

  def _convert(
    self, tree: base.DraftTree, like: base.DraftTree
  ) -> base.DraftTree:
    """Returns a tree with as many distributions as another drafter's."""
    if like.probs is None and like.raw_probs is None:
      return tree
    assert self.vocab_size is not None  # There are distributions.
    probs = tree.both_probs(self.vocab_size)
    processed = None if like.probs is None else probs.processed
    return tree._replace(probs=processed, raw_probs=probs.raw)


def _where(
  rows: jax.Array, trees_there: base.DraftTree, trees_elsewhere: base.DraftTree
) -> base.DraftTree:
  """Returns trees of the rows where `rows` `[B]` is true, and elsewhere."""
  select = jax.vmap(jnp.where)
  return jax.tree.map(
    lambda there, elsewhere: select(rows, there, elsewhere),
    trees_there,
    trees_elsewhere,
  )
