"""The transformer against an independent one: HuggingFace's, same weights."""

import dataclasses
import functools

import jax
import numpy as np
import pytest
import torch
import transformers

from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import huggingface

_SIZES = {
  'vocab_size': 50,
  'hidden_size': 32,
  'intermediate_size': 48,
  'num_hidden_layers': 2,
  'num_attention_heads': 4,
  'max_position_embeddings': 256,
}
_GROUPED = _SIZES | {'num_key_value_heads': 2}
_LLAMA3 = {
  'rope_type': 'llama3',
  'rope_theta': 1e4,
  'factor': 8.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  # Wavelengths are 6, 63, 628, ...: one is kept, one blended, the rest scaled.
  'original_max_position_embeddings': 128,
}
_LINEAR = {'rope_type': 'linear', 'rope_theta': 1e3, 'factor': 4.0}
_GEMMA2 = _GROUPED | {
  'num_hidden_layers': 3,
  'head_dim': 16,
  'sliding_window': 4,
  'query_pre_attn_scalar': 7,
  'attn_logit_softcapping': 5.0,
  'final_logit_softcapping': 10.0,
}
_NEOX = _SIZES | {
  'num_attention_heads': 2,
  'rope_parameters': {'rope_theta': 1e4, 'partial_rotary_factor': 0.25},
}
_CASES = {
  'llama': ('llama', _GROUPED),
  'llama_llama3': ('llama', _GROUPED | {'rope_parameters': _LLAMA3}),
  'llama_linear_biases_tied': (
    'llama',
    _GROUPED
    | {
      'rope_parameters': _LINEAR,
      'attention_bias': True,
      'mlp_bias': True,
      'tie_word_embeddings': True,
    },
  ),
  'qwen2': ('qwen2', _GROUPED | {'tie_word_embeddings': True}),
  'qwen2_window': (
    'qwen2',
    _GROUPED
    | {
      'use_sliding_window': True,
      'sliding_window': 4,
      'max_window_layers': 1,
    },
  ),
  'gemma2': ('gemma2', _GEMMA2),
  'neox_parallel': ('gpt_neox', _NEOX),
  'neox_sequential': (
    'gpt_neox',
    _NEOX
    | {
      'use_parallel_residual': False,
      'attention_bias': False,
      'hidden_act': 'gelu_new',
    },
  ),
}
_TOKENS = np.random.default_rng(0).integers(50, size=(2, 12))
_LENGTHS = np.array([7, 5])


@functools.cache
def _hf_model(case):
  """A HuggingFace model of which every array is random, norms included."""
  family, fields = _CASES[case]
  config = transformers.AutoConfig.for_model(family, **fields)
  model = transformers.AutoModelForCausalLM.from_config(
    config, attn_implementation='eager', dtype=torch.float32
  ).eval()
  generator = torch.Generator().manual_seed(0)
  with torch.no_grad():
    for weight in model.parameters():
      weight.normal_(0.0, 0.4, generator=generator)
  return model


@functools.cache
def _hf_logits(case):
  with torch.no_grad():
    return _hf_model(case)(torch.from_numpy(_TOKENS)).logits.numpy()


def _state_dict(case):
  return {name: x.numpy() for name, x in _hf_model(case).state_dict().items()}


def _imported(case):
  family, _ = _CASES[case]
  config = huggingface.config_from_hf(_hf_model(case).config.to_dict())
  return config, huggingface.import_params(config, family, _state_dict(case))


def _behind(rows):
  """The five entries of each row behind its prompt."""
  return np.stack([row[n : n + 5] for row, n in zip(rows, _LENGTHS)])


def _assert_close(logits, expected):
  scale = np.abs(expected).max()
  np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=1e-4 * scale)


@pytest.mark.parametrize('case', _CASES)
def test_logits_equal_those_of_huggingface(case):
  expected = _hf_logits(case)
  # Neither flat nor the same everywhere, or nothing is tested.
  assert expected.std(axis=-1).min() > 0.3 and expected.std(axis=1).mean() > 0.1
  config, params = _imported(case)
  model = adapters.transformer(config)

  @jax.jit
  def read(params):
    whole = model.extend(params, None, _TOKENS).logits
    cache = model.init_cache(params, 2, 16)
    cache, _ = model.prefill(params, cache, _TOKENS, _LENGTHS)
    return whole, model.extend(params, cache, _behind(_TOKENS)).logits

  whole, behind = read(params)
  _assert_close(whole, expected)
  _assert_close(behind, _behind(expected))


@pytest.mark.parametrize('case', _CASES)
def test_export_undoes_import(case):
  config, params = _imported(case)
  family, _ = _CASES[case]
  exported = huggingface.export_params(config, family, params)
  expected = _state_dict(case)
  if config.tie_embeddings:
    del expected['lm_head.weight']
  assert exported.keys() == expected.keys()
  for name, array in exported.items():
    np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_import_lists_every_mismatch_at_once():
  config, _ = _imported('llama')
  arrays = _state_dict('llama')
  del arrays['model.norm.weight']
  arrays['model.extra.weight'] = np.zeros(3)
  arrays['lm_head.weight'] = arrays['lm_head.weight'][:40]
  with pytest.raises(ValueError) as error:
    huggingface.import_params(config, 'llama', arrays)
  for problem in (
    'model.norm.weight is missing',
    'model.extra.weight is unknown',
    'lm_head.weight has shape (40, 32), not (50, 32)',
  ):
    assert problem in str(error.value)


def test_import_reads_files_of_older_versions():
  config, params = _imported('neox_parallel')
  arrays = _state_dict('neox_parallel')
  arrays['embed_out.weight'] = arrays.pop('lm_head.weight')
  arrays['gpt_neox.layers.0.attention.bias'] = np.tri(256)
  arrays['gpt_neox.layers.0.attention.rotary_emb.inv_freq'] = np.ones(2)
  old = huggingface.import_params(config, 'gpt_neox', arrays)
  jax.tree.map(np.testing.assert_array_equal, old, params)


def test_a_family_cannot_hold_parameters_that_it_does_not_have():
  config, _ = _imported('gemma2')
  params = adapters.abstract_params(config)
  with pytest.raises(ValueError, match='llama.*layers/2/attention_post_norm'):
    huggingface.export_params(config, 'llama', params)


@pytest.mark.parametrize(
  'case, old',
  [
    (
      'llama_llama3',
      {
        'rope_theta': 1e4,
        'rope_scaling': {n: x for n, x in _LLAMA3.items() if n != 'rope_theta'},
      },
    ),
    (
      'llama_linear_biases_tied',
      {'rope_theta': 1e3, 'rope_scaling': {'type': 'linear', 'factor': 4.0}},
    ),
    ('neox_parallel', {'rotary_emb_base': 1e4, 'rotary_pct': 0.25}),
  ],
)
def test_both_spellings_of_rotary_fields_mean_the_same(case, old):
  fields = _hf_model(case).config.to_dict()
  new = huggingface.config_from_hf(fields)
  del fields['rope_parameters']
  assert huggingface.config_from_hf(fields | old) == new


@pytest.mark.parametrize('case', ['gemma2', 'qwen2', 'qwen2_window'])
def test_local_layers_are_known_without_layer_types(case):
  """Which older files do not have."""
  fields = _hf_model(case).config.to_dict()
  types = fields.pop('layer_types')
  config = huggingface.config_from_hf(fields)
  local = [config.is_local(i) for i in range(config.num_layers)]
  assert local == [each == 'sliding_attention' for each in types]


@pytest.mark.parametrize(
  'change, message',
  [
    ({'model_type': 'bert'}, "family 'bert'. Known: gemma2, gpt_neox, llama"),
    ({'model_type': None}, 'family None. Known: gemma2'),
    ({'hidden_act': 'relu'}, "activation 'relu'. Known: gelu"),
    ({'rope_parameters': {'rope_type': 'yarn', 'factor': 2.0}}, "got 'yarn'"),
    ({'rope_parameters': {'rope_type': 'linear'}}, "lacks 'factor'"),
  ],
)
def test_unsupported_huggingface_configs_are_refused(change, message):
  fields = _hf_model('llama').config.to_dict() | change
  with pytest.raises(ValueError, match=message):
    huggingface.config_from_hf(fields)


def test_a_huggingface_config_without_a_needed_field_is_refused():
  with pytest.raises(ValueError, match="llama model lacks 'hidden_size'"):
    huggingface.config_from_hf(
      {'model_type': 'llama', 'num_attention_heads': 1, 'vocab_size': 2}
      | {'num_hidden_layers': 1}
    )


@pytest.mark.parametrize('case', ['llama', 'qwen2'])
def test_padding_of_the_vocabulary_is_cut_off(case):
  """With a head of its own (llama) and with a tied one (qwen2)."""
  config, params = _imported(case)
  config = dataclasses.replace(config, vocab_size=47, padded_vocab_size=50)
  model = adapters.transformer(config)
  assert model.vocab_size == 47
  logits = jax.jit(model.extend)(params, None, _TOKENS).logits
  _assert_close(logits, _hf_logits(case)[..., :47])


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
  ],
)
def test_config_errors_name_the_field_and_the_value(change, message):
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
