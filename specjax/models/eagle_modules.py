"""The heads of EAGLE and EAGLE-3 in Flax NNX: one layer behind the target.

They read pairs: the embedding of a token, and the target's features of the
token before it, or in their place what the head itself has returned there. The
modules hold parameters only, as those of transformers.
"""

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
  """EAGLE-1: predicts the next feature, which the target's head reads."""

  def __init__(
    self,
    config: head_config.EagleConfig,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initialises random float32 parameters; arguments as of `Transformer`."""
    super().__init__(config.layer, dtype, rngs)
    size = config.layer.d_model
    self.join = _linear(2 * size, size, config.bias, dtype, rngs)
    self.layer = _Layer(config.layer, dtype, rngs)

  def fuse(self, features: tuple[jax.Array, ...]) -> jax.Array:
    """Returns `[B, T, d_model]`, the feature that is read, as it is."""
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
    """Reads `T` pairs a row.

    Args:
      tokens: `[B, T]` int32.
      inputs: `[B, T, d_model]` from `fuse`, or outputs of the token before.
      positions: `[B, T]` of the features; negative marks padding.
      mask: as of `Transformer`, of pairs.
      cache: of committed pairs, or None.
      pending_kv: `PendingKV` of `M` pairs that stand before these, or None.

    Returns:
      `[B, T, d_model]` outputs, each the feature of its token, and `PendingKV`.
    """
    joined = jnp.concatenate([self.embed(tokens), inputs], axis=-1)
    # The layer has no norm of its input.
    x = self.join(joined)
    return _read(self, x, x, positions, mask, cache, pending_kv)

  def predict(self, outputs: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` float32 logits of outputs `[B, T, d_model]`."""
    return self.logits(outputs)

  def predict_drafted(self, outputs: jax.Array) -> jax.Array:
    """As `predict`, of the tokens that can be drafted, `[B, T, H]`."""
    return self.head_logits(outputs)


class Eagle3(layers_lib.TokenModel):
  """EAGLE-3: joins features of several depths; a head of its own."""

  def __init__(
    self,
    config: head_config.Eagle3Config,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initialises random float32 parameters; arguments as of `Transformer`."""
    super().__init__(config.layer, dtype, rngs)
    self.variant = config
    layer, num = config.layer, len(config.taps)
    norm = lambda: layers_lib.Norm(layer, layer.d_model)
    if config.norm_taps:
      self.tap_norms = layers_lib.numbered(norm() for _ in range(num))
    self.join = _linear(num * layer.d_model, layer.d_model, False, dtype, rngs)
    self.token_norm, self.input_norm, self.final_norm = norm(), norm(), norm()
    self.layer = _Layer(layer, dtype, rngs, input_size=2 * layer.d_model)

  def fuse(self, features: tuple[jax.Array, ...]) -> jax.Array:
    """Returns `[B, T, d_model]` of the target's features."""
    if self.variant.norm_taps:
      norms = layers_lib.in_order(self.tap_norms)
      features = tuple(
        norm(each) for norm, each in zip(norms, features, strict=True)
      )
    return self.join(jnp.concatenate(features, axis=-1))

  def __call__(
    self,
    tokens: jax.Array,
    inputs: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None = None,
    pending_kv: kv_cache.PendingKV | None = None,
  ) -> tuple[jax.Array, kv_cache.PendingKV]:
    """Reads `T` pairs a row; arguments and results as of `Eagle`."""
    normal = self.input_norm(inputs)
    x = [self.token_norm(self.embed(tokens)), normal]
    residual = normal if self.variant.norm_before_residual else inputs
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
    """As `Eagle.predict`."""
    return self.logits(self._normal(outputs))

  def predict_drafted(self, outputs: jax.Array) -> jax.Array:
    """As `Eagle.predict_drafted`."""
    return self.head_logits(self._normal(outputs))

  def _normal(self, outputs):
    """What the output head reads: normalised, once."""
    return outputs if self.variant.norm_output else self.final_norm(outputs)


class _Layer(nnx.Module):
  """Attention without a norm of its own, and feed-forward."""

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

  def __call__(self, x, residual, *around):
    attended, new = self.attention(x, *around)
    x = residual + attended
    return x + self.feed_forward(self.feed_forward_norm(x)), new


def _read(head, x, residual, positions, mask, cache, pending_kv):
  """Runs the layer of a head on `x`."""
  around = transformer_modules.Surroundings(
    head.config, positions, mask, cache, pending_kv
  )
  outputs, new = head.layer(x, residual, *around.of_layer(0))
  fresh = kv_cache.PendingKV(layers=(new,), positions=positions)
  return outputs, kv_cache.append(pending_kv, fresh)


def _linear(size_in, size_out, bias, dtype, rngs):
  return layers_lib.linear(
    size_in,
    size_out,
    use_bias=bias,
    dtype=dtype,
    rngs=rngs,
    kernel_init=nnx.initializers.normal(0.02),
  )
