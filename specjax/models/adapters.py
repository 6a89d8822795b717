"""Adapters that make a `LanguageModel` of a Flax module or of a function."""

import functools

from flax import nnx
import jax
import jax.numpy as jnp

from specjax import base
from specjax.models import config as config_lib
from specjax.models import kv_cache
from specjax.models import transformer as transformer_lib

# Parameters from which on a call of one token is widened on CPU.
_WIDE = 4_000_000


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
  # XLA multiplies one row with a matrix on one CPU core, and two on all: from
  # some size on, a second row of padding makes a call 1.2 times faster.
  widen = jax.default_backend() == 'cpu' and num_params(config) >= _WIDE

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
    call = functools.partial(_call, graph, params, cache, block)
    if widen and tokens.shape == (1, 1):
      return _first_token(call(*_add_padding(tokens, positions, mask)))
    return call(tokens, positions, mask)

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


def _call(graph, params, cache, block, tokens, positions, mask):
  model = nnx.merge(graph, params)
  return base.Extension(*model(tokens, positions, mask, cache, block))


def _add_padding(tokens, positions, mask):
  """Appends a token that nothing attends to."""
  return (
    jnp.pad(tokens, ((0, 0), (0, 1))),
    jnp.pad(positions, ((0, 0), (0, 1)), constant_values=-1),
    jnp.pad(mask, ((0, 0), (0, 1), (0, 1))),
  )


def _first_token(extension):
  """Undoes `_add_padding` in what the model returned."""
  layers = jax.tree.map(lambda leaf: leaf[:, :, :-1], extension.block.layers)
  return base.Extension(
    logits=extension.logits[:, :1],
    features=extension.features[:, :1],
    block=kv_cache.Block(layers, extension.block.positions[:, :-1]),
  )


def num_params(config: config_lib.TransformerConfig) -> int:
  """Returns the number of parameters of a transformer."""
  return sum(leaf.size for leaf in jax.tree.leaves(abstract_params(config)))


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
