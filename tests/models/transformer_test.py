"""Configs of the transformer, and what its arrays may hold beside tokens.

`loading_test` compares it with an independent implementation.
"""

import dataclasses

import jax
import numpy as np
import pytest

from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.testing import toys

_TOKENS = np.random.default_rng(0).integers(50, size=(2, 12))
_FIELDS = {
  'vocab_size': 50,
  'num_layers': 2,
  'd_model': 16,
  'num_heads': 4,
  'num_kv_heads': 2,
  'head_dim': 4,
  'd_ff': 24,
}


@pytest.mark.parametrize(
  'change, message',
  [
    ({'n_layers': 2}, "'n_layers'. Known: vocab_size, num_layers, d_model"),
    ({'num_kv_heads': 3}, r'num_kv_heads must divide num_heads \(4\), got 3'),
    ({'d_ff': 0}, 'd_ff must be >= 1, got 0'),
    ({'head_dim': 5}, 'must be even, got 5'),
    ({'rotary_fraction': 0.25}, 'must be even, got 1'),
    ({'norm': 'batch'}, "norm must be one of .*got 'batch'"),
    ({'activation': 'relu'}, "activation must be one of .*got 'relu'"),
    ({'padded_vocab_size': 49}, r'must be >= vocab_size \(50\), got 49'),
    ({'sliding_window': 0}, 'sliding_window must be >= 1 or None, got 0'),
    ({'rope_scaling': {'kind': 'yarn', 'factor': 2}}, "got 'yarn'"),
    ({'rope_scaling': {'kind': 'linear', 'factor': 0.5}}, 'got 0.5'),
    ({'d_ff': 24.5}, 'd_ff must be of type int, got 24.5'),
    ({'rope_theta': 'x'}, "rope_theta must be of type float, got 'x'"),
    ({'logit_softcap': 'x'}, r"of type float \| None, got 'x'"),
  ],
)
def test_config_error_context_the_field_and_the_value(change, message):
  with pytest.raises(ValueError, match=message):
    config_lib.from_dict(_FIELDS | change)


def test_config_survives_plain_values():
  fields = _FIELDS | {
    'sliding_window': 4,
    'local_layers': [True, False],
    'rope_scaling': {'kind': 'linear', 'factor': 2.0},
  }
  config = config_lib.from_dict(fields)
  assert [config.is_local(i) for i in range(3)] == [True, False, True]
  assert config_lib.from_dict(dataclasses.asdict(config)) == config


@pytest.mark.parametrize('tied', [False, True])
def test_padding_of_the_vocabulary_is_cut_off(tied):
  config = config_lib.TransformerConfig(
    vocab_size=50, tie_embeddings=tied, **toys.TINY
  )
  params = flax_modules.init_params(jax.random.key(0), config)
  padded = dataclasses.replace(config, vocab_size=47, padded_vocab_size=50)
  model, unpadded_model = (
    adapters.Transformer(padded),
    adapters.Transformer(config),
  )
  assert model.vocab_size == 47
  logits, expected = (
    jax.jit(module.extend)(params, None, _TOKENS).logits
    for module in (model, unpadded_model)
  )
  np.testing.assert_allclose(logits, expected[..., :47], rtol=1e-5, atol=1e-6)
