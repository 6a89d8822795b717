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
    rotation: attention_lib.Rotation | None,
    prefix: attention_lib.Part | None,
    pending: kv_cache.KeysAndValues | None,
    mask: jax.Array,
    bias: jax.Array | None = None,
  ) -> tuple[jax.Array, kv_cache.KeysAndValues]:
    attended, new = self.attention(
      self.attention_norm(x), rotation, prefix, pending, mask, bias
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


class Transformer(layers_lib.TokenModel):
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
    super().__init__(config, dtype, rngs)
    self.layers = layers_lib.numbered(
      Layer(config, dtype, rngs) for _ in range(config.num_layers)
    )
    self.final_norm = layers_lib.Norm(config, config.d_model)

  def __call__(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None = None,
    pending_kv: kv_cache.PendingKV | None = None,
  ) -> tuple[jax.Array, tuple[jax.Array, ...], kv_cache.PendingKV]:
    """Reads `T` tokens a row.

    Args:
      tokens: `[B, T]` int32.
      positions: `[B, T]` absolute positions; negative marks padding.
      mask: `[B or 1, T, M + T]` which of the pending and of the new tokens each
        token attends to.
      cache: `KVCache` of the committed tokens, or None.
      pending_kv: `PendingKV` of `M` tokens that stand before these, or None.

    Returns:
      `(logits [B, T, V] float32, features, PendingKV)`; features are `[B, T,
      d_model]` what enters each layer, then the normalised input of the head.
    """
    x = self.embed(tokens)
    around = Surroundings(self.config, positions, mask, cache, pending_kv)
    news, features = [], []
    for i, layer in enumerate(layers_lib.in_order(self.layers)):
      features.append(x)
      x, new = layer(x, *around.of_layer(i))
      news.append(new)
    features.append(self.final_norm(x))
    fresh = kv_cache.PendingKV(layers=tuple(news), positions=positions)
    return (
      self.logits(features[-1]),
      tuple(features),
      kv_cache.append(pending_kv, fresh),
    )


class Surroundings:
  """What layers see beside their input: places, and what stands before."""

  def __init__(
    self,
    config: Config,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None,
    pending_kv: kv_cache.PendingKV | None,
  ):
    """Computes what layers have in common; arguments as of `Transformer`."""
    self._config, self._cache, self._pending_kv = config, cache, pending_kv
    self._rotations = {
      local: attention_lib.rotation(config, positions, local)
      for local in (False, True)
    }
    self._masks = _masks(config, positions, mask, cache, pending_kv)

  def of_layer(
    self, i: int
  ) -> tuple[
    attention_lib.Rotation,
    attention_lib.Part | None,
    kv_cache.KeysAndValues | None,
    jax.Array,
  ]:
    """Returns what `Attention` takes behind its input."""
    local = self._config.is_local(i)
    seen, own = self._masks[local]
    prefix = pending = None
    if self._cache is not None:
      prefix = attention_lib.Part(
        *self._cache.layers[i], seen, window=self._cache.window
      )
    if self._pending_kv is not None:
      pending = self._pending_kv.layers[i]
    return self._rotations[local], prefix, pending, own


def _masks(config, positions, mask, cache, pending_kv):
  """Prefix and pending masks, of global layers (False) and of local ones."""
  keys = positions
  if pending_kv is not None:
    keys = jnp.concatenate([pending_kv.positions, positions], axis=1)
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
