"""How likely drafts would have been accepted at committed positions."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import sampling as sampling_lib
from specjax import trees


def draft_probs(
  logits: jax.Array, sampling: sampling_lib.Sampling, num_chosen: int = 0
) -> base.Probs:
  """Returns `[..., V]` what is compared with the target's probabilities.

  Where the likeliest tokens are chosen, each of them counts as 1: the target's
  mass on them is the probability that one of them comes next.

  Args:
    logits: `[..., V]`.
    sampling: how a token is drawn.
    num_chosen: number of tokens that are chosen instead; 0 if one is drawn.
  """
  probs = sampling_lib.both_probs(logits, sampling)
  if not num_chosen:
    return probs
  best, chosen = jax.lax.top_k(logits, min(num_chosen, logits.shape[-1]))
  exists = (best > -jnp.inf).astype(probs.raw.dtype)
  ones = jnp.put_along_axis(
    jnp.zeros_like(probs.raw), chosen, exists, axis=-1, inplace=False
  )
  return base.Probs(ones, probs.raw)


def fill_in(
  acceptance: base.Probs,
  probs: base.Probs,
  start: jax.Array,
  target: base.TargetProbs,
) -> base.Probs:
  """Fills in `1 - TV` at those committed positions that `probs` predict.

  Args:
    acceptance: `[B, P]` at all committed positions; kept at the others.
    probs: `[B, T, V]` of the draft; entry `i` predicts what follows the token
      at position `start + i`.
    start: `[B]` int32.
    target: the target's, at committed positions.
  """
  num_predicted = probs.processed.shape[1]
  index = np.arange(target.probs.processed.shape[1])[None]
  at = target.start[:, None] - 1 + index - start[:, None]
  is_predicted = (0 <= at) & (at < num_predicted)

  def fill(previous, draft, target):
    draft = jnp.take_along_axis(draft, at[..., None], axis=1, mode='clip')
    overlap = jnp.minimum(draft, target).sum(-1)
    return jnp.where(is_predicted, overlap, previous)

  return jax.tree.map(fill, acceptance, probs, target.probs)


def tokens_before(context: base.Context, target: base.TargetProbs) -> jax.Array:
  """Returns `[B, P]` the token before each committed position."""
  index = np.arange(target.probs.processed.shape[1])[None]
  positions = target.start[:, None] + index - 1
  return trees.at_entries(
    context.tokens, jnp.minimum(positions, context.lengths[:, None] - 1)
  )


def mass(
  target: base.TargetProbs, tokens: jax.Array, exists: jax.Array
) -> base.Probs:
  """Returns `[B, P]` the target's mass on tokens that are chosen there.

  Args:
    target: the target's, at committed positions.
    tokens: `[B, P, K]` int32 different tokens at each of them.
    exists: `[B, P, K]` bool, which of them there are.
  """

  def sum_probs(probs: jax.Array) -> jax.Array:
    chosen = jnp.take_along_axis(probs, jnp.where(exists, tokens, 0), axis=-1)
    return jnp.where(exists, chosen, 0.0).sum(-1)

  return jax.tree.map(sum_probs, target.probs)


def zeros(target: base.TargetProbs) -> base.Probs:
  """Returns `[B, P]` zeros, where nothing has been compared yet."""
  zeros = jnp.zeros(target.probs.processed.shape[:2], jnp.float32)
  return base.Probs(zeros, zeros)
