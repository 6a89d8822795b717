"""Published heads: files with the authors' names, read and written."""

import dataclasses
import functools
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from specjax import models
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import heads

_TARGET = config_lib.TransformerConfig(
  vocab_size=13,
  num_layers=8,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
  tie_embeddings=False,
)
_LLAMA = {
  'hidden_size': 8,
  'intermediate_size': 12,
  'num_attention_heads': 2,
  'num_key_value_heads': 1,
  'num_hidden_layers': 1,
  'vocab_size': 13,
  'hidden_act': 'silu',
  'rms_norm_eps': 1e-5,
  'max_position_embeddings': 64,
  'model_type': 'llama',
  'rope_theta': 500.0,
}
_SIZES = {
  'self_attn.q_proj': (8, 'in'),
  'self_attn.k_proj': (4, 'in'),
  'self_attn.v_proj': (4, 'in'),
  'self_attn.o_proj': (8, 8),
  'mlp.gate_proj': (12, 8),
  'mlp.up_proj': (12, 8),
  'mlp.down_proj': (8, 12),
}


@functools.cache
def _params():
  return flax_modules.init_params(jax.random.key(0), _TARGET)


@pytest.fixture(scope='module', name='target')
def _target():
  return models.Checkpoint(_TARGET, adapters.Transformer(_TARGET), _params())


def _draw(shapes):
  draw = np.random.default_rng(1)
  return {
    name: draw.normal(size=shape).astype(np.float32)
    for name, shape in shapes.items()
  }


def _layer(prefix, width, norms=('post_attention_layernorm',)):
  shapes = {
    f'{prefix}{name}.weight': (out, width if size == 'in' else size)
    for name, (out, size) in _SIZES.items()
  }
  return shapes | {f'{prefix}{name}.weight': (8,) for name in norms}


_EAGLE3_NORMS = 'post_attention_layernorm', 'hidden_norm', 'input_layernorm'


def _eagle():
  shapes = _layer('layers.0.', 8) | {
    'fc.weight': (8, 16),
    'fc.bias': (8,),
  }
  # Most files have a copy of the target's.
  copy = {
    'embed_tokens.weight': np.asarray(_params()['embedding']['embedding'])
  }
  return {**_LLAMA, 'bias': True}, _draw(shapes) | copy


def _add_draft_vocab(arrays):
  tokens = np.array([1, 2, 5, 7, 12])
  is_drafted = np.zeros(13, bool)
  is_drafted[tokens] = True
  return arrays | {'d2t': tokens - np.arange(5), 't2d': is_drafted}


def _eagle3():
  shapes = _layer('midlayer.', 16, _EAGLE3_NORMS) | {
    'fc.weight': (8, 24),
    'norm.weight': (8,),
    'lm_head.weight': (5, 8),
  }
  fields = {**_LLAMA, 'draft_vocab_size': 5, 'target_hidden_size': 8}
  return fields, _add_draft_vocab(_draw(shapes))


def _speculators():
  shapes = _layer('layers.0.', 16, _EAGLE3_NORMS) | {
    'fc.weight': (8, 24),
    'norm.weight': (8,),
    'lm_head.weight': (5, 8),
    **{f'fc_norm.{i}.weight': (8,) for i in range(3)},
  }
  fields = {
    'speculators_model_type': 'eagle3',
    'draft_vocab_size': 5,
    'norm_before_residual': True,
    'norm_output': True,
    'eagle_aux_hidden_state_layer_ids': [1, 4, 6],
    'transformer_layer_config': _LLAMA,
  }
  return fields, _add_draft_vocab(_draw(shapes))


def _norm_before_fc():
  """In the format of speculators, with one norm for all features."""
  fields, arrays = _speculators()
  kept = {k: v for k, v in arrays.items() if not k.startswith('fc_norm.')}
  extra = _draw({'input_norm.weight': (24,)})
  return fields | {'norm_before_fc': True}, kept | extra


def _medusa(own_heads=True):
  shapes = {
    f'{i}.0.linear.{name}': shape
    for i in range(3)
    for name, shape in (('weight', (8, 8)), ('bias', (8,)))
  }
  if own_heads:
    shapes |= {f'{i}.1.weight': (13, 8) for i in range(3)}
  # Configs of the first version give a wrong number of heads.
  return {'medusa_num_heads': 2, 'medusa_num_layers': 1}, _draw(shapes)


_QWEN3 = {**_LLAMA, 'model_type': 'qwen3', 'num_hidden_layers': 2}
_QWEN3 |= {'head_dim': 4, 'layer_types': ['full_attention'] * 2}


def _block(fields, extra=(), layer=_QWEN3):
  """Returns the files of a block head with two layers and two taps."""
  norms = 'post_attention_layernorm', 'input_layernorm'
  shapes = _layer('layers.0.', 8, norms) | _layer('layers.1.', 8, norms)
  for i, name in ((i, name) for i in range(2) for name in ('q', 'k')):
    shapes[f'layers.{i}.self_attn.{name}_norm.weight'] = (4,)
  shapes |= {
    'fc.weight': (8, 16),
    'hidden_norm.weight': (8,),
    'norm.weight': (8,),
    **dict(extra),
  }
  return {**layer, **fields}, _draw(shapes)


def _dflash():
  """In the format of DFlash's authors."""
  settings = {'target_layer_ids': [1, 5], 'mask_token_id': 12, 'block_size': 4}
  return _block(
    {'architectures': ['DFlashDraftModel'], 'dflash_config': settings}
  )


_MARKOV = {
  'markov_head.markov_w1.weight': (13, 3),
  'markov_head.markov_w2.weight': (13, 3),
}


def _dspark():
  """In the format of DSpark's authors, with copies of what is the target's."""
  settings = {
    'architectures': ['Qwen3DSparkModel'],
    'block_size': 4,
    'mask_token_id': 12,
    'markov_rank': 3,
    'markov_head_type': 'vanilla',
    'target_layer_ids': [-1, 5],
  }
  fields, arrays = _block(settings, _MARKOV.items())
  return fields, arrays | {
    'embed_tokens.weight': np.asarray(_params()['embedding']['embedding']),
  }


def _block_speculators():
  """In the format of speculators, with a reduced vocabulary."""
  fields, arrays = _block(
    {
      'speculators_model_type': 'dspark',
      'block_size': 4,
      'mask_token_id': 12,
      'draft_vocab_size': 5,
      'markov_rank': 3,
      'sample_from_anchor': True,
      'aux_hidden_state_layer_ids': [0, 6],
      'transformer_layer_config': _QWEN3,
    },
    (_MARKOV | {'markov_head.markov_w2.weight': (5, 3)}).items(),
    {},
  )
  return fields, _add_draft_vocab(arrays)


_FILES = {
  'dflash': _dflash,
  'dspark': _dspark,
  'block speculators': _block_speculators,
  'eagle': _eagle,
  'eagle3': _eagle3,
  'norm before fc': _norm_before_fc,
  'speculators': _speculators,
  'medusa': _medusa,
  'medusa 2': lambda: _medusa(own_heads=False),
}


def _write(folder, fields, arrays, name='model'):
  folder.mkdir(exist_ok=True)
  (folder / 'config.json').write_text(json.dumps(fields))
  safetensors_numpy.save_file(arrays, folder / f'{name}.safetensors')
  return folder


@pytest.mark.parametrize('name', _FILES)
def test_heads_are_read_and_written_as_they_were(name, target, tmp_path):
  fields, arrays = _FILES[name]()
  head = models.load_head(_write(tmp_path / 'a', fields, arrays), target)
  models.save_head(head, tmp_path / 'b')
  reloaded = models.load_head(tmp_path / 'b', target)
  assert reloaded.config == head.config
  jax.tree.map(np.testing.assert_array_equal, reloaded.params, head.params)
  saved_arrays = safetensors_numpy.load_file(
    tmp_path / 'b' / 'model.safetensors'
  )
  arrays.pop('embed_tokens.weight', None)
  assert saved_arrays.keys() == arrays.keys()
  for key, value in arrays.items():
    np.testing.assert_array_equal(saved_arrays[key], value)


def test_medusas_file_may_have_its_own_name(target, tmp_path):
  path = _write(tmp_path / 'a', *_medusa(), name='medusa_lm_head')
  assert models.load_head(path, target).config.num_steps > 1


def test_a_head_computes_in_the_type_of_its_target(target, tmp_path):
  halved = target._replace(
    params=jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), target.params)
  )
  path = _write(tmp_path / 'a', *_eagle3())
  for dtype, expected in ((None, jnp.bfloat16), (jnp.float32, jnp.float32)):
    head = models.load_head(path, halved, dtype)
    assert head.params['join']['kernel'].dtype == expected
    assert head.params['head_rows'].dtype == jnp.int32


def test_a_layer_that_is_no_llamas_is_not_written(target, tmp_path):
  mistral = dataclasses.replace(_TARGET, sliding_window=4)
  config = heads.configure('eagle', mistral)
  params = heads.begin(jax.random.key(1), config, mistral, target.params)
  head = models.Head(config, heads.head(config), params)
  with pytest.raises(ValueError, match='differs in sliding_window'):
    models.save_head(head, tmp_path / 'a')


def test_eagles_layer_is_llamas_on_a_qwen_target():
  qwen = dataclasses.replace(_TARGET, qk_norm=True, qkv_bias=True)
  for kind in ('eagle', 'eagle3'):
    layer = heads.configure(kind, qwen).layer
    assert not layer.qk_norm and not layer.qkv_bias
  assert heads.configure('dflash', qwen).layer.qk_norm


def test_what_a_head_shares_is_the_targets(target, tmp_path):
  head = models.load_head(_write(tmp_path / 'a', *_eagle()), target)
  for name in ('embedding', 'head'):
    jax.tree.map(np.testing.assert_array_equal, head.params[name],
                 target.params[name])  # fmt: skip
  table = head.params['embedding']['embedding']
  assert table is target.params['embedding']['embedding']


def test_an_eagle_head_computes_what_its_authors_does(target, tmp_path):
  """In NumPy, as the digest of EAGLE-1 describes the layer."""
  fields, arrays = _eagle()
  head = models.load_head(_write(tmp_path / 'a', fields, arrays), target)
  tokens, features = np.array([3, 1, 4]), np.random.default_rng(2).normal(
    size=(3, 8)
  ).astype(np.float32)  # fmt: skip
  outputs, _ = jax.jit(head.model.extend)(
    head.params, None, tokens[None], features[None]
  )
  weight = lambda name: arrays[f'layers.0.{name}.weight'].astype(np.float64)
  embedding = np.asarray(target.params['embedding']['embedding'])
  x = np.concatenate([embedding[tokens], features], axis=1)
  x = x @ arrays['fc.weight'].T + arrays['fc.bias']
  angles = np.arange(3)[:, None] * 500.0 ** (-np.arange(0, 4, 2) / 4)

  def rotate(y):  # [T, D], halves
    half = np.split(y, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate(
      [half[0] * cos - half[1] * sin, half[1] * cos + half[0] * sin], -1
    )

  query = x @ weight('self_attn.q_proj').T
  key = rotate(x @ weight('self_attn.k_proj').T)
  value = x @ weight('self_attn.v_proj').T
  mixed = []
  for part in np.split(query, 2, axis=1):
    scores = rotate(part) @ key.T / 2
    scores = np.where(np.tri(3, dtype=bool), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    mixed.append(scores / scores.sum(-1, keepdims=True) @ value)
  x = x + np.concatenate(mixed, axis=1) @ weight('self_attn.o_proj').T
  normal = x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5)
  normal *= weight('post_attention_layernorm')
  gate = normal @ weight('mlp.gate_proj').T
  up = normal @ weight('mlp.up_proj').T
  x = x + (gate / (1 + np.exp(-gate)) * up) @ weight('mlp.down_proj').T
  np.testing.assert_allclose(outputs[0], x, rtol=2e-4, atol=2e-4)


def _normed(x, scale):
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * scale


@pytest.mark.parametrize('name', ['dflash', 'dspark'])
def test_a_block_head_computes_what_its_authors_does(name, target, tmp_path):
  """In NumPy: keys and values of features, and a block that sees itself."""
  fields, arrays = _FILES[name]()
  head = models.load_head(_write(tmp_path / 'a', fields, arrays), target)
  assert head.config.taps == {'dflash': (2, 6), 'dspark': (0, 6)}[name]
  assert head.model.first_output == (name == 'dflash')
  draw = np.random.default_rng(2)
  features = [draw.normal(size=(3, 8)).astype(np.float32) for _ in range(2)]
  tokens = np.array([5, 12, 12])
  pending = head.model.encode(
    head.params, [x[None] for x in features], np.arange(3)[None]
  )
  outputs, _ = head.model.extend(
    head.params,
    None,
    tokens[None],
    pending_kv=pending,
    positions=3 + np.arange(3)[None],
    mask=np.ones((3, 6), bool),
  )
  positions = np.arange(6)[:, None] * 500.0 ** (-np.arange(0, 4, 2) / 4)

  def rotate(y, angles):  # [T, D], halves
    first, second = np.split(y, 2, axis=-1)
    cos, sin = np.cos(angles), np.sin(angles)
    return np.concatenate([first * cos - second * sin,
                           second * cos + first * sin], -1)  # fmt: skip

  joined = np.concatenate(features, axis=1) @ arrays['fc.weight'].T
  context = _normed(joined, arrays['hidden_norm.weight'])
  x = np.asarray(target.params['embedding']['embedding'])[tokens]
  for i in range(2):
    weight = lambda part, i=i: arrays[f'layers.{i}.{part}.weight']
    inner = _normed(x, weight('input_layernorm'))
    both = np.concatenate([context, inner])
    key = _normed(
      both @ weight('self_attn.k_proj').T, weight('self_attn.k_norm')
    )
    key, value = rotate(key, positions), both @ weight('self_attn.v_proj').T
    mixed = []
    for part in np.split(inner @ weight('self_attn.q_proj').T, 2, axis=1):
      query = rotate(_normed(part, weight('self_attn.q_norm')), positions[3:])
      scores = np.exp(query @ key.T / 2)
      mixed.append(scores / scores.sum(-1, keepdims=True) @ value)
    x = x + np.concatenate(mixed, axis=1) @ weight('self_attn.o_proj').T
    normal = _normed(x, weight('post_attention_layernorm'))
    gate = normal @ weight('mlp.gate_proj').T
    up = normal @ weight('mlp.up_proj').T
    x = x + (gate / (1 + np.exp(-gate)) * up) @ weight('mlp.down_proj').T
  expected = _normed(x, arrays['norm.weight'])
  np.testing.assert_allclose(outputs[0], expected, rtol=2e-4, atol=2e-4)
  if name == 'dspark':
    logits = head.model.predict(head.params, outputs)
    given = head.model.condition(head.params, logits, tokens[None])
    first = arrays['markov_head.markov_w1.weight'][tokens]
    bias = first @ arrays['markov_head.markov_w2.weight'].T
    np.testing.assert_allclose(given - logits, bias[None], rtol=1e-4, atol=1e-5)


def test_a_confidence_head_is_not_read(target, tmp_path):
  fields, arrays = _dspark()
  expected = models.load_head(_write(tmp_path / 'a', fields, arrays), target)
  arrays |= _draw({'confidence_head.proj.weight': (1, 11)})
  head = models.load_head(_write(tmp_path / 'b', fields, arrays), target)
  jax.tree.map(np.testing.assert_array_equal, head.params, expected.params)


_IDS = 'eagle_aux_hidden_state_layer_ids'


@pytest.mark.parametrize(
  ('fields', 'taps'),
  [
    ({}, (2, 4, 5)),
    ({_IDS: [2, 4, 5]}, (2, 4, 5)),
    ({_IDS: [1, 3, 6]}, (1, 3, 6)),
    ({'eagle_config': None}, (2, 4, 5)),
    ({'eagle_config': {_IDS: [2, 4, 5]}}, (2, 4, 5)),
    ({'eagle_config': {_IDS: [1, 3, 4]}}, (2, 4, 5)),
    ({'eagle_config': {_IDS: [1, 2, 5]}}, (2, 3, 6)),
    ({_IDS: [2, 3, 6], 'eagle_config': {_IDS: [1, 2, 5]}}, (2, 3, 6)),
    (
      {'eagle_config': {_IDS: [3, 4, 5]}},
      r'may count inputs .* instead, \[3, 4, 5\] or \[4, 5, 6\]',
    ),
    ({_IDS: 3}, 'must be a list of integers, got 3'),
    ({_IDS: ['a', 1, 2]}, 'must be a list of integers'),
    ({'eagle_config': [1]}, r'eagle_config must be an object, got \[1\]'),
    ({'eagle_config': {'use_aux_hidden_state': False}}, 'the value False'),
  ],
  ids=str,
)
def test_layer_ids_count_what_enters_layers_or_leaves_them(
  fields, taps, target, tmp_path
):
  """The target has eight layers, of which EAGLE-3's authors read 2, 4, 5."""
  base, arrays = _eagle3()
  path = _write(tmp_path / 'a', base | fields, arrays)
  if isinstance(taps, str):
    with pytest.raises(ValueError, match=taps):
      models.load_head(path, target)
    return
  head = models.load_head(path, target)
  assert head.config.taps == taps
  models.save_head(head, tmp_path / 'b')
  assert models.load_head(tmp_path / 'b', target).config == head.config


def test_settings_mean_the_same_in_both_layouts(target, tmp_path):
  fields, arrays = _eagle3()
  fields |= {
    'norm_output': True,
    'eagle_config': {'norm_before_residual': True},
  }
  arrays |= _draw({f'fc_norm.{i}.weight': (8,) for i in range(3)})
  config = models.load_head(_write(tmp_path, fields, arrays), target).config
  assert config.norm_taps and config.norm_output and config.norm_before_residual


def test_heads_for_gpt_oss_set_norm_before_fc_in_eagle_config(target, tmp_path):
  fields, arrays = _eagle3()
  fields |= {'eagle_config': {'norm_before_fc': True}}
  arrays |= _draw({'input_norm.weight': (24,)})
  head = models.load_head(_write(tmp_path, fields, arrays), target)
  assert head.config.norm_before_fc


@pytest.mark.parametrize('kind', ['float32', 'float16', 'other'])
def test_copies_of_what_is_the_targets_are_compared(kind, target, tmp_path):
  """Types and quantization may differ."""
  fields, arrays = _eagle()
  table = arrays['embed_tokens.weight']
  head = np.asarray(target.params['head']['kernel']).T
  if kind == 'other':
    head = table
  arrays['embed_tokens.weight'] = table.astype(np.float16)
  arrays['lm_head.weight'] = np.ascontiguousarray(
    head, 'float32' if kind == 'other' else kind
  )
  path = _write(tmp_path, fields, arrays)
  if kind != 'other':
    models.load_head(path, target)
    return
  with pytest.raises(ValueError, match='lm_head.weight differs from that'):
    models.load_head(path, target)


def _drop_array(name):
  def change(fields, arrays):
    del fields
    del arrays[name]

  return change


@pytest.mark.parametrize(
  ('layout', 'change', 'message'),
  [
    ('eagle', _drop_array('fc.bias'), 'fc.bias is missing'),
    (
      'eagle3',
      _drop_array('midlayer.hidden_norm.weight'),
      'hidden_norm.weight',
    ),
    (
      'eagle',
      lambda fields, arrays: fields.update(hidden_size=16),
      'its d_model is 16, but this target has 8',
    ),
    (
      'eagle3',
      lambda fields, arrays: fields.update(target_hidden_size=16),
      'target_hidden_size is 16, but the target is 8 wide',
    ),
    (
      'eagle3',
      lambda fields, arrays: arrays.update(d2t=np.full(5, 11)),
      r'd2t must map to different tokens in \[0, 13\)',
    ),
    (
      'eagle3',
      lambda fields, arrays: arrays.update(d2t=np.zeros(4, int)),
      'd2t must have draft_vocab_size=5 entries, got 4',
    ),
    (
      'eagle3',
      lambda fields, arrays: arrays.update(t2d=np.arange(13) < 5),
      't2d must be true for exactly the tokens of d2t',
    ),
    (
      'eagle3',
      lambda fields, arrays: arrays.update(
        {'norm.weight': np.ones(8, np.int8)}
      ),
      'norm.weight has the type int8',
    ),
    (
      'eagle',
      lambda fields, arrays: arrays.update(
        {'embed_tokens.weight': np.ones((13, 8), np.float32)}
      ),
      'embed_tokens.weight differs from that of the target',
    ),
    (
      'speculators',
      lambda fields, arrays: fields.update(speculators_model_type='eagle'),
      "speculators_model_type is not supported with the value 'eagle'",
    ),
    (
      'speculators',
      lambda fields, arrays: fields.update(norm_before_fc=True),
      'norm_taps and norm_before_fc normalize the same features',
    ),
    (
      'speculators',
      lambda fields, arrays: fields.update(
        eagle_aux_hidden_state_layer_ids=[1, 4, 40]
      ),
      'taps must lie in',
    ),
    (
      'dflash',
      lambda fields, arrays: fields.update(layer_types=['sliding_attention']),
      "layer_types must be 'full_attention'",
    ),
    (
      'dflash',
      lambda fields, arrays: fields['dflash_config'].pop('mask_token_id'),
      'must contain the integer mask_token_id, got None',
    ),
    (
      'dflash',
      lambda fields, arrays: fields['dflash_config'].update(mask_token_id=13),
      r'mask_token must be in \[0, 12\], got 13',
    ),
    (
      'dflash',
      lambda fields, arrays: fields['dflash_config'].update(
        target_layer_ids=None
      ),
      'target_layer_ids or aux_hidden_state_layer_ids must be a list',
    ),
    ('dflash', _drop_array('hidden_norm.weight'), 'hidden_norm.weight'),
    (
      'dspark',
      lambda fields, arrays: fields.update(markov_head_type='rnn'),
      "markov_head_type is not supported with the value 'rnn'",
    ),
    (
      'dspark',
      _drop_array('markov_head.markov_w2.weight'),
      'markov_head.markov_w2.weight is missing',
    ),
    (
      'medusa',
      lambda fields, arrays: [arrays.pop(name) for name in list(arrays)]
      and arrays.update(x=np.zeros(3)),
      'a known kind of head',
    ),
  ],
)  # fmt: skip
def test_bad_files_are_refused(layout, change, message, target, tmp_path):
  fields, arrays = _FILES[layout]()
  change(fields, arrays)
  with pytest.raises(ValueError, match=message):
    models.load_head(_write(tmp_path / 'a', fields, arrays), target)


def test_pickled_heads_are_never_read(target, tmp_path):
  (tmp_path / 'config.json').write_text(json.dumps(_LLAMA))
  (tmp_path / 'pytorch_model.bin').write_bytes(b'x')
  with pytest.raises(ValueError, match='pickled weights can run any code'):
    models.load_head(tmp_path, target)


def test_a_head_of_a_family_is_written_for_others(target, tmp_path):
  config = heads.configure('eagle', _TARGET, head_size=4)
  params = heads.begin(
    jax.random.key(1), config, _TARGET, target.params, [0, 3, 5, 6]
  )
  head = models.Head(config, heads.head(config), params)
  models.save_head(head, tmp_path / 'a')
  reloaded = models.load_head(tmp_path / 'a', target)
  assert reloaded.config.layer.head_size == 4
  flat = checkpoint.flatten
  assert flat(reloaded.params).keys() == flat(params).keys()
  jax.tree.map(np.testing.assert_array_equal, reloaded.params, params)
