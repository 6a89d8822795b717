"""An encoder-decoder of the family T5 v1.1 in Flax NNX.

Raffel et al., Exploring the Limits of Transfer Learning with a Unified
Text-to-Text Transformer (2020), as revised by its authors: gated GELU, and an
untied output head. Positions enter only as learned biases of query-key
products, which are not scaled. The layers are those of `transformer_modules`.

A row is `source, start token, response`. Slot 0 of the decoder's KV cache is
the last token of the source, which is padding, and slot 1 is the start token.
As for decoder-only models, the cache thus holds all tokens of the row but the
last.
"""

from collections.abc import Callable
from collections.abc import Sequence
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
  """The KV cache of the decoder, and keys and values of the source.

  Attributes:
    decoder: KV cache of the decoder, whose lengths are numbers of slots.
    cross: keys and values of the source for the cross-attention of each layer,
      `[B, H, T, D]`.
    offsets: `[B]` int32, position of slot 0 in the row: source length - 1.
  """

  decoder: kv_cache.KVCache
  cross: tuple[kv_cache.KeysAndValues, ...]
  offsets: jax.Array

  @property
  def lengths(self) -> jax.Array:
    """`[B]` number of committed tokens of the row, including the source."""
    return self.offsets + self.decoder.lengths

  def within_window(self, read: Callable[['Cache'], Any]) -> Any:
    """Returns `read(cache)` within a window; see `KVCache.within_window`."""
    return self.decoder.within_window(
      lambda decoder: read(self.replace(decoder=decoder))
    )

  @property
  def source(self) -> jax.Array:
    """`[B, 1, T]` bool, whether a position of the encoder has a token."""
    positions = jnp.arange(self.cross[0][0].shape[2])[None, None]
    return positions <= self.offsets[:, None, None]


def init_cache(
  config: Config, batch: int, size: int, dtype: jax.typing.DTypeLike
) -> Cache:
  """Returns an empty cache of `size` slots, with one zero slot as source."""
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
  """Removes the entries at and past `lengths` `[B]` of the row."""
  slots = jnp.maximum(lengths - cache.offsets, 0)
  return cache.replace(decoder=kv_cache.rollback(cache.decoder, slots))


def source_lengths(
  tokens: jax.Array, lengths: jax.Array, start_id: int
) -> jax.Array:
  """Returns `[B]` the numbers of tokens before the first start token.

  Args:
    tokens: `[B, T]`.
    lengths: `[B]` results for rows without a start token. It may also come at
      or past the length.
    start_id: the start token.
  """
  starts = tokens == start_id
  return jnp.where(starts.any(1), jnp.argmax(starts, axis=1), lengths)


class RelativeBias(nnx.Module):
  """A learned bias for each head and each bucket of relative positions."""

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


def _buckets(
  num_buckets: int, max_distance: int, bidirectional: bool
) -> np.ndarray:
  """Returns the buckets of key positions minus query positions.

  Half of the buckets are for one distance each, and the width of the others
  grows exponentially. Keys after the query have separate buckets if they are
  attended to.

  Returns:
    `[2 * max_distance + 1]` buckets for distances from `-max_distance`.
  """
  distance = np.arange(-max_distance, max_distance + 1)
  is_after = bidirectional * (distance > 0)
  distance = np.abs(distance) if bidirectional else np.maximum(-distance, 0)
  num_buckets //= 1 + bidirectional
  exact = num_buckets // 2
  # The logarithm of powers of 2 is exact, and so are the edges of buckets.
  growth = np.log2(np.maximum(distance, 1) / exact)
  growth *= (num_buckets - exact) / np.log2(max_distance / exact)
  far = np.minimum(exact + np.maximum(growth, 0).astype(int), num_buckets - 1)
  return is_after * num_buckets + np.where(distance < exact, distance, far)


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
    """Transforms `x` `[B, T, d_model]`; see `attention.Attention`.

    Args:
      x: input of the layer.
      prefix: keys and values in the KV cache, or None.
      pending: `(k, v)` of the pending tokens, or None.
      mask: `[B, T, M + T]`, true where a token attends to a pending or a new
        one.
      bias: bias of the products with pending and new keys.
      cross: keys and values of the source.
      source: `[B, 1 or T, S]`, true where a token attends to the source.
    """
    attended, new = self.attention(
      self.attention_norm(x), None, prefix, pending, mask, bias
    )
    x += attended
    part = attention.Part(*cross, source)
    x += self.cross.attend(self.cross_norm(x), None, [part])
    return x + self.feed_forward(self.feed_forward_norm(x)), new


class Stack(nnx.Module):
  """The layers of the encoder or the decoder, with a shared bias and a norm."""

  def __init__(
    self,
    config: Config,
    decodes: bool,
    dtype: jax.typing.DTypeLike,
    rngs: nnx.Rngs,
  ):
    num_layers = config.decoder_layers if decodes else config.encoder_layers
    stack_config = config.stack(num_layers)
    layer: type[Any] = DecoderLayer if decodes else transformer_modules.Layer
    self.relative_bias = RelativeBias(config, not decodes, rngs)
    self.layers = layers.module_dict(
      layer(stack_config, dtype, rngs) for _ in range(num_layers)
    )
    self.final_norm = layers.Norm(stack_config, stack_config.d_model)


class EncoderDecoder(nnx.Module):
  """An encoder-decoder; `__call__` runs the decoder."""

  def __init__(
    self,
    config: Config,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initializes random float32 parameters.

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
    """Encodes sources.

    Args:
      tokens: `[B, T]` int32.
      mask: `[B, 1 or T, T]`, true where a token attends to another.

    Returns:
      `(k, v)` for the cross-attention of each of the decoder's layers,
      `[B, H, T, D]` each.
    """
    x = self.embedding(tokens)
    positions = jnp.arange(tokens.shape[1])[None]
    bias = self.encoder.relative_bias(positions, positions)
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
    """Reads `T` tokens per row after the cache.

    Args:
      tokens: `[B, T]` int32.
      positions: `[B, T]` absolute positions in the row, including the source.
        Negative ones, and those in the source, are padding.
      mask: `[B or 1, T, M + T]`, true where a token attends to a pending or a
        new one.
      cache: `Cache` of the source and the committed tokens.
      pending_kv: `PendingKV` of `M` tokens before these, or None.

    Returns:
      Logits `[B, T, V]` float32; features `[B, T, d_model]`, which are the
      input of each layer of the decoder and its normalized output; and the
      `PendingKV` of the `M + T` tokens.
    """
    positions = positions - cache.offsets[:, None] - 1
    keys = positions
    if pending_kv is not None:
      keys = jnp.concatenate([pending_kv.positions, positions], axis=1)
    slots = jnp.arange(cache.decoder.size)[None]
    is_valid = (1 <= slots) & (slots < cache.decoder.lengths[:, None])
    bias = self.decoder.relative_bias
    prefix_bias, window = bias(positions, slots - 1), cache.decoder.window
    prefix = [
      attention.Part(keys, values, is_valid[:, None], prefix_bias, window)
      for keys, values in cache.decoder.layers
    ]
    features, keys_and_values = self._decode(
      tokens,
      prefix,
      pending_kv and pending_kv.layers,
      mask & (keys[:, None] >= 0),
      bias(positions, keys),
      cache.cross,
      cache.source,
    )
    new_kv = kv_cache.PendingKV(keys_and_values, positions)
    logits = self._logits(features[-1])
    return logits, features, kv_cache.append(pending_kv, new_kv)

  def teacher_forced(self, batch: example_pairs.PairBatch) -> jax.Array:
    """Returns the logits `[B, T, V]` of a batch."""
    rows = jax.tree.map(jnp.asarray, batch)
    is_same = lambda queries, keys: queries[:, :, None] == keys[:, None, :]
    sources = rows.source_segments
    cross = self.encode(rows.source_tokens, is_same(sources, sources))
    # Examples are contiguous, so that differences of indices are those of
    # positions.
    index = jnp.arange(rows.tokens.shape[1])
    causal = index[None] <= index[:, None]
    features, _ = self._decode(
      rows.tokens,
      None,
      None,
      is_same(rows.segments, rows.segments) & causal[None],
      self.decoder.relative_bias(index[None], index[None]),
      cross,
      is_same(rows.segments, sources),
    )
    return self._logits(features[-1])

  def _decode(
    self,
    tokens: jax.Array,
    prefix: Sequence[attention.Part] | None,
    pending: tuple[kv_cache.KeysAndValues, ...] | None,
    mask: jax.Array,
    bias: jax.Array,
    cross: tuple[kv_cache.KeysAndValues, ...],
    source: jax.Array,
  ) -> tuple[tuple[jax.Array, ...], tuple[kv_cache.KeysAndValues, ...]]:
    """Runs the decoder's layers; see `DecoderLayer.decode`.

    Returns:
      The features, and keys and values of the new tokens, for each layer.
    """
    x, keys_and_values, features = self.embedding(tokens), [], []
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
      keys_and_values.append(new)
    features.append(self.decoder.final_norm(x))
    return tuple(features), tuple(keys_and_values)

  def _logits(self, features: jax.Array) -> jax.Array:
    """Returns logits `[B, T, V]` of the decoder's normalized output."""
    config = self.config
    if config.tie_embeddings:
      logits = layers.tied_logits(
        self.embedding, features * config.d_model**-0.5
      )
    else:
      logits = self.head(features)
    return logits[..., : config.vocab_size]
