"""Language models that are built from Flax modules."""

from collections.abc import Callable
import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax.contrib import encoder_decoder
from specjax.contrib import encoder_decoder_config
from specjax.data import packing
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import kv_cache


def language_model(
  config: config_lib.Config, dtype: jax.typing.DTypeLike = jnp.float32
) -> base.LanguageModel:
  """Returns the model of a config of any architecture."""
  return _MODELS[type(config)](config, dtype)


@components.component
class Transformer(flax_modules.FlaxModel):
  """A decoder-only transformer; its cache is a `kv_cache.KVCache`.

  Its parameters are a nested dict, from `init_params` or a checkpoint.

  Attributes:
    config: the architecture.
    dtype: type of the computations and of the cache.
  """

  config: config_lib.TransformerConfig = components.static()
  dtype: jax.typing.DTypeLike = components.static(default=jnp.float32)

  @property
  def feature_sizes(self) -> tuple[int, ...]:
    """`F` of each of `ModelOutput.features`."""
    return (self.config.d_model,) * (self.config.num_layers + 1)

  @property
  def max_length(self) -> int:
    """Number of positions that the model was trained for."""
    return self.config.max_length

  @property
  def mask_token(self) -> int | None:
    """See `LanguageModel.mask_token`."""
    return self.config.mask_token

  def init_cache(
    self, params: base.Params, batch: int, size: int
  ) -> kv_cache.KVCache:
    """See `LanguageModel.init_cache`."""
    del params
    config = self.config
    shape = (batch, config.num_kv_heads, size, config.head_dim)
    return kv_cache.init(config.num_layers, shape, self.dtype)

  def prefill(
    self,
    params: base.Params,
    cache: kv_cache.KVCache,
    tokens: jax.Array,
    lengths: jax.Array,
  ) -> tuple[kv_cache.KVCache, tuple[jax.Array, ...]]:
    """See `LanguageModel.prefill`."""
    output = self.extend(params, None, tokens)
    path = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    cache = kv_cache.commit(cache, output.pending_kv, path, lengths)
    return cache, output.features

  def commit(
    self,
    cache: kv_cache.KVCache,
    pending_kv: kv_cache.PendingKV,
    path: jax.Array,
    num: jax.Array,
  ) -> kv_cache.KVCache:
    """See `LanguageModel.commit`."""
    return kv_cache.commit(cache, pending_kv, path, num)

  def rollback(
    self, cache: kv_cache.KVCache, lengths: jax.Array
  ) -> kv_cache.KVCache:
    """See `LanguageModel.rollback`."""
    return kv_cache.rollback(cache, lengths)

  def exit(self, num_layers: int) -> 'EarlyExit':
    """See `LanguageModel.exit`."""
    checks.check_integers('num_layers', num_layers, 1, self.config.num_layers)
    config = dataclasses.replace(self.config, num_layers=num_layers)
    return EarlyExit(config, self.dtype)


@components.component
class EarlyExit(Transformer):
  """The first layers of a transformer, as many as its config has, and the head.

  It takes the parameters of the whole transformer, of which it uses a part.
  """

  def extend(
    self,
    params: base.Params,
    cache: kv_cache.KVCache | None,
    tokens: jax.Array,
    *,
    pending_kv: kv_cache.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> base.ModelOutput:
    """See `LanguageModel.extend`."""
    names = map(str, range(self.config.num_layers))
    layers = {name: params['layers'][name] for name in names}
    return super().extend(
      {**params, 'layers': layers},
      cache,
      tokens,
      pending_kv=pending_kv,
      positions=positions,
      mask=mask,
    )


_MODELS: dict[type, Callable[..., base.LanguageModel]] = {
  config_lib.TransformerConfig: Transformer,
  encoder_decoder_config.EncoderDecoderConfig: encoder_decoder.EncoderDecoder,
}


def teacher_forced(
  config: config_lib.Config, dtype: jax.typing.DTypeLike = jnp.float32
) -> Callable[..., jax.Array]:
  """Returns `(params, batch) -> logits[B, T, V]` for training.

  Examples in the same row do not attend to each other. The batch is a
  `packing.Batch`, or an `example_pairs.PairBatch` for an encoder-decoder.
  """
  if isinstance(config, config_lib.TransformerConfig):
    return functools.partial(packed_logits, Transformer(config, dtype))
  return lambda params, batch: flax_modules.merge(
    config, params, dtype
  ).teacher_forced(batch)


def packed_logits(
  model: base.LanguageModel, params: base.Params, batch: packing.Batch
) -> jax.Array:
  """Returns `[B, T, V]` logits for a `packing.Batch`, with any decoder."""
  return read_packed(model, params, batch).logits


def read_packed(
  model: base.LanguageModel,
  params: base.Params,
  batch: packing.Batch | packing.TaughtBatch,
) -> base.ModelOutput:
  """Returns a model's output for packed rows.

  Examples in the same row do not attend to each other.
  """
  tokens, positions, segments = map(
    jnp.asarray, (batch.tokens, batch.positions, batch.segments)
  )
  same = segments[:, :, None] == segments[:, None, :]
  return model.extend(
    params,
    None,
    tokens,
    positions=positions,
    mask=same & jnp.tri(tokens.shape[1], dtype=bool)[None],
  )


def head_logits(
  config: config_lib.TransformerConfig,
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> Callable[[base.Params, jax.Array], jax.Array]:
  """Returns `(params, features[B, T, F]) -> logits[B, T, H]`.

  `H` is the number of tokens in the output head, see
  `TransformerConfig.head_size`.
  """
  return lambda params, x: flax_modules.merge(
    config, params, dtype
  ).head_logits(x)
