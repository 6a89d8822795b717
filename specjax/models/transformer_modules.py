"""A decoder-only transformer in Flax NNX that covers the common families.

Llama, Mistral, Qwen, Gemma, Phi-3 and GPT-NeoX are settings of one
`TransformerConfig`. The modules hold parameters only, no state: the cache is an
argument, and the keys and values of the tokens just read are a result.
"""

from flax import nnx
import jax
import jax.numpy as jnp

from specjax.models import attention as attention_lib
from specjax.models import config as config_lib
from specjax.models import kv_cache
from specjax.models import layers as layers_lib

Config = config_lib.TransformerConfig


class Layer(nnx.Module):
  """Attention and feed-forward around one residual stream."""

  def __init__(
    self, config: Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
  ):
    self.config = config
    self.attention_norm = layers_lib.Norm(config, config.d_model)
    self.attention = attention_lib.Attention(config, dtype, rngs)
    self.feed_forward_norm = layers_lib.Norm(config, config.d_model)
    self.feed_forward = layers_lib.FeedForward(config, dtype, rngs)
    if config.post_norms:
      self.attention_post_norm = layers_lib.Norm(config, config.d_model)
      self.feed_forward_post_norm = layers_lib.Norm(config, config.d_model)

  def __call__(
    self,
    x: jax.Array,
    angles: jax.Array | None,
    prefix: attention_lib.Part | None,
    pending: kv_cache.KeysAndValues | None,
    mask: jax.Array,
    bias: jax.Array | None = None,
  ) -> tuple[jax.Array, kv_cache.KeysAndValues]:
    attended, new = self.attention(
      self.attention_norm(x), angles, prefix, pending, mask, bias
    )
    if self.config.post_norms:
      attended = self.attention_post_norm(attended)
    if self.config.parallel_residual:
      return x + attended + self.feed_forward(self.feed_forward_norm(x)), new
    x = x + attended
    transformed = self.feed_forward(self.feed_forward_norm(x))
    if self.config.post_norms:
      transformed = self.feed_forward_post_norm(transformed)
    return x + transformed, new


class Transformer(nnx.Module):
  """The whole model: tokens in, logits and pending keys and values out."""

  def __init__(
    self,
    config: Config,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initialises random float32 parameters.

    Args:
      config: the architecture.
      rngs: source of the initial values.
      dtype: type of the computations; norms, softmax and logits stay float32.
    """
    self.config = config
    self.embedding = layers_lib.embedding(config, dtype, rngs)
    self.layers = nnx.List(
      [Layer(config, dtype, rngs) for _ in range(config.num_layers)]
    )
    self.final_norm = layers_lib.Norm(config, config.d_model)
    if not config.tie_embeddings:
      self.head = layers_lib.head(config, dtype, rngs)
    if config.head_size is not None:
      # The first tokens, until a better choice is made.
      tokens = jnp.arange(config.vocab_size, dtype=jnp.int32)
      rows = jnp.where(tokens < config.head_size, tokens, -1)
      self.head_rows = nnx.Param(rows)

  def __call__(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None = None,
    pending: kv_cache.Pending | None = None,
  ) -> tuple[jax.Array, tuple[jax.Array, ...], kv_cache.Pending]:
    """Reads `T` tokens a row.

    Args:
      tokens: `[B, T]` int32.
      positions: `[B, T]` absolute positions; negative marks padding.
      mask: `[B or 1, T, M + T]` which of the pending and of the new tokens each
        token attends to.
      cache: `KVCache` of the committed tokens, or None.
      pending: `Pending` of `M` tokens that stand before these, or None.

    Returns:
      `(logits [B, T, V] float32, features, Pending)`; features are `[B, T,
      d_model]` what enters each layer, then the normalised input of the head.
    """
    config = self.config
    x = self.embedding(tokens)
    if config.scale_embeddings:
      x *= jnp.asarray(config.d_model**0.5, x.dtype)
    angles = {
      local: positions[..., None].astype(jnp.float32)
      * attention_lib.rotary_frequencies(config, local)[None, None]
      for local in (False, True)
    }
    masks = _masks(config, positions, mask, cache, pending)
    news, features = [], []
    for i, layer in enumerate(self.layers):
      features.append(x)
      seen, own = masks[config.is_local(i)]
      prefix = None
      if cache is not None:
        prefix = attention_lib.Part(*cache.layers[i], seen, window=cache.window)
      x, new = layer(
        x,
        angles[config.is_local(i)],
        prefix,
        None if pending is None else pending.layers[i],
        own,
      )
      news.append(new)
    features.append(self.final_norm(x))
    fresh = kv_cache.Pending(layers=tuple(news), positions=positions)
    return (
      self.logits(features[-1]),
      tuple(features),
      kv_cache.append(pending, fresh),
    )

  def logits(self, x: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` float32 of the last features `[B, T, d_model]`."""
    logits = self.head_logits(x)
    if self.config.head_size is None:
      return logits
    rows = self.head_rows[...]
    known = jnp.take(logits, jnp.maximum(rows, 0), axis=-1)
    return jnp.where((rows >= 0)[None, None], known, -jnp.inf)

  def head_logits(self, x: jax.Array) -> jax.Array:
    """As `logits`, of the head's own tokens `[B, T, head_size]`."""
    if self.config.tie_embeddings:
      logits = layers_lib.tied_logits(self.embedding, x)
    else:
      logits = self.head(x)
    logits = layers_lib.softcap(
      logits.astype(jnp.float32), self.config.logit_softcap
    )
    return logits[..., : self.config.vocab_size]


def _masks(config, positions, mask, cache, pending):
  """Prefix and pending masks, of global layers (False) and of local ones."""
  keys = positions
  if pending is not None:
    keys = jnp.concatenate([pending.positions, positions], axis=1)
  pending_mask = mask & (keys[:, None, :] >= 0)
  slots = jnp.arange(0 if cache is None else cache.size)
  prefix_mask = None
  if cache is not None:
    seen = slots[None] < cache.lengths[:, None]
    prefix_mask = jnp.broadcast_to(
      seen[:, None], (*positions.shape, cache.size)
    )
  masks = {False: (prefix_mask, pending_mask)}
  if config.sliding_window is not None:
    oldest = positions[..., None] - config.sliding_window + 1
    masks[True] = (
      None if cache is None else prefix_mask & (slots[None, None] >= oldest),
      pending_mask & (keys[:, None, :] >= oldest),
    )
  return masks
