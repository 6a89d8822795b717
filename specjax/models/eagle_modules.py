"""The heads of EAGLE and EAGLE-3 in Flax NNX: one layer on the target.

They read pairs. A pair joins the embedding of a token with the target's
features of the token before it or, where the target has not computed them yet,
with the head's output for that token. The modules hold parameters only, no
state.
"""

from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp

from specjax.models import attention as attention_lib
from specjax.models import config as config_lib
from specjax.models import head_config
from specjax.models import kv_cache
from specjax.models import layers as layers_lib
from specjax.models import transformer_modules


class Eagle(layers_lib.TokenModel):
  """The head of EAGLE-1, which predicts the next input of the output head."""

  def __init__(
    self,
    config: head_config.EagleConfig,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initializes random float32 parameters; see `Transformer`."""
    super().__init__(config.layer, dtype, rngs)
    size = config.layer.d_model
    self.join = _linear(2 * size, size, config.bias, dtype, rngs)
    self.layer = _Layer(config.layer, dtype, rngs)

  def fuse(self, features: tuple[jax.Array, ...]) -> jax.Array:
    """Returns the only feature, `[B, T, d_model]`, unchanged."""
    return features[0]

  def __call__(
    self,
    tokens: jax.Array,
    inputs: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None = None,
    pending_kv: kv_cache.PendingKV | None = None,
  ) -> tuple[jax.Array, kv_cache.PendingKV]:
    """Reads `T` pairs per row.

    Args:
      tokens: `[B, T]` int32.
      inputs: `[B, T, d_model]` from `fuse`, or outputs for the previous pairs.
      positions: `[B, T]` positions of the features; negative for padding.
      mask: `[B or 1, T, M + T]`, true where a pair attends to a pending or a
        new one.
      cache: `KVCache` of the committed pairs, or None.
      pending_kv: `PendingKV` of `M` pairs before these, or None.

    Returns:
      Outputs `[B, T, d_model]`, which predict the features at the tokens, and
      the `PendingKV` of the `M + T` pairs.
    """
    joined = jnp.concatenate([self.embed(tokens), inputs], axis=-1)
    # The layer does not normalize its input.
    x = self.join(joined)
    return _read(self, x, x, positions, mask, cache, pending_kv)

  def predict(self, outputs: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` float32 logits of outputs `[B, T, d_model]`."""
    return self.logits(outputs)

  def predict_drafted(self, outputs: jax.Array) -> jax.Array:
    """Returns `[B, T, H]` logits of the `H` tokens that can be drafted."""
    return self.head_logits(outputs)


class Eagle3(layers_lib.TokenModel):
  """The head of EAGLE-3, with several features and an output head."""

  def __init__(
    self,
    config: head_config.Eagle3Config,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initializes random float32 parameters; see `Transformer`."""
    super().__init__(config.layer, dtype, rngs)
    self.variant = config
    layer, num = config.layer, len(config.taps)
    norm = lambda: layers_lib.Norm(layer, layer.d_model)
    if config.norm_taps:
      self.tap_norms = layers_lib.module_dict(norm() for _ in range(num))
    if config.norm_before_fc:
      self.features_norm = layers_lib.Norm(layer, num * layer.d_model)
    self.join = _linear(num * layer.d_model, layer.d_model, False, dtype, rngs)
    self.token_norm, self.input_norm, self.final_norm = norm(), norm(), norm()
    self.layer = _Layer(layer, dtype, rngs, input_size=2 * layer.d_model)

  def fuse(self, features: tuple[jax.Array, ...]) -> jax.Array:
    """Returns the target's features, joined to `[B, T, d_model]`."""
    if self.variant.norm_taps:
      norms = layers_lib.module_list(self.tap_norms)
      features = tuple(
        norm(feature) for norm, feature in zip(norms, features, strict=True)
      )
    joined = jnp.concatenate(features, axis=-1)
    if self.variant.norm_before_fc:
      joined = self.features_norm(joined)
    return self.join(joined)

  def __call__(
    self,
    tokens: jax.Array,
    inputs: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None = None,
    pending_kv: kv_cache.PendingKV | None = None,
  ) -> tuple[jax.Array, kv_cache.PendingKV]:
    """Reads `T` pairs per row; see `Eagle.__call__`."""
    normalized = self.input_norm(inputs)
    x = [self.token_norm(self.embed(tokens)), normalized]
    residual = normalized if self.variant.norm_before_residual else inputs
    outputs, pending_kv = _read(
      self,
      jnp.concatenate(x, axis=-1),
      residual,
      positions,
      mask,
      cache,
      pending_kv,
    )
    if self.variant.norm_output:
      outputs = self.final_norm(outputs)
    return outputs, pending_kv

  def predict(self, outputs: jax.Array) -> jax.Array:
    """See `Eagle.predict`."""
    return self.logits(self._normalize(outputs))

  def predict_drafted(self, outputs: jax.Array) -> jax.Array:
    """See `Eagle.predict_drafted`."""
    return self.head_logits(self._normalize(outputs))

  def _normalize(self, outputs: jax.Array) -> jax.Array:
    """Normalizes outputs, unless they already are, for the output head."""
    return outputs if self.variant.norm_output else self.final_norm(outputs)


class _Layer(nnx.Module):
  """A transformer layer that does not normalize the input of its attention."""

  def __init__(
    self,
    config: config_lib.TransformerConfig,
    dtype: jax.typing.DTypeLike,
    rngs: nnx.Rngs,
    input_size: int | None = None,
  ):
    self.attention = attention_lib.Attention(config, dtype, rngs, input_size)
    self.feed_forward_norm = layers_lib.Norm(config, config.d_model)
    self.feed_forward = layers_lib.FeedForward(config, dtype, rngs)

  def __call__(
    self, x: jax.Array, residual: jax.Array, *context: Any
  ) -> tuple[jax.Array, kv_cache.KeysAndValues]:
    """Transforms `x`, with other arguments from `LayerContext`."""
    attended, new = self.attention(x, *context)
    x = residual + attended
    return x + self.feed_forward(self.feed_forward_norm(x)), new


def _read(
  head: Eagle | Eagle3,
  x: jax.Array,
  residual: jax.Array,
  positions: jax.Array,
  mask: jax.Array,
  cache: kv_cache.KVCache | None,
  pending_kv: kv_cache.PendingKV | None,
) -> tuple[jax.Array, kv_cache.PendingKV]:
  """Runs the layer of a head on `x`; see `Eagle.__call__`."""
  context = transformer_modules.LayerContext(
    head.config, positions, mask, cache, pending_kv
  )
  outputs, new = head.layer(x, residual, *context.attention_arguments(0))
  new_kv = kv_cache.PendingKV(layers=(new,), positions=positions)
  return outputs, kv_cache.append(pending_kv, new_kv)


def _linear(
  size_in: int,
  size_out: int,
  bias: bool,
  dtype: jax.typing.DTypeLike,
  rngs: nnx.Rngs,
) -> nnx.Linear:
  """Returns a linear layer with small random parameters."""
  return layers_lib.linear(
    size_in,
    size_out,
    use_bias=bias,
    dtype=dtype,
    rngs=rngs,
    kernel_init=nnx.initializers.normal(0.02),
  )
