"""Adapters that make a `LanguageModel` of a Flax module or of a function."""

from collections.abc import Callable
import dataclasses
import functools
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import padding
from specjax import registry
from specjax.contrib import encoder_decoder_modules
from specjax.data import packing
from specjax.models import config as config_lib
from specjax.models import eagle_modules
from specjax.models import head_config
from specjax.models import kv_cache
from specjax.models import medusa_modules
from specjax.models import transformer_modules

_MODULES: dict[type, Any] = {
  config_lib.TransformerConfig: transformer_modules.Transformer,
  config_lib.EncoderDecoderConfig: encoder_decoder_modules.EncoderDecoder,
  head_config.EagleConfig: eagle_modules.Eagle,
  head_config.Eagle3Config: eagle_modules.Eagle3,
  head_config.MedusaConfig: medusa_modules.Medusa,
}
# Of a model, or of a head on one.
AnyConfig = config_lib.Config | head_config.HeadConfig


def language_model(
  config: config_lib.Config, dtype: jax.typing.DTypeLike = jnp.float32
) -> base.LanguageModel:
  """Builds the functions of a model of either kind."""
  if isinstance(config, config_lib.EncoderDecoderConfig):
    return encoder_decoder(config, dtype)
  return transformer(config, dtype)


@registry.component(
  example={
    'config': config_lib.TransformerConfig(
      vocab_size=11,
      num_layers=1,
      d_model=16,
      num_heads=2,
      num_kv_heads=1,
      head_dim=8,
      d_ff=24,
    )
  },
  params=lambda config: init_params(jax.random.key(0), config),
)
def transformer(
  config: config_lib.TransformerConfig,
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> base.LanguageModel:
  """Builds the functions of a decoder-only transformer.

  Args:
    config: the architecture; its parameters come from `init_params` or a
      checkpoint, as a nested dict.
    dtype: type of the computations and of the cache.

  Returns:
    The model; its cache is a `kv_cache.KVCache`.
  """
  extend = _extend(config, dtype)

  def init_cache(params, batch, size):
    del params
    shape = (batch, config.num_kv_heads, size, config.head_dim)
    return kv_cache.init(config.num_layers, shape, dtype)

  def prefill(params, cache, tokens, lengths):
    extension = extend(params, None, tokens)
    path = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    cache = kv_cache.commit(cache, extension.pending, path, lengths)
    return cache, extension.features

  return base.LanguageModel(
    init_cache=init_cache,
    prefill=prefill,
    extend=extend,
    commit=kv_cache.commit,
    rollback=kv_cache.rollback,
    vocab_size=config.vocab_size,
    feature_sizes=(config.d_model,) * (config.num_layers + 1),
    exit=functools.partial(early_exit, config, dtype),
    max_length=config.max_length,
  )


@registry.component
def early_exit(
  config: config_lib.TransformerConfig,
  dtype: jax.typing.DTypeLike,
  num_layers: int,
) -> base.LanguageModel:
  """Builds the functions of a transformer's first layers and its head.

  They take the parameters of the whole model, of which they use a part.

  Args:
    config: of the whole model.
    dtype: as of `transformer`.
    num_layers: how many layers are read.

  Raises:
    ValueError: there are not as many layers.
  """
  if not 1 <= num_layers <= config.num_layers:
    raise ValueError(
      f'num_layers must lie in [1, {config.num_layers}], got {num_layers}.'
    )
  part = transformer(dataclasses.replace(config, num_layers=num_layers), dtype)
  first = lambda params: {
    **params,
    'layers': {str(i): params['layers'][str(i)] for i in range(num_layers)},
  }
  return part._replace(
    prefill=lambda params, *args: part.prefill(first(params), *args),
    extend=lambda params, *args, **options: part.extend(
      first(params), *args, **options
    ),
  )


@registry.component(
  example={
    'config': config_lib.EncoderDecoderConfig(
      vocab_size=11,
      encoder_layers=1,
      decoder_layers=1,
      d_model=16,
      num_heads=2,
      head_dim=8,
      d_ff=24,
      start_id=0,
    )
  },
  params=lambda config: init_params(jax.random.key(0), config),
)
def encoder_decoder(
  config: config_lib.EncoderDecoderConfig,
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> base.LanguageModel:
  """Builds the functions of an encoder-decoder.

  A row's source is what stands before its first `config.start_id`, and all of
  it must be given to `prefill`, even past `lengths`: it is encoded once.

  Args:
    config: the architecture; its parameters come from `init_params` or a
      checkpoint, as a nested dict.
    dtype: type of the computations and of the cache.

  Returns:
    The model; its cache is an `encoder_decoder_modules.Cache`.
  """
  modules = graph(config, dtype)
  extend = _extend(config, dtype)

  def prefill(params, cache, tokens, lengths):
    num_source = encoder_decoder_modules.source_lengths(
      tokens, lengths, config.start_id
    )
    offsets = (num_source - 1).astype(jnp.int32)
    places = jnp.arange(tokens.shape[1])
    source = places[None, None] <= offsets[:, None, None]
    cross = nnx.merge(modules, params).encode(tokens, source)
    cache = cache.replace(cross=cross, offsets=offsets)
    positions = offsets[:, None] + places[None]
    decoded = jnp.take_along_axis(tokens, positions, axis=1, mode='clip')
    read = lambda: extend(params, cache, decoded, positions=positions)[1:]
    num = jnp.maximum(lengths - offsets, 0)
    # Nobody looks at slot 0: a prompt alone needs no decoder.
    features, pending = jax.lax.cond(
      (num > 1).any(), read, lambda: padding.zeros(jax.eval_shape(read))
    )
    # Slots of the decoder begin at the source's last token.
    behind = jnp.maximum(places[None] - offsets[:, None], 0)[..., None]
    features = jax.tree.map(
      lambda each: jnp.take_along_axis(each, behind, axis=1), features
    )
    path = jnp.broadcast_to(places, tokens.shape)
    return encoder_decoder_modules.commit(cache, pending, path, num), features

  return base.LanguageModel(
    init_cache=lambda params, batch, size: encoder_decoder_modules.init_cache(
      config, batch, size, dtype
    ),
    prefill=prefill,
    extend=extend,
    commit=encoder_decoder_modules.commit,
    rollback=encoder_decoder_modules.rollback,
    vocab_size=config.vocab_size,
    start_id=config.start_id,
    feature_sizes=(config.d_model,) * (config.decoder_layers + 1),
  )


@registry.component
def resize_vocabulary(
  model: base.LanguageModel, vocab_size: int
) -> base.LanguageModel:
  """Returns a model of the same weights and more tokens, or fewer.

  Models that share a tokenizer may pad their vocabularies to different sizes.
  Tokens that the model does not have get probability 0, and are read as its
  last one; those that are cut off leave their mass to the others.

  Args:
    model: of the same tokens, as far as it has them.
    vocab_size: `V` of the result.
  """
  if vocab_size == model.vocab_size:
    return model
  read = lambda tokens: jnp.minimum(tokens, model.vocab_size - 1)
  more = max(0, vocab_size - model.vocab_size)
  leave = model.exit

  def extend(params, cache, tokens, **options):
    extension = model.extend(params, cache, read(tokens), **options)
    logits = jnp.pad(
      extension.logits[..., :vocab_size],
      ((0, 0), (0, 0), (0, more)),
      constant_values=-jnp.inf,
    )
    return extension._replace(logits=logits)

  return model._replace(
    prefill=lambda params, cache, tokens, lengths: model.prefill(
      params, cache, read(tokens), lengths
    ),
    extend=extend,
    vocab_size=vocab_size,
    exit=leave and (lambda num: resize_vocabulary(leave(num), vocab_size)),
  )


def teacher_forced(
  config: config_lib.Config, dtype: jax.typing.DTypeLike = jnp.float32
) -> Callable[..., jax.Array]:
  """Returns `(params, batch) -> logits[B, T, V]` for training.

  Examples that share a row do not see it. The batch is a `packing.Batch`, or a
  `example_pairs.PairBatch` for an encoder-decoder.
  """
  if isinstance(config, config_lib.EncoderDecoderConfig):
    modules = graph(config, dtype)
    return lambda params, batch: nnx.merge(modules, params).teacher_forced(
      batch
    )
  return functools.partial(packed_logits, transformer(config, dtype))


def packed_logits(
  model: base.LanguageModel, params: base.Params, batch: packing.Batch
) -> jax.Array:
  """Returns `[B, T, V]` logits of a `packing.Batch`, for any decoder."""
  return read_packed(model, params, batch).logits


def read_packed(
  model: base.LanguageModel,
  params: base.Params,
  batch: packing.Batch | packing.TaughtBatch,
) -> base.Extension:
  """Reads packed rows, whose examples do not see each other."""
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
  """Returns `(params, features[B, T, F]) -> logits[B, T, H]` of a head.

  `H` are the tokens that the head can emit, see `TransformerConfig.head_size`.
  """
  modules = graph(config, dtype)
  return lambda params, x: nnx.merge(modules, params).head_logits(x)


def _extend(config, dtype):
  """Builds `extend` of a module that reads tokens behind a cache."""
  modules = graph(config, dtype)

  def extend(params, cache, tokens, *, pending=None, positions=None, mask=None):
    positions, mask = places(cache, tokens, pending, positions, mask)

    def read(cache):
      model = nnx.merge(modules, params)
      return base.Extension(*model(tokens, positions, mask, cache, pending))

    return read(None) if cache is None else cache.within_window(read)

  return extend


def places(
  cache: kv_cache.KVCache | None,
  tokens: jax.Array,
  pending: kv_cache.Pending | None,
  positions: jax.Array | None,
  mask: jax.Array | np.ndarray | None,
) -> tuple[jax.Array, jax.Array]:
  """Returns positions and mask of a call: of a chain, where they are None.

  Args:
    cache: what the tokens stand behind, or None.
    tokens: `[B, T]`.
    pending: `M` more that they stand behind, or None.
    positions: as of `base.LanguageModel.extend`.
    mask: likewise.

  Returns:
    `[B, T]` and `[B or 1, T, M + T]`.
  """
  num_tokens = tokens.shape[1]
  num_open = 0 if pending is None else pending.positions.shape[1]
  if positions is None:
    first = (0 if cache is None else cache.lengths[:, None]) + num_open
    positions = first + jnp.arange(num_tokens)[None]
    positions = jnp.broadcast_to(positions, tokens.shape)
  if mask is None:
    mask = jnp.tri(num_tokens, num_open + num_tokens, num_open, dtype=bool)
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
  # A dict of the caller's own, who may change it.
  return jax.tree.map(lambda leaf: leaf, _shapes(config))


def graph(
  config: AnyConfig, dtype: jax.typing.DTypeLike = jnp.float32
) -> nnx.GraphDef[Any]:
  """Returns the modules of a config, which `nnx.merge` gives parameters to."""
  return _graph(config, jnp.dtype(dtype))


# Models of one family are often of one config, and to trace them takes long.


@functools.cache
def _shapes(config):
  init = functools.partial(init_params, config=config)
  return jax.eval_shape(init, jax.random.key(0))


@functools.cache
def _graph(config, dtype):
  # The key is an argument: of what has none JAX may compute the values, too.
  model = nnx.eval_shape(
    lambda key: _MODULES[type(config)](config, nnx.Rngs(key), dtype),
    jax.random.key(0),
  )
  return nnx.split(model, nnx.Param, ...)[0]
