"""An encoder-decoder of the family T5 v1.1 in Flax NNX.

Raffel et al., Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer (2020), as revised by its authors: gated GELU, no tied
head. Positions enter as learnt biases of query-key products alone, which are
not scaled. The layers are those of `transformer_modules`.

A row is `source, start token, response`. The decoder's slot 0 is the last token
of the source, which is read as padding, and slot 1 the start token: so a
prompt whose last token was not read yet is a prompt like any other, and the
cache counts tokens of the row.
"""

from collections.abc import Callable
from typing import Any

from flax import nnx
from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax.contrib import encoder_decoder_config
from specjax.contrib import example_pairs
from specjax.models import attention
from specjax.models import config as config_lib
from specjax.models import kv_cache
from specjax.models import layers
from specjax.models import transformer_modules

Config = encoder_decoder_config.EncoderDecoderConfig


class Cache(struct.PyTreeNode):
  """The decoder's cache, and the source as its layers see it."""

  decoder: kv_cache.KVCache  # its length counts slots
  cross: tuple[kv_cache.KeysAndValues, ...]  # each [B, H, T, D]
  offsets: jax.Array  # [B] int32, place in the row of slot 0: source length - 1

  @property
  def lengths(self) -> jax.Array:
    """`[B]` committed tokens of the row, source included."""
    return self.offsets + self.decoder.lengths

  def within_window(self, read: Callable[['Cache'], Any]) -> Any:
    """As `KVCache.within_window`, of the decoder."""
    return self.decoder.within_window(
      lambda decoder: read(self.replace(decoder=decoder))
    )

  @property
  def source(self) -> jax.Array:
    """`[B, 1, T]` bool, which of the encoder's positions hold a token."""
    places = jnp.arange(self.cross[0][0].shape[2])[None, None]
    return places <= self.offsets[:, None, None]


def init_cache(
  config: Config, batch: int, size: int, dtype: jax.typing.DTypeLike
) -> Cache:
  """Returns an empty cache of `size` slots; its source is one slot of zeros."""
  shape = lambda slots: (batch, config.num_heads, slots, config.head_dim)
  num_layers = config.decoder_layers
  return Cache(
    decoder=kv_cache.init(num_layers, shape(size), dtype),
    cross=kv_cache.init(num_layers, shape(1), dtype).layers,
    offsets=jnp.zeros(batch, jnp.int32),
  )


def commit(
  cache: Cache, pending_kv: kv_cache.PendingKV, path: jax.Array, num: jax.Array
) -> Cache:
  """Commits pending entries, as `kv_cache.commit` does."""
  decoder = kv_cache.commit(cache.decoder, pending_kv, path, num)
  return cache.replace(decoder=decoder)


def rollback(cache: Cache, lengths: jax.Array) -> Cache:
  """Forgets what the decoder read at and past `lengths` `[B]` of the row."""
  slots = jnp.maximum(lengths - cache.offsets, 0)
  return cache.replace(decoder=kv_cache.rollback(cache.decoder, slots))


def source_lengths(
  tokens: jax.Array, lengths: jax.Array, start_id: int
) -> jax.Array:
  """Returns `[B]` how many tokens stand before the first start token.

  It may stand at or past `lengths` `[B]`; without one, these are the source.
  """
  starts = tokens == start_id
  return jnp.where(starts.any(1), jnp.argmax(starts, axis=1), lengths)


class RelativeBias(nnx.Module):
  """A learnt bias of each head for each bucket of relative positions."""

  def __init__(self, config: Config, bidirectional: bool, rngs: nnx.Rngs):
    self.config = config
    self.bidirectional = bidirectional
    self.table = nnx.Embed(
      config.num_buckets,
      config.num_heads,
      rngs=rngs,
      embedding_init=nnx.initializers.normal(0.02),
    )

  def __call__(self, queries: jax.Array, keys: jax.Array) -> jax.Array:
    """Returns `[B, H, T, S]` biases for positions `[B, T]` and `[B, S]`."""
    farthest = self.config.max_distance
    buckets = _buckets(self.config.num_buckets, farthest, self.bidirectional)
    by_distance = self.table.embedding[...][buckets].T
    distance = keys[:, None, :] - queries[:, :, None]
    index = jnp.clip(distance, -farthest, farthest) + farthest
    return jnp.take(by_distance, index, axis=1).swapaxes(0, 1)


def _buckets(num_buckets, max_distance, bidirectional):
  """Bucket of each key position minus query position, from `-max_distance` on.

  Half of the buckets are for one distance each, the others grow with it. What
  comes behind the query has buckets of its own, or, if it is never seen, any.
  """
  distance = np.arange(-max_distance, max_distance + 1)
  behind = bidirectional * (distance > 0)
  distance = np.abs(distance) if bidirectional else np.maximum(-distance, 0)
  num_buckets //= 1 + bidirectional
  exact = num_buckets // 2
  # Base 2, so that powers of 2 are on the right side of their bucket's edge.
  growth = np.log2(np.maximum(distance, 1) / exact)
  growth *= (num_buckets - exact) / np.log2(max_distance / exact)
  far = np.minimum(exact + np.maximum(growth, 0).astype(int), num_buckets - 1)
  return behind * num_buckets + np.where(distance < exact, distance, far)


class DecoderLayer(transformer_modules.Layer):
  """A layer that also attends to the source."""

  def __init__(
    self,
    config: config_lib.TransformerConfig,
    dtype: jax.typing.DTypeLike,
    rngs: nnx.Rngs,
  ):
    super().__init__(config, dtype, rngs)
    self.cross_norm = layers.Norm(config, config.d_model)
    self.cross = attention.Attention(config, dtype, rngs)

  def decode(
    self,
    x: jax.Array,
    prefix: attention.Part | None,
    pending: kv_cache.KeysAndValues | None,
    mask: jax.Array,
    bias: jax.Array,
    cross: kv_cache.KeysAndValues,
    source: jax.Array,
  ) -> tuple[jax.Array, kv_cache.KeysAndValues]:
    """Calls it; `cross` are the source's, where `source` is true."""
    attended, new = self.attention(
      self.attention_norm(x), None, prefix, pending, mask, bias
    )
    x += attended
    part = attention.Part(*cross, source)
    x += self.cross.attend(self.cross_norm(x), None, [part])
    return x + self.feed_forward(self.feed_forward_norm(x)), new


class Stack(nnx.Module):
  """Layers that share their biases, and a norm behind them."""

  def __init__(
    self,
    config: Config,
    decodes: bool,
    dtype: jax.typing.DTypeLike,
    rngs: nnx.Rngs,
  ):
    num_layers = config.decoder_layers if decodes else config.encoder_layers
    each = config.stack(num_layers)
    layer: type[Any] = DecoderLayer if decodes else transformer_modules.Layer
    self.relative_bias = RelativeBias(config, not decodes, rngs)
    self.layers = layers.module_dict(
      layer(each, dtype, rngs) for _ in range(num_layers)
    )
    self.final_norm = layers.Norm(each, each.d_model)


class EncoderDecoder(nnx.Module):
  """The whole model; `__call__` is the decoder."""

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
    self.embedding = layers.embedding(config, dtype, rngs)
    self.encoder = Stack(config, False, dtype, rngs)
    self.decoder = Stack(config, True, dtype, rngs)
    if not config.tie_embeddings:
      self.head = layers.head(config, dtype, rngs)

  def encode(
    self, tokens: jax.Array, mask: jax.Array
  ) -> tuple[kv_cache.KeysAndValues, ...]:
    """Reads sources.

    Args:
      tokens: `[B, T]` int32.
      mask: `[B, 1 or T, T]`, true where a token is attended to.

    Returns:
      For each of the decoder's layers `(k, v)`, each `[B, H, T, D]`.
    """
    x = self.embedding(tokens)
    places = jnp.arange(tokens.shape[1])[None]
    bias = self.encoder.relative_bias(places, places)
    for layer in layers.module_list(self.encoder.layers):
      x, _ = layer(x, None, None, None, mask, bias)
    x = self.encoder.final_norm(x)
    return tuple(
      layer.cross.keys_and_values(x, None)
      for layer in layers.module_list(self.decoder.layers)
    )

  def __call__(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    cache: Cache,
    pending_kv: kv_cache.PendingKV | None = None,
  ) -> tuple[jax.Array, tuple[jax.Array, ...], kv_cache.PendingKV]:
    """Reads `T` tokens a row behind the cache.

    Args:
      tokens: `[B, T]` int32.
      positions: `[B, T]` absolute positions in the row, source included;
        negative marks padding, as a token of the source is.
      mask: `[B or 1, T, M + T]` which of the pending and of the new tokens each
        token attends to.
      cache: `Cache` of the source and the committed tokens.
      pending_kv: `PendingKV` of `M` tokens that stand before these, or None.

    Returns:
      `(logits [B, T, V] float32, features, PendingKV)`; features are `[B, T,
      d_model]` what enters each layer of the decoder, then its normed output.
    """
    positions = positions - cache.offsets[:, None] - 1
    keys = positions
    if pending_kv is not None:
      keys = jnp.concatenate([pending_kv.positions, positions], axis=1)
    slots = jnp.arange(cache.decoder.size)[None]
    seen = (1 <= slots) & (slots < cache.decoder.lengths[:, None])
    bias = self.decoder.relative_bias
    behind, window = bias(positions, slots - 1), cache.decoder.window
    prefix = [
      attention.Part(keys, values, seen[:, None], behind, window)
      for keys, values in cache.decoder.layers
    ]
    features, news = self._decode(
      tokens,
      prefix,
      pending_kv and pending_kv.layers,
      mask & (keys[:, None] >= 0),
      bias(positions, keys),
      cache.cross,
      cache.source,
    )
    fresh = kv_cache.PendingKV(news, positions)
    logits = self._logits(features[-1])
    return logits, features, kv_cache.append(pending_kv, fresh)

  def teacher_forced(self, batch: example_pairs.PairBatch) -> jax.Array:
    """Returns `[B, T, V]` logits."""
    rows = jax.tree.map(jnp.asarray, batch)
    same = lambda of, to: of[:, :, None] == to[:, None, :]
    own = rows.source_segments
    cross = self.encode(rows.source_tokens, same(own, own))
    # Examples are in one piece: in them, places differ as positions do.
    places = jnp.arange(rows.tokens.shape[1])
    causal = places[None] <= places[:, None]
    features, _ = self._decode(
      rows.tokens,
      None,
      None,
      same(rows.segments, rows.segments) & causal[None],
      self.decoder.relative_bias(places[None], places[None]),
      cross,
      same(rows.segments, own),
    )
    return self._logits(features[-1])

  def _decode(self, tokens, prefix, pending, mask, bias, cross, source):
    x, news, features = self.embedding(tokens), [], []
    for i, layer in enumerate(layers.module_list(self.decoder.layers)):
      features.append(x)
      x, new = layer.decode(
        x,
        prefix and prefix[i],
        pending and pending[i],
        mask,
        bias,
        cross[i],
        source,
      )
      news.append(new)
    return (*features, self.decoder.final_norm(x)), tuple(news)

  def _logits(self, features):
    config = self.config
    if config.tie_embeddings:
      logits = layers.tied_logits(
        self.embedding, features * config.d_model**-0.5
      )
    else:
      logits = self.head(features)
    return logits.astype(jnp.float32)[..., : config.vocab_size]
