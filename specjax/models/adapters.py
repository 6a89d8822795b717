"""Adapters that make a `LanguageModel` of a Flax module or of a function."""

from flax import nnx
import jax
import jax.numpy as jnp

from specjax import base
from specjax.models import config as config_lib
from specjax.models import kv_cache
from specjax.models import transformer as transformer_lib


def transformer(
  config: config_lib.TransformerConfig, dtype=jnp.float32
) -> base.LanguageModel:
  """Builds the functions of a decoder-only transformer.

  Args:
    config: the architecture; its parameters come from `init_params` or a
      checkpoint, as a nested dict.
    dtype: type of the computations and of the cache.

  Returns:
    The model; its cache is a `kv_cache.KVCache`.
  """
  graph, _ = _split(config, dtype)

  def init_cache(params, batch, size):
    del params
    shape = (batch, config.num_kv_heads, size, config.head_dim)
    return kv_cache.init(config.num_layers, shape, dtype)

  def extend(params, cache, tokens, *, block=None, positions=None, mask=None):
    _, num_tokens = tokens.shape
    num_open = 0 if block is None else block.positions.shape[1]
    if positions is None:
      first = (0 if cache is None else cache.lengths[:, None]) + num_open
      positions = jnp.broadcast_to(first + jnp.arange(num_tokens), tokens.shape)
    if mask is None:
      mask = jnp.tri(num_tokens, num_open + num_tokens, num_open, dtype=bool)
    mask = jnp.asarray(mask)
    mask = mask[None] if mask.ndim == 2 else mask
    return base.Extension(
      *nnx.merge(graph, params)(tokens, positions, mask, cache, block)
    )

  def prefill(params, cache, tokens, lengths):
    block = extend(params, None, tokens).block
    path = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
    return kv_cache.keep(cache, block, path, lengths)

  return base.LanguageModel(
    init_cache=init_cache,
    prefill=prefill,
    extend=extend,
    keep=kv_cache.keep,
    rollback=kv_cache.rollback,
    vocab_size=config.vocab_size,
  )


def init_params(
  key: jax.Array, config: config_lib.TransformerConfig
) -> base.Params:
  """Returns random float32 parameters of a transformer, as a nested dict."""
  return jax.jit(
    lambda key: jax.tree.map(
      lambda x: jnp.asarray(x, x.dtype),  # Not weakly typed.
      nnx.to_pure_dict(
        nnx.state(transformer_lib.Transformer(config, nnx.Rngs(key)), nnx.Param)
      ),
    )
  )(key)


def abstract_params(config: config_lib.TransformerConfig) -> base.Params:
  """Returns the shapes and dtypes of a transformer's parameters."""
  return jax.eval_shape(lambda: init_params(jax.random.key(0), config))


def _split(config, dtype):
  model = nnx.eval_shape(
    lambda: transformer_lib.Transformer(config, nnx.Rngs(0), dtype)
  )
  return nnx.split(model, nnx.Param, ...)[:2]
