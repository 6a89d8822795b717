"""A drafter that reads little after it was idle: attention sinks and a window.

StreamingLLM (Xiao et al. 2024), as a policy for the cost of switching between
drafters (MetaSD, Kim et al. 2026, Table 13): a KV cache that lags too far
keeps the row's first tokens and reads the last ones, as if these followed.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax.drafters import wrapper


class WindowedState(NamedTuple):
  """The state of the drafter inside, and how much it skipped."""

  inner: base.DraftState
  skipped: jax.Array  # [B] int32, tokens after the sinks that are never read


@components.component
class Windowed(wrapper.DrafterWrapper):
  """Catches up by no more than a window.

  Attributes:
    drafter: drafts; with a model or with a head on hidden states.
    sinks: number of the row's first tokens, or of pairs of a head, that are
      never forgotten; 4 in StreamingLLM.
    window: largest number of tokens that are read to catch up; if more are
      missing, everything but the sinks is forgotten.

  Raises:
    ValueError: a number is out of range, or the drafter cannot forget.
  """

  drafter: base.Drafter
  sinks: int = components.static(default=4)
  window: int = components.static(default=64)

  can_catch_up = True
  can_estimate = True

  def __post_init__(self) -> None:
    checks.check_integers('sinks', self.sinks, 0)
    checks.check_integers('window', self.window, 1)
    drafter = self.drafter
    if not (drafter.can_roll_back and drafter.can_estimate):
      raise ValueError(
        'drafter must be one that can forget what it has read, of a model or a '
        'head on features, got one that cannot.'
      )

  @functools.cached_property
  def slot(self) -> base.StateSlot | None:
    """Shared with drafters that have the same sinks and window."""
    slot = self.drafter.slot
    return slot and slot._replace(name=(slot.name, self.sinks, self.window))

  def init(
    self, params: base.Params, context: base.Context, max_length: int
  ) -> WindowedState:
    """Reads the prompts in full."""
    inner = self.drafter.init(params, context, max_length)
    return WindowedState(inner, jnp.zeros_like(context.lengths))

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: WindowedState,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.Proposal]:
    """Drafts from the text without what was skipped."""
    view = self._view(context, state.skipped)
    return self.drafter.draft(keys, params, state.inner, view)

  def commit(
    self,
    state: WindowedState,
    proposal: base.Proposal,
    context: base.Context,
    outcome: base.Outcome,
    rows: jax.Array,
  ) -> WindowedState:
    """Commits to the drafter inside."""
    view = self._view(context, state.skipped)
    inner = self.drafter.commit(state.inner, proposal, view, outcome, rows)
    return state._replace(inner=inner)

  def catch_up(
    self,
    params: base.Params,
    state: WindowedState,
    context: base.Context,
    rows: jax.Array,
  ) -> tuple[WindowedState, jax.Array]:
    """Reads the committed tokens, or only the last ones of many."""
    state = self._skip(state, rows, self._window_start(context))
    view = self._view(context, state.skipped)
    inner, num_read = self.drafter.catch_up(params, state.inner, view, rows)
    return state._replace(inner=inner), num_read

  def estimate(
    self,
    params: base.Params,
    state: WindowedState,
    context: base.Context,
    rows: jax.Array,
    target: base.TargetProbs,
  ) -> tuple[WindowedState, jax.Array, base.Probs]:
    """Catches up, and estimates as the drafter inside does.

    It reads the committed positions even where they are more than the window.
    """
    # A head predicts position `start` from the pair at `start - 2`, a language
    # model from the token at `start - 1`.
    first = jnp.minimum(target.start - 2, self._window_start(context))
    state = self._skip(state, rows, first)
    inner, num_read, acceptance = self.drafter.estimate(
      params,
      state.inner,
      self._view(context, state.skipped),
      rows,
      target._replace(start=target.start - state.skipped),
    )
    return state._replace(inner=inner), num_read, acceptance

  def _view(self, context: base.Context, skipped: jax.Array) -> base.Context:
    """Returns the text as the drafter inside sees it, without skipped tokens.

    With 2 sinks, 3 tokens skipped and a row of 9:

        context    a b c d e f g h i
        view       a b       f g h i      lengths = 6

    A head has read the pair of the last sink before it skipped, with the token
    that followed there; it does not read that of the view, which never was.
    """
    index = np.arange(context.tokens.shape[1])[None]
    source = jnp.where(index < self.sinks, index, index + skipped[:, None])
    take = functools.partial(jnp.take_along_axis, axis=1, mode='clip')
    return base.Context(
      take(context.tokens, source),
      context.lengths - skipped,
      tuple(take(states, source[..., None]) for states in context.features),
      context.noise,
      context.rows,
    )

  def _window_start(self, context: base.Context) -> jax.Array:
    """Returns `[B]` where the window begins that ends before the last token.

    A draft reads the last token.
    """
    return context.lengths - 1 - self.window

  def _skip(
    self, state: WindowedState, rows: jax.Array, start: jax.Array
  ) -> WindowedState:
    """Forgets all but the sinks where tokens before `start` `[B]` are missing.

    Tokens from there on will be read.
    """
    inner, skipped = state
    exceeds = rows & (start > inner.lengths + skipped)
    exceeds &= inner.lengths >= self.sinks
    lengths = jnp.where(exceeds, self.sinks, inner.lengths)
    skipped = jnp.where(exceeds, start - self.sinks, skipped)
    return WindowedState(self.drafter.rollback(inner, lengths), skipped)
