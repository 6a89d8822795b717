"""Checks of language models."""

from collections.abc import Callable
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import models
from specjax import trees
from specjax.contrib import encoder_decoder_config
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.testing import building
from specjax.testing import values

_TRANSFORMER = config_lib.TransformerConfig(
  vocab_size=11,
  num_layers=1,
  d_model=16,
  num_heads=2,
  num_kv_heads=1,
  head_dim=8,
  d_ff=24,
)
_ENCODER_DECODER = encoder_decoder_config.EncoderDecoderConfig(
  vocab_size=11,
  encoder_layers=1,
  decoder_layers=1,
  d_model=16,
  num_heads=2,
  head_dim=8,
  d_ff=24,
  start_id=0,
)


class Example(NamedTuple):
  """Arguments and parameters with which a model is checked.

  Attributes:
    arguments: arguments of the class.
    init_params: returns parameters of the model.
  """

  arguments: dict[str, Any]
  init_params: Callable[[], base.Params]


def _init_tables() -> base.Params:
  """Returns transition tables that change with the position."""
  return jax.nn.softmax(jax.random.normal(jax.random.key(0), (9, 5, 5)))


EXAMPLES: dict[building.Constructor, Example] = {
  models.EncoderDecoder: Example(
    {'config': _ENCODER_DECODER},
    lambda: flax_modules.init_params(jax.random.key(0), _ENCODER_DECODER),
  ),
  models.Markov: Example({'vocab_size': 5}, _init_tables),
  models.Transformer: Example(
    {'config': _TRANSFORMER},
    lambda: flax_modules.init_params(jax.random.key(0), _TRANSFORMER),
  ),
}

# Two texts, whose prompts are their first 3 and 5 tokens.
_LENGTHS = np.array([3, 5], np.int32)
# The texts continue with the second chain; the first one is junk.
_CHAINS = trees.chains(2, 2)
# Ways to read a text, which must give equal logits.
_CONDITIONS = {
  'one by one': 'tokens are read one by one',
  'after pending tokens': 'tokens are read after pending tokens',
  'as a tree': 'tokens are read as a tree',
  'after a path': 'tokens are read after a committed path of a tree',
  'rolled back': 'the cache was rolled back',
}


def check_model(
  model_class: building.Constructor,
  /,
  *,
  params: base.Params = None,
  **options: Any,
) -> None:
  """Checks a class of language models.

  The logits after a token are the same, however the text was read: at once,
  one by one, after pending tokens, as a tree, after a committed path, and
  after a rollback. A loop can carry the cache. Equal arguments make equal
  models.

  Args:
    model_class: the class, of models with at least 2 tokens; it need not be in
      a table.
    params: parameters of the model; models of the library have examples.
    **options: arguments of the class; models of the library have examples.

  Raises:
    AssertionError: a property does not hold; the error is a sentence.
  """
  with building.error_context(model_class):
    building.check_documented(model_class)
    example = EXAMPLES.get(model_class)
    if example is not None:
      options = example.arguments | options
      params = example.init_params() if params is None else params
    arguments = building.arguments(model_class, {}, options)
    values.check_component(model_class, arguments)
    _check(model_class(**arguments), params)


def _check(model: base.LanguageModel, params: base.Params) -> None:
  """Checks a model."""
  read = jax.jit(functools.partial(_logits, model))
  expected_shape = 2, 4, model.vocab_size
  shape = jax.eval_shape(read, params, _texts(model))['at once']
  building.require(
    building.is_like(shape, expected_shape, jnp.float32),
    f'extend must return logits, {expected_shape} float32, got '
    f'{building.abstract(shape)}.',
  )
  lengths = jax.eval_shape(
    lambda: getattr(model.init_cache(params, 2, 8), 'lengths', None)
  )
  building.require(
    lengths is not None and building.is_like(lengths, (2,), jnp.int32),
    'init_cache must return a cache whose lengths are (2,) int32 for 2 rows, '
    f'got {building.abstract(lengths)}.',
  )
  logits = jax.device_get(read(params, _texts(model)))
  once = logits['at once']
  expected = {
    'as a tree': once[:, :3],
    'after a path': np.stack([once[0, 3], once[1, 1]])[:, None],
  }
  for name, words in _CONDITIONS.items():
    building.require_close(
      logits[name],
      expected.get(name, once),
      1e-5,
      f'Logits must be equal if {words}',
    )


def _texts(model: base.LanguageModel) -> jax.Array:
  """Returns texts `[2, 12]`.

  Prompts of an encoder-decoder end with its start token.
  """
  texts = np.random.default_rng(3).integers(model.vocab_size, size=(2, 12))
  if model.start_id is not None:
    other = (model.start_id + 1) % model.vocab_size
    texts = np.where(texts == model.start_id, other, texts)
    texts[[0, 1], _LENGTHS - 1] = model.start_id
  return jnp.asarray(texts, jnp.int32)


def _next_tokens(texts: jax.Array, lengths: Any, num: int) -> jax.Array:
  """Returns `[2, num]` tokens of the texts after their first `lengths`."""
  index = lengths[:, None] + np.arange(num, dtype=np.int32)[None]
  return jnp.take_along_axis(texts, index, axis=1)


def _logits(
  model: base.LanguageModel, params: base.Params, texts: jax.Array
) -> dict[str, jax.Array]:
  """Returns logits after the prompts, for each way to read the texts."""
  lengths = jnp.asarray(_LENGTHS)
  tokens = _next_tokens(texts, lengths, 4)
  empty = model.init_cache(params, 2, 16)
  cache, features = model.prefill(params, empty, texts, lengths)
  _check_features(model, features, texts.shape)
  once = model.extend(params, cache, tokens)
  _check_features(model, once.features, tokens.shape)
  first = model.extend(params, cache, tokens[:, :2])
  second = model.extend(
    params, cache, tokens[:, 2:], pending_kv=first.pending_kv
  )
  tree = _extend_tree(model, params, cache, tokens)
  # Entries of the second chain: three for one row, one for the other.
  path, num = jnp.array([[0, 2, 4]] * 2), jnp.array([3, 1])
  longer = model.commit(cache, tree.pending_kv, path, num)
  building.check_keeps(cache, longer, 'commit')
  rolled_back = model.rollback(longer, lengths)
  building.check_keeps(cache, rolled_back, 'rollback')
  last = _next_tokens(texts, lengths + num, 1)
  return {
    'at once': once.logits,
    'one by one': _extend_one_by_one(model, params, cache, tokens),
    'after pending tokens': jnp.concatenate(
      [first.logits, second.logits], axis=1
    ),
    'as a tree': tree.logits[:, path[0]],
    'after a path': model.extend(params, longer, last).logits,
    'rolled back': model.extend(params, rolled_back, tokens).logits,
  }


def _check_features(
  model: base.LanguageModel,
  features: tuple[jax.Array, ...],
  shape: tuple[int, ...],
) -> None:
  """Checks that features have the sizes that the model declares."""
  expected = [(*shape, size) for size in model.feature_sizes]
  shapes = list(map(jnp.shape, features))
  building.require(
    shapes == expected,
    f'Shapes of features must match feature_sizes, {expected}, got {shapes}.',
  )


def _extend_tree(
  model: base.LanguageModel,
  params: base.Params,
  cache: base.Cache,
  tokens: jax.Array,
) -> base.ModelOutput:
  """Returns the output for the root and two chains; the second is the text."""
  junk = (tokens[:, 1:3] + 1) % model.vocab_size
  nodes = jnp.stack([junk, tokens[:, 1:3]], axis=2).reshape(2, 4)
  return model.extend(
    params,
    cache,
    jnp.concatenate([tokens[:, :1], nodes], axis=1),
    positions=jnp.asarray(_LENGTHS)[:, None] + _CHAINS.offsets[None],
    mask=_CHAINS.mask,
  )


def _extend_one_by_one(
  model: base.LanguageModel,
  params: base.Params,
  cache: base.Cache,
  tokens: jax.Array,
) -> jax.Array:
  """Returns logits of tokens that are read and committed one by one."""
  path, num = jnp.zeros((2, 1), jnp.int32), jnp.ones(2, jnp.int32)

  def extend(
    cache: base.Cache, token: jax.Array
  ) -> tuple[base.Cache, jax.Array]:
    output = model.extend(params, cache, token[:, None])
    longer = model.commit(cache, output.pending_kv, path, num)
    building.check_keeps(cache, longer, 'commit')
    return longer, output.logits[:, 0]

  _, logits = jax.lax.scan(extend, cache, tokens.T)
  return logits.swapaxes(0, 1)
