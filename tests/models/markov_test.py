"""Markov models: a token is drawn from a row of a table, and nothing else."""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import models
from specjax import trees

_V, _H = 4, 3
_RNG = np.random.default_rng(0)
_MODEL = models.Markov(_V)
_TABLES = {
  'stationary': _RNG.dirichlet(np.ones(_V), size=_V).astype(np.float32),
  'varying': _RNG.dirichlet(np.ones(_V), size=(_H, _V)).astype(np.float32),
}
_TOKENS = _RNG.integers(_V, size=(2, 5))


def _probs(name, position, token):
  table = _TABLES[name]
  return (
    table[token] if table.ndim == 2 else table[min(position, _H - 1), token]
  )


def _assert_probs(logits, name, positions, tokens):
  """The last table serves all positions past the horizon."""
  expected = [
    [_probs(name, *pair) for pair in zip(*row)]
    for row in zip(positions, tokens)
  ]
  np.testing.assert_allclose(np.exp(logits), expected, rtol=1e-6)


@pytest.mark.parametrize('name', _TABLES)
def test_logits_are_logs_of_the_rows(name):
  logits = _MODEL.extend(_TABLES[name], None, _TOKENS).logits
  _assert_probs(logits, name, [range(5)] * 2, _TOKENS)


@pytest.mark.parametrize('name', _TABLES)
def test_positions_go_on_behind_cache_and_pending(name):
  """Rows start at 0 and 1; some tokens stay pending, then rows advance."""
  table = jnp.asarray(_TABLES[name])
  cache = _MODEL.init_cache(table, 2, 8)
  cache, _ = _MODEL.prefill(table, cache, _TOKENS, jnp.array([0, 1]))
  first_output = _MODEL.extend(table, cache, _TOKENS[:, :1])
  _assert_probs(first_output.logits, name, [[0], [1]], _TOKENS[:, :1])
  second_output = _MODEL.extend(
    table, cache, _TOKENS[:, 1:3], pending_kv=first_output.pending_kv
  )
  _assert_probs(second_output.logits, name, [[1, 2], [2, 3]], _TOKENS[:, 1:3])
  third_output = _MODEL.extend(
    table, cache, _TOKENS[:, :1], pending_kv=second_output.pending_kv
  )
  _assert_probs(third_output.logits, name, [[3], [4]], _TOKENS[:, :1])
  path = jnp.zeros((2, 4), jnp.int32)
  cache = _MODEL.commit(cache, third_output.pending_kv, path, jnp.array([2, 0]))
  np.testing.assert_array_equal(cache.lengths, [2, 1])
  cache = _MODEL.rollback(cache, jnp.array([1, 5]))
  np.testing.assert_array_equal(cache.lengths, [1, 1])
  committed = _MODEL.extend(table, cache, _TOKENS[:, :2])
  _assert_probs(committed.logits, name, [[1, 2]] * 2, _TOKENS[:, :2])


def test_nodes_of_a_tree_stand_at_their_depths():
  topology = trees.prefix_tree((2, 1))
  positions = np.broadcast_to(topology.offsets, (2, 5))
  logits = _MODEL.extend(
    jnp.asarray(_TABLES['varying']),
    None,
    _TOKENS,
    positions=positions,
    mask=topology.mask,
  ).logits
  _assert_probs(logits, 'varying', positions, _TOKENS)


def test_impossible_tokens_have_minus_infinite_logits():
  table = jnp.array([[0.0, 1.0], [0.5, 0.5]])
  logits = models.Markov(2).extend(table, None, jnp.array([[0, 1]])).logits
  np.testing.assert_array_equal(logits[0, 0], [-np.inf, 0.0])


@pytest.mark.parametrize('shape', [(4, 3), (3, 3), (2, 4, 5), (4,)])
def test_a_table_of_the_wrong_shape_is_refused(shape):
  with pytest.raises(ValueError, match=r'the shape \[\.\.\., 4, 4\], got \('):
    _MODEL.init_cache(jnp.ones(shape), 1, 8)


def test_a_vocabulary_has_a_token():
  with pytest.raises(ValueError, match='vocab_size must be >= 1, got 0'):
    models.Markov(0)
