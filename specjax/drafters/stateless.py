"""Drafters without a state: they read the rows' text and their parameters."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees


class StatelessDrafter(base.Drafter):
  """Proposes deterministic static trees, without any model call.

  A subclass is a component that implements `topology` and `propose`.
  """

  can_estimate = True
  may_stop_early = True
  siblings = base.Siblings.CHOSEN
  greedy = True

  @functools.cached_property
  def topology(self) -> trees.Topology:
    """Shape of the trees."""
    raise NotImplementedError

  def propose(
    self, params: base.Params, context: base.Context
  ) -> tuple[jax.Array, jax.Array]:
    """Proposes the nodes of a tree for each row.

    Args:
      params: of the drafter.
      context: the committed text.

    Returns:
      `[B, N]` int32 tokens, and `[B, N]` bool which of them are valid. Valid
      siblings are different. Tokens that are not valid must belong to the
      vocabulary, and must not depend on what follows the committed text.
    """
    raise NotImplementedError

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: base.DraftState,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.Proposal]:
    """Returns the proposed tree; see `Drafter.draft`."""
    del keys, state
    tokens, valid = self.propose(params, context)
    return base.DraftTree(tokens, self.topology, valid, probs=None), ()

  def estimate(
    self,
    params: base.Params,
    state: base.DraftState,
    context: base.Context,
    rows: jax.Array,
    target: base.TargetProbs,
  ) -> tuple[base.DraftState, jax.Array, base.Probs]:
    """Returns the target's mass on what it would propose at each position."""
    num_read = jnp.zeros_like(rows, jnp.int32)
    num_committed = target.probs.processed.shape[1]
    if not self.topology.num_nodes:
      zeros = jnp.zeros((len(rows), num_committed), jnp.float32)
      return state, num_read, base.Probs(zeros, zeros)

    def proposed_mass(step, probs):
      lengths = jnp.minimum(target.start + step, context.lengths)
      tokens, valid = self.propose(params, context._replace(lengths=lengths))
      first = self.topology.levels[0]

      def mass(probs):
        proposed = jnp.take_along_axis(probs, tokens[:, first], axis=1)
        return jnp.where(valid[:, first], proposed, 0.0).sum(1)

      return jax.tree.map(mass, probs)

    acceptance = jax.vmap(proposed_mass, in_axes=(0, 1), out_axes=1)(
      np.arange(num_committed), target.probs
    )
    return state, num_read, acceptance


class Lookup(NamedTuple):
  """What followed a match of each row's last tokens."""

  tokens: jax.Array  # [B, N] int32
  valid: jax.Array  # [B, N] bool
  match_length: jax.Array  # [B] int32, tokens of the longest match


class MatchingDrafter(StatelessDrafter):
  """Proposes what followed a match of the row's last tokens.

  A subclass is a component that implements `topology`, `look_up` and
  `longest_match`.
  """

  @functools.cached_property
  def longest_match(self) -> int:
    """Number of tokens beyond which a match counts as no longer."""
    raise NotImplementedError

  def look_up(self, params: base.Params, context: base.Context) -> Lookup:
    """Finds the longest match of each row, and what followed it.

    Args:
      params: of the drafter.
      context: the committed text.
    """
    raise NotImplementedError

  def propose(
    self, params: base.Params, context: base.Context
  ) -> tuple[jax.Array, jax.Array]:
    """Proposes what followed the matches."""
    lookup = self.look_up(params, context)
    return lookup.tokens, lookup.valid
