"""What a `config.json` says, in any version's spelling, and the way back."""

import dataclasses
import json
import random

import pytest

from specjax.models import config as config_lib
from specjax.models.huggingface import architectures
from specjax.models.huggingface import configs
from specjax.testing import toys
from tests.models.huggingface import oracle

pytestmark = pytest.mark.oracles

_MINI = config_lib.TransformerConfig(vocab_size=8, **toys.TINY)


@pytest.mark.parametrize('case', oracle.CASES)
def test_a_config_comes_back_from_what_is_written_of_it(case):
  config = architectures.read_config(oracle.fields(case))
  fields = json.loads(json.dumps(architectures.write_config(config)))
  assert architectures.read_config(fields) == config
  # Without a window, it is a Llama.
  if case != 'mistral_global':
    assert fields['model_type'] == oracle.CASES[case][0]


def test_what_the_text_of_a_model_that_also_sees_leaves_out_is_known():
  text = oracle.fields('gemma3') | {'vocab_size': 262208, 'head_dim': 256}
  text |= {'num_attention_heads': 8, 'num_key_value_heads': 4}
  text |= {'max_position_embeddings': 131072, 'query_pre_attn_scalar': 256}
  text |= {'sliding_window': 4096}
  defaults = architectures.ARCHITECTURES['gemma3'].defaults
  sparse = _drop_fields(text, *defaults)
  fields = {'model_type': 'gemma3', 'text_config': sparse}
  assert architectures.read_config(fields) == architectures.read_config(text)
  with pytest.raises(ValueError, match='quantization_config must be None'):
    architectures.read_config(fields | {'quantization_config': {'bits': 4}})
  with pytest.raises(
    ValueError, match='gemma3 model needs a text_config, got 3'
  ):
    architectures.read_config(fields | {'text_config': 3})


@pytest.mark.parametrize('name', architectures.ARCHITECTURES)
def test_fields_that_are_left_out_mean_what_they_mean_to_transformers(name):
  architecture = architectures.ARCHITECTURES[name]
  # A window that is not used is None.
  hf_config = oracle.transformers.AutoConfig.for_model(
    name, use_sliding_window=True
  )
  hf_fields = (
    hf_config.text_config if architecture.is_multimodal else hf_config
  ).to_dict()
  plain = {
    field.name: field.default
    for field in architecture.description.fields.values()
    if field.default is not configs.REQUIRED and not callable(field.default)
  }
  rope = hf_fields.get('rope_parameters') or {}
  rope = rope.get('full_attention', rope)
  for field, value in (plain | architecture.defaults).items():
    if field in ('rope_theta', 'rotary_emb_base'):
      assert rope['rope_theta'] == value
    elif field in hf_fields:
      assert hf_fields[field] == value, field


@pytest.mark.parametrize('case', oracle.CASES)
def test_a_config_without_its_defaults_is_read(case):
  model_type, _ = oracle.CASES[case]
  defaults = architectures.ARCHITECTURES[model_type].defaults
  fields = oracle.fields(case) | {'num_attention_heads': 32, 'hidden_size': 256}
  assert architectures.read_config(_drop_fields(fields, *defaults)) == (
    architectures.read_config(fields | defaults)
  )


@pytest.mark.parametrize(
  'config',
  [
    _MINI,
    dataclasses.replace(_MINI, padded_vocab_size=16),
    dataclasses.replace(_MINI, num_layers=3, sliding_window=2, qkv_bias=True),
  ],
  ids=['mini', 'padded', 'local'],
)
def test_equal_architectures_are_written_alike(config):
  """Covers padding, the default scale and a pattern of layers."""
  reread_config = architectures.read_config(architectures.write_config(config))
  assert reread_config.vocab_size == config.table_size
  assert reread_config.product_scale == config.product_scale
  assert [reread_config.is_local(i) for i in range(3)] == [
    config.is_local(i) for i in range(3)
  ]
  assert architectures.write_config(
    reread_config
  ) == architectures.write_config(config)


@pytest.mark.parametrize(
  'change',
  [
    {'norm': 'layer'},
    {'attention_scale': 1.0},
    {'num_layers': 2, 'sliding_window': 4, 'local_layers': (False, True)},
    {'rope_theta': 1e4, 'local_rope_theta': 1e3, 'sliding_window': 4},
  ],
  ids=str,
)
def test_what_no_architecture_can_express_is_refused(change):
  config = dataclasses.replace(_MINI, **change)
  with pytest.raises(
    ValueError, match=r'No HuggingFace architecture \(llama, '
  ):
    architectures.write_config(config)


def _drop_fields(fields, *names):
  return {name: value for name, value in fields.items() if name not in names}


@pytest.mark.parametrize(
  'case, old',
  [
    (
      'llama_llama3',
      {
        'rope_theta': 1e4,
        'rope_scaling': _drop_fields(oracle.LLAMA3, 'rope_theta'),
      },
    ),
    (
      'llama_linear_biases_tied',
      {'rope_theta': 1e3, 'rope_scaling': {'type': 'linear', 'factor': 4.0}},
    ),
    # In transformers, the base of the scaling comes first.
    (
      'llama_linear_biases_tied',
      {
        'rope_theta': 7.0,
        'rope_scaling': {'type': 'linear', 'factor': 4.0, 'rope_theta': 1e3},
      },
    ),
    ('phi3', {'rope_theta': 1e4, 'partial_rotary_factor': 0.5}),
    (
      'gemma3',
      {
        'rope_theta': 1e5,
        'rope_local_base_freq': 1e2,
        'rope_scaling': {'rope_type': 'linear', 'factor': 4.0},
      },
    ),
    ('neox_parallel', {'rotary_emb_base': 1e4, 'rotary_pct': 0.25}),
  ],
)
def test_both_spellings_of_rotary_fields_mean_the_same(case, old):
  fields = oracle.fields(case)
  new = architectures.read_config(fields)
  fields = _drop_fields(fields, 'rope_parameters')
  assert architectures.read_config(fields | old) == new


@pytest.mark.parametrize('case', ['gemma2', 'gemma3', 'qwen2', 'qwen2_window'])
def test_local_layers_are_known_without_layer_types(case):
  """Which older files do not have."""
  fields = oracle.fields(case)
  types = fields.pop('layer_types')
  config = architectures.read_config(fields)
  local = [config.is_local(i) for i in range(config.num_layers)]
  assert local == [layer_type == 'sliding_attention' for layer_type in types]


@pytest.mark.parametrize(
  'case, change, message',
  [
    (
      'llama',
      {'model_type': 'bert'},
      "model_type 'bert'. Known: gemma2, gemma3",
    ),
    ('llama', {'model_type': None}, 'model_type None. Known: gemma2'),
    ('llama', {'model_type': ['llama']}, r"must be a text, got \['llama'\]"),
    ('llama', {'hidden_act': 'relu'}, "activation 'relu'. Known: gelu"),
    (
      'llama',
      {'rope_parameters': {'rope_type': 'yarn', 'factor': 2.0}},
      "rope scaling 'yarn'. Known: linear, llama3",
    ),
    (
      'phi3',
      {'rope_parameters': None, 'rope_scaling': {'type': 'longrope'}},
      "rope scaling 'longrope'",
    ),
    ('llama', {'rope_scaling': {'type': 'dynamic'}}, "scaling 'dynamic'"),
    (
      'llama',
      {'rope_scaling': {'type': 'linear'}},
      'rope_scaling lacks factor',
    ),
    ('llama', {'rope_parameters': 3}, r'rope_parameters cannot be read \(3\)'),
    (
      'gemma3',
      {
        'rope_parameters': {
          'full_attention': {},
          'sliding_attention': {'rope_type': 'linear', 'factor': 2.0},
        }
      },
      'positions of local layers are stretched',
    ),
    (
      'llama',
      {'quantization_config': {'bits': 4}},
      "quantization_config must be None, got {'bits': 4}",
    ),
    ('qwen2', {'partial_rotary_factor': 0.5}, 'partial_rotary_factor must be'),
    (
      'mistral',
      {'layer_types': ['full_attention'] * 2},
      'layer_types must be None, got',
    ),
    ('gemma2', {'use_bidirectional_attention': True}, 'must be None, got True'),
    ('gemma2', {'layer_types': ['full_attention']}, 'entries, got 1'),
    ('t5', {'feed_forward_proj': 'relu'}, "must be 'gated-gelu', got 'relu'"),
    ('llama', {'num_hidden_layers': '2'}, "num_layers must be .*int, got '2'"),
    ('llama', {'hidden_size': None}, 'd_model must be .*int, got None'),
    (
      'llama',
      {'num_attention_heads': 0, 'head_dim': None},
      'head_dim cannot be',
    ),
  ],
  ids=str,
)
def test_what_is_not_supported_is_refused(case, change, message):
  with pytest.raises(ValueError, match=message):
    architectures.read_config(oracle.fields(case) | change)


def test_all_that_is_wrong_with_a_config_is_said_at_once():
  names = 'hidden_size', 'num_attention_heads'
  fields = _drop_fields(oracle.fields('llama'), *names)
  fields |= {'hidden_act': 'relu', 'quantization_config': {}}
  with pytest.raises(ValueError) as error:
    architectures.read_config(fields)
  for problem in (
    'The config of a llama model: ',
    'hidden_size is missing',
    'num_attention_heads is missing',
    "activation 'relu'",
    'quantization_config must be None',
  ):
    assert problem in str(error.value)


def test_any_value_of_a_field_is_refused_or_means_something():
  """Nothing but a `ValueError` comes of a wrong type."""
  values = [None, True, -1, 0, 2.5, 'x', [], [1], {}, {'a': 1}, float('nan')]
  draw = random.Random(0)
  refused = 0
  for _ in range(600):
    case = draw.choice(list(oracle.CASES))
    fields = dict(oracle.fields(case))
    fields[draw.choice(sorted(fields))] = draw.choice(values)
    try:
      config = architectures.read_config(fields)
    except ValueError:
      refused += 1
    else:
      assert config.num_layers >= 1
  assert refused > 100
