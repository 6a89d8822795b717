"""Parts of a model say what the whole one says of them."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from tests import tiers

_FIELDS = {
  'vocab_size': 20,
  'num_layers': 3,
  'd_model': 16,
  'num_heads': 4,
  'num_kv_heads': 2,
  'head_dim': 8,
  'd_ff': 24,
  'sliding_window': 3,
  'local_layers': (True, False, False),
  'logit_softcap': 5.0,
}
_TOKENS = np.random.default_rng(0).integers(20, size=(2, 6))


def _full_model(**fields):
  config = config_lib.TransformerConfig(**{**_FIELDS, **fields})
  return config, _params(config)


@functools.cache
def _params(config):
  params = flax_modules.init_params(jax.random.key(0), config)
  return jax.tree.map(lambda x: 20 * x if x.ndim > 1 else x, params)


def _output(config, params):
  return jax.jit(adapters.Transformer(config).extend)(params, None, _TOKENS)


@pytest.mark.parametrize(
  'fields',
  tiers.cases(
    [{}, {'tie_embeddings': False}, {'padded_vocab_size': 24}],
    {'padded_vocab_size': 24},
  ),
)
def test_a_narrow_head_gives_its_tokens_the_same_logits(fields):
  full_model, tokens = _full_model(**fields), [7, 3, 19]
  narrow = cutting.narrow_head(*full_model, tokens)
  expected, actual = _output(*full_model).logits, _output(*narrow).logits
  other_tokens = np.setdiff1d(np.arange(20), tokens)
  np.testing.assert_allclose(
    actual[..., tokens], expected[..., tokens], rtol=1e-5
  )
  assert (np.asarray(actual[..., other_tokens]) == -np.inf).all()
  features = _output(*narrow).features[-1]
  head_logits = adapters.head_logits(narrow[0])(narrow[1], features)
  np.testing.assert_allclose(head_logits, expected[..., tokens], rtol=1e-5)


def test_the_first_layers_enter_what_comes_behind_them():
  full_model = _full_model()
  part = cutting.keep_layers(*full_model, (0, 1))
  assert part[0].num_layers == 2
  assert [part[0].is_local(i) for i in range(2)] == [True, False]
  assert part[1]['layers']['1'] is full_model[1]['layers']['1']
  for actual, expected in zip(
    _output(*part).features[:2], _output(*full_model).features
  ):
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_layers_stand_in_the_order_given():
  full_model = _full_model()
  all_of_them = cutting.keep_layers(*full_model, (0, 1, 2))
  swapped = cutting.keep_layers(*full_model, (2, 0))
  assert jnp.array_equal(
    _output(*all_of_them).logits, _output(*full_model).logits
  )
  assert [swapped[0].is_local(i) for i in range(2)] == [False, True]
  assert swapped[1]['layers']['0'] is full_model[1]['layers']['2']


@pytest.mark.parametrize('layers', [(), (3,), (0, -1)])
def test_layers_that_are_not_there_are_refused(layers):
  with pytest.raises(ValueError, match='layers must be some of 0 to 2, got'):
    cutting.keep_layers(*_full_model(), layers)


@pytest.mark.parametrize(
  'tokens, reason',
  [((), 'got 0 of them'), ((3, 20), 'from 3 to 20'), ((3, 3), 'different')],
)
def test_tokens_that_no_head_can_have_are_refused(tokens, reason):
  with pytest.raises(ValueError, match=reason):
    cutting.narrow_head(*_full_model(), tokens)


def test_a_narrow_head_is_not_cut_again():
  narrow = cutting.narrow_head(*_full_model(), [1, 5, 9])
  with pytest.raises(ValueError, match='got one with a head_size of 3'):
    cutting.narrow_head(*narrow, [5, 9])


def test_sizes_that_no_head_can_have_are_refused():
  with pytest.raises(ValueError, match=r'head_size must lie in \[1, 20\]'):
    _full_model(tie_embeddings=False, head_size=21)
  with pytest.raises(
    ValueError, match='tie_embeddings must be False if there is a head'
  ):
    _full_model(head_size=3)
