"""A decoder-only transformer in Flax NNX that covers the common families.

Llama, Mistral, Qwen, Gemma, Phi-3 and GPT-NeoX are settings of one
`TransformerConfig`. The modules hold parameters only, no state: the KV cache is
an argument, and the keys and values of new tokens are returned.
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
  """A transformer layer: attention and feed-forward with residuals."""

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
    """Transforms `x` `[B, T, d_model]`; see `attention.Attention`."""
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
  """A decoder-only transformer, from tokens to logits and uncommitted KV."""

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
    super().__init__(config, dtype, rngs)
    self.layers = layers_lib.module_dict(
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
    """Reads `T` tokens per row.

    Args:
      tokens: `[B, T]` int32.
      positions: `[B, T]` absolute positions; negative for padding.
      mask: `[B or 1, T, M + T]`, true where a token attends to a pending or a
        new one.
      cache: `KVCache` of the committed tokens, or None.
      pending_kv: `PendingKV` of `M` tokens before these, or None.

    Returns:
      Logits `[B, T, V]` float32; features `[B, T, d_model]`, which are the
      input of each layer and the normalized input of the output head; and the
      `PendingKV` of the `M + T` tokens.
    """
    x = self.embed(tokens)
    context = LayerContext(self.config, positions, mask, cache, pending_kv)
    keys_and_values, features = [], []
    for i, layer in enumerate(layers_lib.module_list(self.layers)):
      features.append(x)
      x, new = layer(x, *context.attention_arguments(i))
      keys_and_values.append(new)
    features.append(self.final_norm(x))
    new_kv = kv_cache.PendingKV(tuple(keys_and_values), positions)
    return (
      self.logits(features[-1]),
      tuple(features),
      kv_cache.append(pending_kv, new_kv),
    )


class LayerContext:
  """Inputs of attention that layers share: positions, masks, earlier tokens."""

  def __init__(
    self,
    config: Config,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None,
    pending_kv: kv_cache.PendingKV | None,
  ):
    """Computes rotations and masks; see `Transformer.__call__`."""
    self._config, self._cache, self._pending_kv = config, cache, pending_kv
    self._rotations = attention_lib.rotations(config, positions)
    self._masks = _masks(config, positions, mask, cache, pending_kv)

  def attention_arguments(
    self, layer: int
  ) -> tuple[
    attention_lib.Rotation,
    attention_lib.Part | None,
    kv_cache.KeysAndValues | None,
    jax.Array,
  ]:
    """Returns the arguments that `Attention` takes after its input.

    Args:
      layer: index of the layer.
    """
    local = self._config.is_local(layer)
    prefix_mask, suffix_mask = self._masks[local]
    prefix = pending = None
    if self._cache is not None and prefix_mask is not None:
      prefix = attention_lib.Part(
        *self._cache.layers[layer], prefix_mask, window=self._cache.window
      )
    if self._pending_kv is not None:
      pending = self._pending_kv.layers[layer]
    return self._rotations[local], prefix, pending, suffix_mask


def _masks(
  config: Config,
  positions: jax.Array,
  mask: jax.Array,
  cache: kv_cache.KVCache | None,
  pending_kv: kv_cache.PendingKV | None,
) -> dict[bool, tuple[jax.Array | None, jax.Array]]:
  """Returns the masks of global layers (False) and of local layers (True).

  Each is a pair of `[B, T, S]` for the KV cache, None without one, and
  `[B, T, M + T]` for pending and new tokens.
  """
  keys = positions
  if pending_kv is not None:
    keys = jnp.concatenate([pending_kv.positions, positions], axis=1)
  suffix_mask = mask & (keys[:, None, :] >= 0)
  slots = jnp.arange(0 if cache is None else cache.size)
  prefix_mask = None
  if cache is not None:
    is_valid = slots[None] < cache.lengths[:, None]
    prefix_mask = jnp.broadcast_to(
      is_valid[:, None], (*positions.shape, cache.size)
    )
  masks = {False: (prefix_mask, suffix_mask)}
  if config.sliding_window is not None:
    oldest = positions[..., None] - config.sliding_window + 1
    local_prefix_mask = None
    if prefix_mask is not None:
      local_prefix_mask = prefix_mask & (slots[None, None] >= oldest)
    masks[True] = local_prefix_mask, suffix_mask & (keys[:, None, :] >= oldest)
  return masks
