"""Flax modules of configs, and their parameters.

Parameters are nested dicts and arguments: modules are merged with them for each
call, and hold no state.
"""

import functools
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.contrib import encoder_decoder_config
from specjax.contrib import encoder_decoder_modules
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


class Computed:
  """Base class that normalizes the type of the computations.

  'float32' and `jnp.float32` thus make equal models.

  Attributes:
    dtype: type of the computations.
  """

  dtype: jax.typing.DTypeLike

  def __post_init__(self) -> None:
    object.__setattr__(self, 'dtype', jnp.dtype(self.dtype))


class FlaxModel(Computed, base.LanguageModel):
  """Base class of language models that call the modules of their config.

  Attributes:
    config: the architecture.
  """

  config: Any

  @property
  def vocab_size(self) -> int:
    """`V`."""
    size: int = self.config.vocab_size
    return size

  def extend(
    self,
    params: base.Params,
    cache: base.Cache | None,
    tokens: jax.Array,
    *,
    pending_kv: base.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> base.ModelOutput:
    """See `LanguageModel.extend`."""
    return base.ModelOutput(
      *run(self, params, cache, (tokens,), pending_kv, positions, mask)
    )


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
