"""An encoder-decoder as a language model."""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components
from specjax import padding
from specjax.contrib import encoder_decoder_config
from specjax.contrib import encoder_decoder_modules
from specjax.models import flax_modules
from specjax.models import kv_cache


@components.component
class EncoderDecoder(flax_modules.FlaxModel):
  """An encoder-decoder; its cache is an `encoder_decoder_modules.Cache`.

  The source of a row is the tokens before its first `config.start_id`.
  `prefill` must receive all of it, even past `lengths`, since it is encoded
  only once.

  Its parameters are a nested dict, from `init_params` or a checkpoint.

  Attributes:
    config: the architecture.
    dtype: type of the computations and of the cache.
  """

  config: encoder_decoder_config.EncoderDecoderConfig = components.static()
  dtype: jax.typing.DTypeLike = components.static(default=jnp.float32)

  @property
  def feature_sizes(self) -> tuple[int, ...]:
    """`F` of each of `ModelOutput.features`, which are the decoder's."""
    return (self.config.d_model,) * (self.config.decoder_layers + 1)

  @property
  def start_id(self) -> int:
    """The token that ends every prompt."""
    return self.config.start_id

  def init_cache(
    self, params: base.Params, batch: int, size: int
  ) -> encoder_decoder_modules.Cache:
    """See `LanguageModel.init_cache`."""
    del params
    return encoder_decoder_modules.init_cache(
      self.config, batch, size, self.dtype
    )

  def prefill(
    self,
    params: base.Params,
    cache: encoder_decoder_modules.Cache,
    tokens: jax.Array,
    lengths: jax.Array,
  ) -> tuple[encoder_decoder_modules.Cache, tuple[jax.Array, ...]]:
    """See `LanguageModel.prefill`; the source is encoded as well."""
    num_source = encoder_decoder_modules.source_lengths(
      tokens, lengths, self.config.start_id
    )
    offsets = (num_source - 1).astype(jnp.int32)
    slots = jnp.arange(tokens.shape[1])
    source = slots[None, None] <= offsets[:, None, None]
    cross = flax_modules.merge(self.config, params, self.dtype).encode(
      tokens, source
    )
    cache = cache.replace(cross=cross, offsets=offsets)
    positions = offsets[:, None] + slots[None]
    decoded = jnp.take_along_axis(tokens, positions, axis=1, mode='clip')

    def decode() -> tuple[tuple[jax.Array, ...], kv_cache.PendingKV]:
      output = self.extend(params, cache, decoded, positions=positions)
      return output.features, output.pending_kv

    num = jnp.maximum(lengths - offsets, 0)
    # If prompts end with the start token, the decoder has nothing to read.
    features, pending_kv = jax.lax.cond(
      (num > 1).any(), decode, lambda: padding.zeros(jax.eval_shape(decode))
    )
    # Slots of the decoder begin at the source's last token.
    index = jnp.maximum(slots[None] - offsets[:, None], 0)[..., None]
    features = jax.tree.map(
      lambda feature: jnp.take_along_axis(feature, index, axis=1), features
    )
    path = jnp.broadcast_to(slots, tokens.shape)
    return self.commit(cache, pending_kv, path, num), features

  def commit(
    self,
    cache: encoder_decoder_modules.Cache,
    pending_kv: kv_cache.PendingKV,
    path: jax.Array,
    num: jax.Array,
  ) -> encoder_decoder_modules.Cache:
    """See `LanguageModel.commit`."""
    return encoder_decoder_modules.commit(cache, pending_kv, path, num)

  def rollback(
    self, cache: encoder_decoder_modules.Cache, lengths: jax.Array
  ) -> encoder_decoder_modules.Cache:
    """See `LanguageModel.rollback`."""
    return encoder_decoder_modules.rollback(cache, lengths)
