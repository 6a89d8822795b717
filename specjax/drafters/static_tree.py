"""Drafters of static trees, which a model or a head drafts level by level."""

import functools

import jax
import jax.numpy as jnp

from specjax import base
from specjax import trees
from specjax.drafters import lag
from specjax.drafters import tree_drafting


class StaticTreeDrafter(lag.LaggingDrafter):
  """Draws children at every node of a static tree.

  Attributes:
    topology: the tree to draft.
    bonus_probs: whether the probabilities at the bonus positions are computed
      as well, for one more call.
    stop: where the drafter stops drafting and leaves the next token to the
      target, as in a sequential cascade; None drafts on everywhere. Once all
      rows whose drafts are used have stopped, nothing is read any more.
  """

  topology: trees.Topology
  bonus_probs: bool
  stop: base.StopRule | None

  def __post_init__(self) -> None:
    tree_drafting.check_topology(self.topology, self.bonus_probs)

  @functools.cached_property
  def tree_spec(self) -> tree_drafting.TreeSpec:
    """Specifies the tree."""
    raise NotImplementedError

  @functools.cached_property
  def num_chosen(self) -> int:
    """Number of likeliest tokens drafted after the root; 0 if it is drawn."""
    return self.tree_spec.num_chosen

  @functools.cached_property
  def num_calls(self) -> int:
    """One call for the tail, and one for each level that is read."""
    return 1 + self.tree_spec.read_depth

  @functools.cached_property
  def may_stop_early(self) -> bool:
    """True with a stop rule."""
    return self.has_stop_rule

  @functools.cached_property
  def has_stop_rule(self) -> bool:
    """Whether `stop` is given."""
    return self.stop is not None

  @functools.cached_property
  def siblings(self) -> base.Siblings:
    """As the tree is specified."""
    return self.tree_spec.siblings

  @functools.cached_property
  def greedy(self) -> bool:
    """True at temperature 0 and with shared noise."""
    return self.sampling.chooses

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: base.Cache,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.PendingKV]:
    """Reads the tail, which predicts the first level; see `Drafter.draft`."""
    reader, tree_spec, sampling = self.reader, self.tree_spec, self.sampling
    num_entries = reader.num_entries(context)
    tail = reader.read_tail(
      params, state, context, self.topology.depth, self.may_stop_early
    )

    def read_level(depth, tokens, parents, pending):
      outputs, pending = reader.read_nodes(
        params,
        state,
        tokens,
        parents,
        pending,
        jnp.broadcast_to(num_entries[:, None] + depth, tokens.shape),
        tree_drafting.level_mask(tree_spec, depth, tail.exists),
      )
      return reader.predict(params, outputs, sampling), pending

    tree, pending = tree_drafting.draft_tree(
      tree_spec,
      read_level,
      keys,
      context,
      reader.predict(params, tail.outputs, sampling),
      tail.pending,
      tail.valid,
    )
    return tree, pending if self.num_levels else tail.pending
