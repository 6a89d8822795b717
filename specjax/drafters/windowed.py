"""A drafter that reads little when it is played again: sinks and a window.

StreamingLLM (Xiao et al. 2024), as a policy for what switching between drafters
costs (MetaSD, Kim et al. 2024, Table 13): a cache that is too far behind keeps
the row's first tokens and reads the last ones, as if these followed those.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import autoregressive


class Reading(NamedTuple):
  """What the drafter has read."""

  cache: base.Cache
  skipped: jax.Array  # [B] int32, tokens behind the sinks that it never will


@base.component
def windowed(
  model: base.LanguageModel,
  topology: trees.Topology,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  sinks: int = 4,
  window: int = 64,
  **options,
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
  base.check_range('sinks', sinks, 0)
  base.check_range('window', window, 1)
  inner = autoregressive.autoregressive(model, topology, sampling, **options)

  def view(context, skipped):
    """The row as the drafter sees it, without what it skipped."""
    index = np.arange(context.tokens.shape[1])
    source = jnp.where(index < sinks, index, index + skipped[:, None])
    tokens = jnp.take_along_axis(context.tokens, source, axis=1, mode='clip')
    return base.Context(tokens, context.lengths - skipped)

  def init(params, tokens, lengths, max_length):
    cache = inner.init(params, tokens, lengths, max_length)
    return Reading(cache, jnp.zeros_like(lengths))

  def draft(keys, params, state, context):
    return inner.draft(keys, params, state.cache, view(context, state.skipped))

  def commit(state, proposal, context, outcome, keep):
    seen = view(context, state.skipped)
    cache = inner.commit(state.cache, proposal, seen, outcome, keep)
    return state._replace(cache=cache)

  def catch_up(params, state, context, wanted, committed=None):
    cache, skipped = state
    # One less than all, as the law behind the last token is a draft's to tell.
    start = context.lengths - 1 - window
    far = wanted & (start > cache.lengths + skipped) & (cache.lengths >= sinks)
    cache = model.rollback(cache, jnp.where(far, sinks, cache.lengths))
    skipped = jnp.where(far, start - sinks, skipped)
    if committed is not None:
      committed = committed._replace(start=committed.start - skipped)
    caught = inner.catch_up(
      params, cache, view(context, skipped), wanted, committed
    )
    return caught._replace(state=Reading(caught.state, skipped))

  return inner._replace(
    init=init,
    draft=draft,
    commit=commit,
    catch_up=catch_up,
    memory=(inner.memory, sinks, window),
  )
