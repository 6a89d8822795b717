"""A drafter that defers the prefill of a row until it drafts for it.

Where a bandit learns that plain decoding is faster, no prefill is wasted.
"""

import functools
from typing import Any

from flax import struct
import jax
import jax.numpy as jnp

from specjax import base
from specjax import buckets
from specjax import components
from specjax import padding
from specjax import row_slices
from specjax.drafters import wrapper


class DeferredState(struct.PyTreeNode):
  """The state of the drafter inside, and which rows it has not read yet."""

  inner: base.DraftState  # undefined in rows that wait
  waiting: jax.Array  # [B] int32, length of a prompt that is not read yet, or 0
  max_length: int = struct.field(pytree_node=False)  # see `Drafter.init`


@components.component
class Deferred(wrapper.DrafterWrapper):
  """Reads a prompt when the row first selects the drafter.

  It then prefills the text that a row has so far, one row after the other;
  later, it catches up as the drafter inside does. It does not estimate how
  likely its drafts are accepted: that would require reading every row.

  Attributes:
    drafter: drafts; with a model, with a head on hidden states, or an ensemble
      of such drafters.

  Raises:
    ValueError: the drafter reads no prompts.
  """

  drafter: base.Drafter

  can_catch_up = True
  # A row may be new, although no other drafter was selected.
  lags_after_own_rounds = True

  def __post_init__(self) -> None:
    if not self.drafter.can_catch_up:
      raise ValueError(
        'drafter must be one that reads prompts, of a model or a head on '
        'features, got one that does not.'
      )

  @functools.cached_property
  def slot(self) -> base.StateSlot | None:
    """Shared with deferred drafters only."""
    slot = self.drafter.slot
    return slot and slot._replace(name=(slot.name, 'deferred'))

  @functools.cached_property
  def num_likeliest(self) -> int:
    return self.drafter.num_likeliest

  def init(
    self, params: base.Params, context: base.Context, max_length: int
  ) -> DeferredState:
    """Reads nothing."""
    shapes = jax.eval_shape(
      lambda: self.drafter.init(params, context.first(1), max_length)
    )
    return DeferredState(padding.zeros(shapes), context.lengths, max_length)

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: DeferredState,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.Proposal]:
    """Drafts with the drafter inside."""
    return self.drafter.draft(keys, params, state.inner, context)

  def commit(
    self,
    state: DeferredState,
    proposal: base.Proposal,
    context: base.Context,
    outcome: base.Outcome,
    rows: jax.Array,
  ) -> DeferredState:
    """Commits to the drafter inside."""
    inner = self.drafter.commit(state.inner, proposal, context, outcome, rows)
    return state.replace(inner=inner)

  def observe(
    self, state: DeferredState, scored: base.Scored, rows: jax.Array
  ) -> DeferredState:
    """Lets the drafter inside read what the target has predicted."""
    return state.replace(inner=self.drafter.observe(state.inner, scored, rows))

  def catch_up(
    self,
    params: base.Params,
    state: DeferredState,
    context: base.Context,
    rows: jax.Array,
  ) -> tuple[DeferredState, jax.Array]:
    """Prefills new rows; the drafter inside catches up with the others."""
    is_new = rows & (state.waiting > 0)
    inner = self._prefill(params, state, context, is_new)
    # As many tokens as a drafter that had read the prompt would be missing.
    num_prefilled = jnp.where(is_new, context.lengths - state.waiting, 0)
    inner, num_read = self.drafter.catch_up(params, inner, context, rows)
    waiting = jnp.where(is_new, 0, state.waiting)
    state = state.replace(inner=inner, waiting=waiting)
    return state, num_prefilled + num_read

  def _prefill(
    self,
    params: base.Params,
    state: DeferredState,
    context: base.Context,
    is_new: jax.Array,
  ) -> base.DraftState:
    """Prefills the new rows one after the other, each at its own width.

    Together, all rows would be read for each one that is new in continuous
    batching.
    """
    # The buffer also has room for a draft after the longest row.
    size = min(context.tokens.shape[1], state.max_length)
    widths = buckets.bucket_widths(size)

    def read_row(carry: tuple[Any, jax.Array]) -> tuple[Any, jax.Array]:
      inner, waiting = carry
      row = jnp.argmax(waiting)
      row_context = row_slices.take_row(context, row)
      read = lambda width: self.drafter.init(
        params, row_context.first(width), state.max_length
      )
      row_state = buckets.switch_bucket(widths, row_context.lengths[0], read)
      return row_slices.replace_row(inner, row_state, row), waiting.at[row].set(
        False
      )

    read_all = lambda inner: jax.lax.while_loop(
      lambda carry: carry[1].any(), read_row, (inner, is_new)
    )[0]
    # XLA computes what depends on no row before a loop, even before one that
    # ends at once: a branch keeps it out of the other rounds.
    return jax.lax.cond(
      is_new.any(), read_all, lambda inner: inner, state.inner
    )
