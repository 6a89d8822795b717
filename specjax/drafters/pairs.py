"""How heads read the pairs of committed tokens, with the target's features.

Pair `i` is of the features at token `i` and of token `i + 1`, so that a row of
`n` tokens has `n - 1` pairs, as the features of its last token are not there
yet. A draft reads those that its cache lacks, `tail` at most; a head that was
not played reads others' before.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import allocation
from specjax import base
from specjax import buckets
from specjax import checks
from specjax import ordering
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import committed

# Pairs that a draft reads at least: so drafts of up to 7 levels share a cache.
_TAIL = 8


class Reading(NamedTuple):
  """What is read at once."""

  head: base.FeatureHead
  tail: int  # pairs that a draft reads, at most
  chunk: int  # pairs a call, when the head was not played


def reading(head: base.FeatureHead, depth: int, chunk: int) -> Reading:
  """Returns what a drafter of trees of a depth reads.

  Behind its own rounds, the cache lacks `depth + 1` pairs at most.
  """
  checks.check_range('chunk', chunk, 1)
  return Reading(head, max(depth + 1, _TAIL), chunk)


def num_pairs(context: base.Context) -> jax.Array:
  """Returns `[B]` how many pairs there are."""
  return context.lengths - 1


def init(
  plan: Reading, params: base.Params, context: base.Context, max_length: int
) -> base.Cache:
  """Reads the prompts' pairs but the last, as `Drafter.init`."""
  head, tokens = plan.head, context.tokens
  size = max_length + max(plan.chunk, plan.tail)
  cache = head.init_cache(params, len(tokens), allocation.round_up_slots(size))
  if tokens.shape[1] < 3:  # No prompt has two pairs.
    return cache
  inputs = head.fuse(params, tuple(each[:, :-1] for each in context.features))
  _, pending = head.extend(params, None, tokens[:, 1:], inputs)
  path = np.arange(tokens.shape[1] - 1)
  num = jnp.maximum(num_pairs(context) - 1, 0)
  return head.commit(
    cache, pending, jnp.broadcast_to(path, tokens[:, 1:].shape), num
  )


def read(
  plan: Reading,
  params: base.Params,
  cache: base.Cache,
  context: base.Context,
  num: int,
) -> tuple[jax.Array, base.PendingKV]:
  """Returns `[B, num, F]` outputs of the pairs behind the cache, and pending.

  Where there are fewer pairs, zeros are read that no pair sees.
  """
  at = cache.lengths[:, None] + np.arange(num)[None]
  exists = at < num_pairs(context)[:, None]
  features = tuple(
    jnp.where(exists[..., None], trees.at_entries(each, at), 0)
    for each in context.features
  )
  tokens = jnp.where(exists, trees.at_entries(context.tokens, at + 1), 0)
  return plan.head.extend(
    params,
    cache,
    tokens,
    plan.head.fuse(params, features),
    positions=jnp.where(exists, at, -1),
  )


class Tail(NamedTuple):
  """What a draft begins with."""

  behind: jax.Array  # [B, 1, F] output of the last pair
  pending: base.PendingKV
  seen: jax.Array  # [B, tail] which of the pending pairs exist


def read_tail(
  plan: Reading,
  depth: int,
  params: base.Params,
  cache: base.Cache,
  context: base.Context,
) -> Tail:
  """Reads the pairs that the cache lacks, `plan.tail` at most.

  Behind a drafter's own rounds, of trees of that depth, it lacks fewer. On CPUs
  no more are read than that; elsewhere, a few pairs take as long as one does,
  and a choice in the program would take longer.
  """
  lag = (num_pairs(context) - cache.lengths)[:, None]
  read_first = functools.partial(read, plan, params, cache, context)
  outputs, pending = jax.lax.platform_dependent(
    cpu=lambda: buckets.switch_bucket(
      sorted({depth + 1, plan.tail}),
      jnp.minimum(lag.max(), plan.tail),
      read_first,
    ),
    default=lambda: read_first(plan.tail),
  )
  behind = trees.at_entries(outputs, lag - 1)
  return Tail(behind, pending, np.arange(plan.tail)[None] < lag)


def commit(
  plan: Reading,
  cache: base.Cache,
  pending: base.PendingKV,
  context: base.Context,
  outcome: base.Outcome,
  rows: jax.Array,
) -> base.Cache:
  """Commits the tail, which was read with true features; nothing drafted.

  So proposals are the same for trees of all shapes, which can share a cache.
  """
  lag = jnp.minimum(num_pairs(context) - cache.lengths, plan.tail)
  # The outcome is known once the cache was read.
  num = ordering.after(jnp.where(rows, lag, 0), outcome.num_accepted)
  path = np.arange(plan.tail)
  return plan.head.commit(
    cache, pending, jnp.broadcast_to(path, (len(rows), plan.tail)), num
  )


def catch_up(plan: Reading) -> base.CatchUp:
  """Returns how a head reads what others have committed, and forgets it."""
  return base.CatchUp(functools.partial(_catch_up, plan), plan.head.rollback)


def _catch_up(plan: Reading, params, cache, context, rows):
  """Reads what exceeds the tail of a draft."""
  behind = lambda cache: rows & (num_pairs(context) - cache.lengths > plan.tail)

  def step(cache):
    end = jnp.where(behind(cache), num_pairs(context) - 1, 0)
    return _read_chunk(plan, params, cache, context, end, plan.chunk)[0]

  current = jax.lax.while_loop(lambda cache: behind(cache).any(), step, cache)
  return current, current.lengths - cache.lengths


def estimate(
  plan: Reading,
  sampling: sampling_lib.Sampling,
  num_chosen: int,
  params: base.Params,
  cache: base.Cache,
  context: base.Context,
  rows: jax.Array,
  target: base.TargetProbs,
) -> tuple[base.Cache, jax.Array, base.Probs]:
  """Reads all pairs but the last, and compares, as `Drafter.estimate`.

  `sampling` and `num_chosen` are as of `committed.drafted`.
  """
  end = jnp.where(rows, num_pairs(context) - 1, 0)

  def read_on(cache, chunk):
    new, outputs = _read_chunk(plan, params, cache, context, end, chunk)
    return new, plan.head.predict(params, outputs)

  # A pair predicts what follows its token, which is the one after its own.
  return committed.estimate(
    read_on,
    plan.chunk,
    sampling,
    cache,
    end,
    target,
    ahead=1,
    num_chosen=num_chosen,
  )


def _read_chunk(plan: Reading, params, cache, context, end, chunk):
  """Reads pairs behind the cache; commits those before `end` `[B]`."""
  outputs, pending = read(plan, params, cache, context, chunk)
  cache = committed.advance(
    plan.head.commit, cache, pending, end, chunk, outputs
  )
  return cache, outputs
