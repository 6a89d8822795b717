"""A drafter that reads little when it is played again: sinks and a window.

StreamingLLM (Xiao et al. 2024), as a policy for what switching between drafters
costs (MetaSD, Kim et al. 2026, Table 13): a cache that is too far behind keeps
the row's first tokens and reads the last ones, as if these followed those.
"""

import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import autoregression


class Reading(NamedTuple):
  """What the drafter has read."""

  cache: base.Cache
  skipped: jax.Array  # [B] int32, tokens behind the sinks that it never will


@registry.component
def windowed(
  model: base.LanguageModel,
  topology: trees.Topology,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  sinks: int = 4,
  window: int = 64,
  **options: Any,
) -> base.Drafter:
  """Builds an autoregressive drafter that catches up by a window at most.

  Args:
    model: the small model.
    topology: the tree to draft, at least one node.
    sampling: how tokens are drawn.
    sinks: first tokens of a row, which are never forgotten.
    window: tokens that it reads at most when it is played again; if it is
      behind by more, it forgets all but the sinks.
    **options: of `autoregressive`.
  """
  checks.check_range('sinks', sinks, 0)
  checks.check_range('window', window, 1)
  inner = autoregression.autoregressive(model, topology, sampling, **options)
  assert inner.catch_up and inner.estimate and inner.slot  # It has them all.
  plan = _Plan(model, inner, inner.catch_up, inner.estimate, sinks, window)
  return inner._replace(
    init=functools.partial(_init, plan),
    draft=functools.partial(_draft, plan),
    commit=functools.partial(_commit, plan),
    catch_up=base.CatchUp(functools.partial(_catch_up, plan)),
    estimate=functools.partial(_estimate, plan),
    slot=inner.slot._replace(name=(inner.slot.name, sinks, window)),
  )


class _Plan(NamedTuple):
  """What is read, and by whom."""

  model: base.LanguageModel
  inner: base.Drafter
  catch_up: base.CatchUp  # of `inner`
  estimate: base.Estimate  # of `inner`
  sinks: int
  window: int


def _view(plan: _Plan, context, skipped):
  """The row as the drafter sees it, without what it skipped."""
  index = np.arange(context.tokens.shape[1])[None]
  source = jnp.where(index < plan.sinks, index, index + skipped[:, None])
  tokens = jnp.take_along_axis(context.tokens, source, axis=1, mode='clip')
  return base.Context(tokens, context.lengths - skipped)


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
  return Reading(plan.model.rollback(cache, lengths), skipped)
