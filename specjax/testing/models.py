"""What every language model keeps."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees
from specjax.testing import building
from specjax.testing import values

# Two texts of which 3 and 5 tokens are the prompts.
_LENGTHS = np.array([3, 5], np.int32)
# The texts go on with the second chain; the first one is junk.
_CHAINS = trees.chains(2, 2)
_SAME = {
  'one by one': 'tokens are read one by one',
  'behind pending tokens': 'tokens are read behind pending tokens',
  'as a tree': 'tokens are read as a tree',
  'behind a path': 'tokens are read behind a path of a tree that is committed',
  'rolled back': 'the cache was rolled back',
}


def check_model(factory: building.Factory, /, **options: Any) -> None:
  """Checks a factory of language models.

  The logits behind a token are the same, however the text was read: at once,
  one by one, behind pending tokens, as a tree, behind a committed path, and
  after a rollback; a loop can carry the cache; equal arguments give one object.

  Args:
    factory: builds the model, of at least 2 tokens; it need not be in a table.
      Its parameters come from `registry.component(params=...)`.
    **options: what it is built with, beside its example.

  Raises:
    AssertionError: a sentence says what must hold.
  """
  with building.about(factory):
    building.check_documented(factory)
    chosen = building.arguments(factory, {}, options)
    _check(factory(**chosen), building.params_of(factory, chosen))
    values.check_value(factory, chosen)


def _check(model: base.LanguageModel, params: base.Params) -> None:
  read_all = jax.jit(functools.partial(_ways_to_read, model))
  like = jax.eval_shape(read_all, params, _texts(model))['at once']
  shape = 2, 4, model.vocab_size
  building.require(
    building.is_like(like, shape, jnp.float32),
    f'extend must return logits, {shape} float32, got '
    f'{building.abstract(like)}.',
  )
  read = jax.device_get(read_all(params, _texts(model)))
  logits = read['at once']
  expected = {
    'as a tree': logits[:, :3],
    'behind a path': np.stack([logits[0, 3], logits[1, 1]])[:, None],
  }
  for way, words in _SAME.items():
    building.require_close(
      read[way],
      expected.get(way, logits),
      1e-5,
      f'Logits must be the same where {words}',
    )


def _texts(model: base.LanguageModel) -> jax.Array:
  """`[2, 12]`; prompts of an encoder-decoder end with its mark."""
  made = np.random.default_rng(3).integers(model.vocab_size, size=(2, 12))
  if model.start_id is not None:
    other = (model.start_id + 1) % model.vocab_size
    made = np.where(made == model.start_id, other, made)
    made[[0, 1], _LENGTHS - 1] = model.start_id
  return jnp.asarray(made, jnp.int32)


def _behind(tokens: jax.Array, lengths: Any, num: int) -> jax.Array:
  places = lengths[:, None] + np.arange(num, dtype=np.int32)[None]
  return jnp.take_along_axis(tokens, places, axis=1)


def _ways_to_read(
  model: base.LanguageModel, params: base.Params, tokens: jax.Array
) -> dict[str, jax.Array]:
  """Logits of the four tokens behind the prompts, or of some of them."""
  lengths = jnp.asarray(_LENGTHS)
  true = _behind(tokens, lengths, 4)
  empty = model.init_cache(params, 2, 16)
  cache, features = model.prefill(params, empty, tokens, lengths)
  _check_features(model, features, tokens.shape)
  once = model.extend(params, cache, true)
  _check_features(model, once.features, true.shape)
  first = model.extend(params, cache, true[:, :2])
  then = model.extend(params, cache, true[:, 2:], pending=first.pending)
  tree = _read_tree(model, params, cache, true)
  # Entries of the second chain: three for one row, one for the other.
  path, num = jnp.array([[0, 2, 4]] * 2), jnp.array([3, 1])
  longer = model.commit(cache, tree.pending, path, num)
  building.check_keeps(cache, longer, 'commit')
  back = model.rollback(longer, lengths)
  building.check_keeps(cache, back, 'rollback')
  last = _behind(tokens, lengths + num, 1)
  return {
    'at once': once.logits,
    'one by one': _one_by_one(model, params, cache, true),
    'behind pending tokens': jnp.concatenate(
      [first.logits, then.logits], axis=1
    ),
    'as a tree': tree.logits[:, path[0]],
    'behind a path': model.extend(params, longer, last).logits,
    'rolled back': model.extend(params, back, true).logits,
  }


def _check_features(
  model: base.LanguageModel,
  features: tuple[jax.Array, ...],
  shape: tuple[int, ...],
) -> None:
  """Of every token, as many numbers as the model names."""
  wanted = [(*shape, size) for size in model.feature_sizes]
  got = list(map(jnp.shape, features))
  building.require(
    got == wanted,
    f'All features have their sizes, as feature_sizes says: {wanted}, got '
    f'{got}.',
  )


def _read_tree(
  model: base.LanguageModel,
  params: base.Params,
  cache: base.Cache,
  true: jax.Array,
) -> base.Extension:
  """Reads the root and two chains, of which the second one is the text."""
  junk = (true[:, 1:3] + 1) % model.vocab_size
  nodes = jnp.stack([junk, true[:, 1:3]], axis=2).reshape(2, 4)
  return model.extend(
    params,
    cache,
    jnp.concatenate([true[:, :1], nodes], axis=1),
    positions=jnp.asarray(_LENGTHS)[:, None] + _CHAINS.offsets[None],
    mask=_CHAINS.mask,
  )


def _one_by_one(
  model: base.LanguageModel,
  params: base.Params,
  cache: base.Cache,
  true: jax.Array,
) -> jax.Array:
  path, num = jnp.zeros((2, 1), jnp.int32), jnp.ones(2, jnp.int32)

  def read(cache, tokens):
    extension = model.extend(params, cache, tokens[:, None])
    longer = model.commit(cache, extension.pending, path, num)
    building.check_keeps(cache, longer, 'commit')
    return longer, extension.logits[:, 0]

  _, logits = jax.lax.scan(read, cache, true.T)
  return logits.swapaxes(0, 1)
