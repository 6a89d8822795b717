"""Language models that are built from Flax modules."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax import padding
from specjax.contrib import encoder_decoder_config
from specjax.contrib import encoder_decoder_modules
from specjax.data import packing
from specjax.models import config as config_lib
from specjax.models import dflash_modules
from specjax.models import eagle_modules
from specjax.models import fusion
from specjax.models import head_config
from specjax.models import kv_cache
from specjax.models import medusa_modules
from specjax.models import transformer_modules
from specjax.models import transposes

_MODULES: dict[type, Any] = {
  config_lib.TransformerConfig: transformer_modules.Transformer,
  encoder_decoder_config.EncoderDecoderConfig: (
    encoder_decoder_modules.EncoderDecoder
  ),
  head_config.EagleConfig: eagle_modules.Eagle,
  head_config.Eagle3Config: eagle_modules.Eagle3,
  head_config.MedusaConfig: medusa_modules.Medusa,
  head_config.DFlashConfig: dflash_modules.DFlash,
}
# The config of a model, or of a head on one.
AnyConfig = config_lib.Config | head_config.HeadConfig


def language_model(
  config: config_lib.Config, dtype: jax.typing.DTypeLike = jnp.float32
) -> base.LanguageModel:
  """Returns the model of a config of any architecture."""
  return _MODELS[type(config)](config, dtype)


class Computed:
  """Base class that normalizes the type of the computations.

  'float32' and `jnp.float32` thus make equal models.

  Attributes:
    dtype: type of the computations.
  """

  dtype: jax.typing.DTypeLike

  def __post_init__(self) -> None:
    object.__setattr__(self, 'dtype', jnp.dtype(self.dtype))


@components.component
class Transformer(Computed, base.LanguageModel):
  """A decoder-only transformer; its cache is a `kv_cache.KVCache`.

  Its parameters are a nested dict, from `init_params` or a checkpoint.

  Attributes:
    config: the architecture.
    dtype: type of the computations and of the cache.
  """

  config: config_lib.TransformerConfig = components.static()
  dtype: jax.typing.DTypeLike = components.static(default=jnp.float32)

  @property
  def vocab_size(self) -> int:
    """`V`."""
    return self.config.vocab_size

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
    return base.ModelOutput(
      *run(self, params, cache, (tokens,), pending_kv, positions, mask)
    )

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
    checks.check_range('num_layers', num_layers, 1, self.config.num_layers)
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


@components.component
class EncoderDecoder(Computed, base.LanguageModel):
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
  def vocab_size(self) -> int:
    """`V`."""
    return self.config.vocab_size

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
    cross = merge(self.config, params, self.dtype).encode(tokens, source)
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

  def extend(
    self,
    params: base.Params,
    cache: encoder_decoder_modules.Cache | None,
    tokens: jax.Array,
    *,
    pending_kv: kv_cache.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> base.ModelOutput:
    """See `LanguageModel.extend`."""
    return base.ModelOutput(
      *run(self, params, cache, (tokens,), pending_kv, positions, mask)
    )

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


_MODELS: dict[type, Callable[..., base.LanguageModel]] = {
  config_lib.TransformerConfig: Transformer,
  encoder_decoder_config.EncoderDecoderConfig: EncoderDecoder,
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
  return lambda params, batch: merge(config, params, dtype).teacher_forced(
    batch
  )


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
  return lambda params, x: merge(config, params, dtype).head_logits(x)


def run(
  model: Any,
  params: base.Params,
  cache: Any,
  inputs: tuple[jax.Array, ...],
  pending_kv: kv_cache.PendingKV | None,
  positions: jax.Array | None,
  mask: jax.Array | np.ndarray | None,
) -> Any:
  """Calls the modules of a model or a head, on the filled part of its cache.

  Args:
    model: a model or a head with a `config` and a `dtype`.
    params: its parameters.
    cache: KV cache of the committed tokens, or None.
    inputs: arrays `[B, T, ...]`; the first holds tokens.
    pending_kv: keys and values after the cache, or None.
    positions: See `base.LanguageModel.extend`.
    mask: See `base.LanguageModel.extend`.

  Returns:
    The result of the modules.
  """
  positions, mask = positions_and_mask(
    cache, inputs[0], pending_kv, positions, mask
  )

  def call(cache: Any) -> Any:
    modules = merge(model.config, params, model.dtype)
    return modules(*inputs, positions, mask, cache, pending_kv)

  return call(None) if cache is None else cache.within_window(call)


def positions_and_mask(
  cache: Any,
  tokens: jax.Array,
  pending_kv: kv_cache.PendingKV | None,
  positions: jax.Array | None,
  mask: jax.Array | np.ndarray | None,
) -> tuple[jax.Array, jax.Array]:
  """Returns positions and mask of a call; those of a chain replace None.

  Args:
    cache: KV cache of the committed tokens, or None.
    tokens: `[B, T]`.
    pending_kv: `M` entries after the cache, or None.
    positions: See `base.LanguageModel.extend`.
    mask: See `base.LanguageModel.extend`.

  Returns:
    `[B, T]` and `[B or 1, T, M + T]`.
  """
  num_tokens = tokens.shape[1]
  num_pending = 0 if pending_kv is None else pending_kv.positions.shape[1]
  if positions is None:
    first = (0 if cache is None else cache.lengths[:, None]) + num_pending
    positions = first + jnp.arange(num_tokens)[None]
    positions = jnp.broadcast_to(positions, tokens.shape)
  if mask is None:
    mask = jnp.tri(
      num_tokens, num_pending + num_tokens, num_pending, dtype=bool
    )
  mask = jnp.asarray(mask)
  return positions, mask[None] if mask.ndim == 2 else mask


def num_params(config: AnyConfig) -> int:
  """Returns the number of a model's parameters."""
  return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))


def init_params(key: jax.Array, config: AnyConfig) -> base.Params:
  """Returns random float32 parameters of a model, as a nested dict."""
  module = _MODULES[type(config)]
  return jax.jit(
    lambda key: jax.tree.map(
      lambda x: jnp.asarray(x, x.dtype),  # Not weakly typed.
      nnx.to_pure_dict(nnx.state(module(config, nnx.Rngs(key)), nnx.Param)),
    )
  )(key)


def abstract_params(config: AnyConfig) -> base.Params:
  """Returns the shapes and dtypes of a model's parameters."""
  # A new dict, since callers may modify it.
  return jax.tree.map(lambda leaf: leaf, _shapes(config))


def merge(
  config: AnyConfig,
  params: base.Params,
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> Any:
  """Returns the modules of a config, with parameters.

  Args:
    config: the architecture of a model or of a head.
    params: its parameters, fused (see `fusion`) or not, with transposed copies
      of kernels (see `transposes`) or without.
    dtype: type of the computations.
  """
  graph = _graph(
    config,
    jnp.dtype(dtype),
    fusion.fused_layers(params),
    transposes.paths(params),
  )
  return nnx.merge(graph, params)


# Models of a family often have equal configs, and tracing them is slow.


@functools.cache
def _shapes(config: AnyConfig) -> base.Params:
  """Returns the shapes and types of a model's parameters, a cached dict."""
  init = functools.partial(init_params, config=config)
  return jax.eval_shape(init, jax.random.key(0))


@functools.cache
def _graph(
  config: AnyConfig,
  dtype: jnp.dtype,
  fused: frozenset[tuple[str, ...]],
  transposed: frozenset[tuple[str, ...]],
) -> nnx.GraphDef[Any]:
  """Returns the structure of a config's modules, without their parameters."""

  def build(key: jax.Array) -> nnx.Module:
    model = _MODULES[type(config)](config, nnx.Rngs(key), dtype)
    fusion.fuse_modules(model, fused)
    transposes.add_to_modules(model, transposed)
    return model

  # The key is an abstract argument, so that no values are computed, and no
  # operations are added to a program that is being traced.
  model = nnx.eval_shape(build, jax.eval_shape(jax.random.key, 0))
  return nnx.split(model, nnx.Param, ...)[0]
