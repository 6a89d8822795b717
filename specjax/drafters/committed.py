"""How drafters read what others have committed, chunk by chunk."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import ordering
from specjax import sampling as sampling_lib

# Entries that a drafter reads at once when it catches up.
CHUNK = 16


def advance(
  commit: Callable[..., base.Cache],
  cache: base.Cache,
  pending: base.PendingKV,
  end: jax.Array,
  chunk: int,
  computed: jax.Array,
) -> base.Cache:
  """Commits what was read behind a cache, as far as it lies before an end.

  Args:
    commit: of the model or head.
    cache: with a length per row.
    pending: `chunk` entries behind it.
    end: `[B]` int32.
    chunk: how many were read.
    computed: what was computed from all that was read of the cache, after
      which it is written.
  """
  num = jnp.clip(end - cache.lengths, 0, chunk)
  num = ordering.after(num, computed)
  path = jnp.broadcast_to(np.arange(chunk), (len(end), chunk))
  return commit(cache, pending, path, num)


def estimate(
  read: Callable[[base.Cache, int], tuple[base.Cache, jax.Array]],
  chunk: int,
  sampling: sampling_lib.Sampling,
  cache: base.Cache,
  end: jax.Array,
  target: base.TargetProbs,
  ahead: int = 0,
  num_chosen: int = 0,
) -> tuple[base.Cache, jax.Array, base.Probs]:
  """Reads up to an end and compares with the target, as `Drafter.estimate`.

  Args:
    read: `(cache, chunk) -> (cache, logits[B, chunk, V])`; reads entries behind
      the cache and commits those before the end.
    chunk: entries that are read at once, at most.
    sampling: how the drafter draws.
    cache: with a length per row.
    end: `[B]` int32.
    target: the target's probabilities at committed positions.
    ahead: how many tokens the one at an entry's place is before the one that
      the entry's logits follow.
    num_chosen: likeliest tokens that are drafted, instead of one that is drawn.
  """
  chunk = min(chunk, target.probs.processed.shape[1] + 1)

  def step(carry):
    cache, known = carry
    new, logits = read(cache, chunk)
    probs = drafted(logits, sampling, num_chosen)
    return new, acceptance(probs, cache.lengths + ahead, target, known)

  current, known = jax.lax.while_loop(
    lambda carry: (end > carry[0].lengths).any(),
    step,
    (cache, nothing(target)),
  )
  return current, current.lengths - cache.lengths, known


def drafted(
  logits: jax.Array, sampling: sampling_lib.Sampling, num_chosen: int = 0
) -> base.Probs:
  """Returns `[..., V]` what is compared with the target's probabilities.

  Where the likeliest tokens are chosen, they count 1 each: what the target has
  of it is the probability that one of them comes next.

  Args:
    logits: `[..., V]`.
    sampling: how a token is drawn.
    num_chosen: tokens that are chosen instead, if any are.
  """
  probs = sampling_lib.both_probs(logits, sampling)
  if not num_chosen:
    return probs
  _, chosen = jax.lax.top_k(logits, min(num_chosen, logits.shape[-1]))
  ones = jnp.put_along_axis(
    jnp.zeros_like(probs.raw), chosen, 1.0, axis=-1, inplace=False
  )
  return base.Probs(ones, probs.raw)


def acceptance(
  probs: base.Probs,
  first: jax.Array,
  target: base.TargetProbs,
  known: base.Probs,
) -> base.Probs:
  """Fills in `1 - TV` at the committed positions that `probs` are of.

  Args:
    probs: `[B, T, V]`, of which the one at `i` is of what follows the token at
      position `first + i`.
    first: `[B]` int32.
    target: the target's, at committed positions.
    known: `[B, P]` what is there already, and stays elsewhere.
  """
  num_read, num_committed = (
    each.processed.shape[1] for each in (probs, target.probs)
  )
  index = np.arange(num_committed)[None]
  at = target.start[:, None] - 1 + index - first[:, None]
  here = (0 <= at) & (at < num_read)

  def fill(own, other, before):
    own = jnp.take_along_axis(own, at[..., None], axis=1, mode='clip')
    return jnp.where(here, jnp.minimum(own, other).sum(-1), before)

  return jax.tree.map(fill, probs, target.probs, known)


def nothing(target: base.TargetProbs) -> base.Probs:
  """Returns `[B, P]` zeros, where nothing is known yet."""
  zeros = jnp.zeros(target.probs.processed.shape[:2], jnp.float32)
  return base.Probs(zeros, zeros)
