"""A small language model that drafts token by token, level by level.

The drafter's cache holds all committed tokens but the last one or two: after
full acceptance the last draft token was never read. The first step reads what
is missing.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import allocation
from specjax import base
from specjax import checks
from specjax import padding
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import committed
from specjax.drafters import growth

# Committed tokens that the first step reads at most.
_TAIL = 2


@registry.component(example={'bonus_probs': True})
def autoregressive(
  model: base.LanguageModel,
  topology: trees.Topology,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  bonus_probs: bool = False,
  stop: base.Stop | None = None,
  distinct: bool = False,
  chunk: int = committed.CHUNK,
) -> base.Drafter:
  """Builds a drafter that samples children at every node.

  Args:
    model: the small model.
    topology: the tree to draft; the empty one only with `bonus_probs`.
    sampling: how tokens are drawn; the same as the target's, usually.
    bonus_probs: compute also the probabilities at the bonus positions, for one
      more model call.
    stop: where not to draft on, one of `STOPS`; what follows there is the
      target's to pick, as in a sequential cascade. Once all rows have stopped,
      the model is not called again.
    distinct: draw siblings without replacement, not i.i.d.; at temperature
      0, take the most likely tokens.
    chunk: tokens a call with which a drafter that was not played catches up.

  Returns:
    The drafter; its state is the model's cache.
  """
  read_depth = growth.read_depth(topology, bonus_probs)
  distinct = distinct and topology.width > 1
  checks.check_range('chunk', chunk, 1)
  plan = _Plan(
    model,
    growth.Growth(topology, sampling, read_depth, bonus_probs, stop, distinct),
    chunk,
  )
  return base.Drafter(
    topology=topology,
    init=functools.partial(_init, plan),
    draft=functools.partial(_draft, plan),
    commit=functools.partial(_commit, plan),
    catch_up=base.CatchUp(functools.partial(_catch_up, plan), model.rollback),
    estimate=functools.partial(_estimate, plan),
    slot=base.StateSlot((model, chunk), read_depth),
    num_calls=1 + read_depth,
    vocab_size=model.vocab_size,
    partial=stop is not None,
    own_probs=distinct and sampling.temperature > 0,
    distinct=distinct,
    greedy=not sampling.temperature,
    max_length=model.max_length,
  )


class _Plan(NamedTuple):
  """What is drafted, and by whom."""

  model: base.LanguageModel
  growth: growth.Growth
  chunk: int


def _init(plan: _Plan, params, context, max_length):
  """Reads the prompts, but for their tails."""
  # Room for the widest write behind the longest row, with leaves or without.
  depth = plan.growth.topology.depth
  size = max_length + max(plan.chunk, _TAIL + depth)
  cache = plan.model.init_cache(
    params, context.tokens.shape[0], allocation.round_up_slots(size)
  )
  lengths = jnp.maximum(context.lengths - _TAIL, 0)
  return plan.model.prefill(params, cache, context.tokens, lengths)[0]


# Draft.


class _Inputs(NamedTuple):
  """What all levels of a draft are computed from."""

  params: base.Params
  cache: base.Cache
  last: jax.Array  # [B, 1] position of the last committed token
  lag: jax.Array  # [B] committed tokens that the cache lacks


def _draft(plan: _Plan, keys, params, cache, context):
  """Returns the tree, and the pending entries of what was read."""
  last = context.lengths[:, None] - 1
  inputs = _Inputs(params, cache, last, _lag(cache, context))
  logits, pending = _read_tail(plan, inputs, context)
  root = growth.predict(plan.growth, logits)
  read = functools.partial(_read_level, plan, inputs)
  return growth.grow(plan.growth, read, keys, root, pending)


def _read_tail(plan: _Plan, inputs, context):
  """Reads the last committed tokens that the cache lacks, the last one first.

  The one before it is missing only behind a draft that was accepted in full.
  What is pending of it is junk elsewhere. A drafter that may stop often reads
  no other token, so that one less is worth a choice in the program.

  Returns:
    `[B, 1, V]` logits behind the last token, and what is pending.
  """
  positions = inputs.last - np.arange(_TAIL)[None]
  tail = jnp.take_along_axis(context.tokens, jnp.maximum(positions, 0), axis=1)
  missing = positions >= inputs.cache.lengths[:, None]
  positions = jnp.where(missing, positions, -1)
  read = functools.partial(_read_first, plan, inputs, tail, positions)
  if plan.growth.stop is None:
    return read(_TAIL)
  room = jax.eval_shape(functools.partial(read, _TAIL))
  return jax.lax.cond(
    (inputs.lag > 1).any(),
    functools.partial(read, _TAIL),
    lambda: padding.pad_to(read(1), room),
  )


def _read_first(plan: _Plan, inputs, tokens, positions, num):
  """Reads the first tokens, each of which stands behind those after it."""
  extension = plan.model.extend(
    inputs.params,
    inputs.cache,
    tokens[:, :num],
    positions=positions[:, :num],
    mask=np.triu(np.ones((num, num), bool)),
  )
  return extension.logits[:, :1], extension.pending_kv


def _read_level(plan: _Plan, inputs, depth, tokens, at, pending):
  """Reads the nodes of a level, which stand behind what is pending."""
  del at
  tail = np.arange(_TAIL)[None] < inputs.lag[:, None]
  extension = plan.model.extend(
    inputs.params,
    inputs.cache,
    tokens,
    pending_kv=pending,
    positions=jnp.broadcast_to(inputs.last + depth + 1, tokens.shape),
    mask=growth.level_mask(plan.growth, depth, tail),
  )
  return growth.predict(plan.growth, extension.logits), extension.pending_kv


# Commit.


def _lag(cache, context):
  """`[B]` committed tokens that the cache lacks."""
  return context.lengths - cache.lengths


def _commit(plan: _Plan, cache, pending, context, outcome, rows):
  """Commits the tail, in its order, and the accepted nodes that were read."""
  lag = _lag(cache, context)[:, None]
  index = np.arange(_TAIL + plan.growth.read_depth)[None]
  nodes = jnp.pad(outcome.path, ((0, 0), (0, _TAIL)))
  node = jnp.take_along_axis(nodes, jnp.maximum(index - lag, 0), axis=1)
  path = jnp.where(index < lag, lag - 1 - index, node + _TAIL)
  num = lag[:, 0] + jnp.minimum(outcome.num_accepted, plan.growth.read_depth)
  return plan.model.commit(cache, pending, path, jnp.where(rows, num, 0))


# Catch up.


def _catch_up(plan: _Plan, params, cache, context, rows):
  """Reads what other drafters committed, up to the tail that a draft reads."""
  end = jnp.where(rows, context.lengths - _TAIL, 0)
  read = jax.lax.while_loop(
    lambda cache: (end > cache.lengths).any(),
    lambda cache: _read_chunk(plan, params, cache, context, end, plan.chunk)[0],
    cache,
  )
  return read, read.lengths - cache.lengths


def _estimate(plan: _Plan, params, cache, context, rows, target):
  """Reads all but the last committed token, and compares with the target."""
  end = jnp.where(rows, context.lengths - 1, 0)
  read = lambda cache, chunk: _read_chunk(
    plan, params, cache, context, end, chunk
  )
  return committed.estimate(
    read,
    plan.chunk,
    plan.growth.sampling,
    cache,
    end,
    target,
    num_chosen=growth.num_chosen(plan.growth),
  )


def _read_chunk(plan: _Plan, params, cache, context, end, chunk):
  """Reads `chunk` tokens behind the cache; commits those before `end` `[B]`.

  Returns:
    The cache, and `[B, chunk, V]` logits.
  """
  at = cache.lengths[:, None] + np.arange(chunk)[None]
  tokens = jnp.take_along_axis(context.tokens, at, axis=1, mode='clip')
  extension = plan.model.extend(params, cache, tokens)
  # Where a model has features, they spare a catch-up the product of the head.
  last = (extension.logits, *extension.features)[-1]
  cache = committed.advance(
    plan.model.commit, cache, extension.pending_kv, end, chunk, last
  )
  return cache, extension.logits
