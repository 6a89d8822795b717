"""Drafters that wrap another drafter."""

import functools

import jax

from specjax import base
from specjax import trees


class DrafterWrapper(base.Drafter):
  """Has the attributes of another drafter, without its capabilities.

  A subclass is a component that overrides what is different.

  Attributes:
    drafter: the other drafter.
  """

  drafter: base.Drafter

  @functools.cached_property
  def topology(self) -> trees.Topology | trees.Bounds:
    return self.drafter.topology

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    return self.drafter.taps

  @functools.cached_property
  def feature_size(self) -> int | None:
    return self.drafter.feature_size

  @functools.cached_property
  def num_calls(self) -> int:
    return self.drafter.num_calls

  @functools.cached_property
  def vocab_size(self) -> int | None:
    return self.drafter.vocab_size

  @functools.cached_property
  def max_length(self) -> int | None:
    return self.drafter.max_length

  @functools.cached_property
  def may_stop_early(self) -> bool:
    return self.drafter.may_stop_early

  @functools.cached_property
  def has_stop_rule(self) -> bool:
    return self.drafter.has_stop_rule

  @functools.cached_property
  def tree_sizes(self) -> tuple[int, ...]:
    return self.drafter.tree_sizes

  @functools.cached_property
  def siblings(self) -> base.Siblings:
    return self.drafter.siblings

  @functools.cached_property
  def greedy(self) -> bool:
    return self.drafter.greedy

  def init(
    self, params: base.Params, context: base.Context, max_length: int
  ) -> base.DraftState:
    return self.drafter.init(params, context, max_length)

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: base.DraftState,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.Proposal]:
    return self.drafter.draft(keys, params, state, context)

  def commit(
    self,
    state: base.DraftState,
    proposal: base.Proposal,
    context: base.Context,
    outcome: base.Outcome,
    rows: jax.Array,
  ) -> base.DraftState:
    return self.drafter.commit(state, proposal, context, outcome, rows)
