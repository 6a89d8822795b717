"""A drafter that reads little when it is played again: sinks and a window.

StreamingLLM (Xiao et al. 2024), as a policy for what switching between drafters
costs (MetaSD, Kim et al. 2026, Table 13): a cache that is too far behind keeps
the row's first tokens and reads the last ones, as if these followed those.
"""

from collections.abc import Callable
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry


class Reading(NamedTuple):
  """What the drafter has read."""

  cache: base.DraftState  # of the drafter inside
  skipped: jax.Array  # [B] int32, tokens behind the sinks that it never will


@registry.component
def windowed(
  drafter: base.Drafter, sinks: int = 4, window: int = 64
) -> base.Drafter:
  """Builds a drafter that catches up by a window at most.

  Args:
    drafter: what drafts; of a small model or of a head on features.
    sinks: first tokens of a row, or pairs of a head, which are never forgotten.
    window: as many are read at most when it is played again; if it is behind by
      more, it forgets all but the sinks.

  Raises:
    ValueError: a number is out of range, or the drafter cannot forget.
  """
  checks.check_range('sinks', sinks, 0)
  checks.check_range('window', window, 1)
  catch_up, estimate, slot = drafter.catch_up, drafter.estimate, drafter.slot
  if catch_up is None or catch_up.rollback is None or estimate is None:
    raise ValueError(
      'drafter must be one that can forget what it has read, of a model or a '
      'head on features, got one that cannot.'
    )
  plan = _Plan(drafter, catch_up, catch_up.rollback, estimate, sinks, window)
  return drafter._replace(
    init=functools.partial(_init, plan),
    draft=functools.partial(_draft, plan),
    commit=functools.partial(_commit, plan),
    catch_up=base.CatchUp(functools.partial(_catch_up, plan)),
    estimate=functools.partial(_estimate, plan),
    slot=slot and slot._replace(name=(slot.name, sinks, window)),
  )


class _Plan(NamedTuple):
  """What is read, and by whom."""

  inner: base.Drafter
  catch_up: base.CatchUp  # of `inner`, as the two below
  rollback: Callable[[base.DraftState, jax.Array], base.DraftState]
  estimate: base.Estimate
  sinks: int
  window: int


def _view(plan: _Plan, context, skipped):
  """The row as the drafter sees it, without what it skipped.

  A head has read the pair of the last sink before it skipped, with the token
  that followed there; that of the view, which never was, it does not read.
  """
  index = np.arange(context.tokens.shape[1])[None]
  source = jnp.where(index < plan.sinks, index, index + skipped[:, None])
  return base.Context(
    jnp.take_along_axis(context.tokens, source, axis=1, mode='clip'),
    context.lengths - skipped,
    tuple(
      jnp.take_along_axis(each, source[..., None], axis=1, mode='clip')
      for each in context.features
    ),
  )


def _init(plan: _Plan, params, context, max_length):
  cache = plan.inner.init(params, context, max_length)
  return Reading(cache, jnp.zeros_like(context.lengths))


def _draft(plan: _Plan, keys, params, state, context):
  seen = _view(plan, context, state.skipped)
  return plan.inner.draft(keys, params, state.cache, seen)


def _commit(plan: _Plan, state, proposal, context, outcome, rows):
  seen = _view(plan, context, state.skipped)
  cache = plan.inner.commit(state.cache, proposal, seen, outcome, rows)
  return state._replace(cache=cache)


def _catch_up(plan: _Plan, params, state, context, rows):
  state = _skip(plan, state, context, rows)
  seen = _view(plan, context, state.skipped)
  cache, num = plan.catch_up.read(params, state.cache, seen, rows)
  return state._replace(cache=cache), num


def _estimate(plan: _Plan, params, state, context, rows, target):
  state = _skip(plan, state, context, rows)
  seen = _view(plan, context, state.skipped)
  cache, num, acceptance = plan.estimate(
    params,
    state.cache,
    seen,
    rows,
    target._replace(start=target.start - state.skipped),
  )
  return state._replace(cache=cache), num, acceptance


def _skip(plan: _Plan, state, context, rows):
  """Forgets all but the sinks where more is missing than the window."""
  cache, skipped = state
  # One less than all, as a draft reads the last token.
  start = context.lengths - 1 - plan.window
  far = rows & (start > cache.lengths + skipped)
  far &= cache.lengths >= plan.sinks
  lengths = jnp.where(far, plan.sinks, cache.lengths)
  skipped = jnp.where(far, start - plan.sinks, skipped)
  return Reading(plan.rollback(cache, lengths), skipped)
