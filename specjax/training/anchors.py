"""Random tokens of packed rows after which a loss drafts several tokens."""

from typing import Any

import jax
import jax.numpy as jnp

from specjax import trees


def choose(key: jax.Array, batch: Any, num: int) -> jax.Array:
  """Returns `[B, num]` random tokens that have a weight; all different.

  In rows with fewer of them, others follow, whose first targets have no weight.

  Args:
    key: a random key.
    batch: a `packing.Batch` or a `packing.TaughtBatch`.
    num: number of tokens, at most the length of the rows.
  """
  order = jax.random.uniform(key, batch.tokens.shape)
  return jax.lax.top_k(jnp.where(batch.weights > 0, order, order - 1), num)[1]


def weights_at(batch: Any, anchors: jax.Array, indices: jax.Array) -> jax.Array:
  """Returns the weights of the predictions at some tokens of anchors' texts.

  They are 0 past the end of an anchor's text.

  Args:
    batch: See `choose`.
    anchors: `[B, N]`.
    indices: `[B, N, K]`, `K` indices of tokens for each anchor.

  Returns:
    `[B, N, K]`.
  """
  flat = indices.reshape(len(indices), -1)
  gather = lambda values: trees.at_entries(values, flat).reshape(indices.shape)
  segments = trees.at_entries(batch.segments, anchors)[..., None]
  is_same_text = (gather(batch.segments) == segments) & (segments >= 0)
  is_same_text &= indices < batch.tokens.shape[1]
  return jnp.where(is_same_text, gather(batch.weights), 0.0)
