"""Fused projections compute what separate ones do."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import families
from specjax import meshes
from specjax import models
from specjax.contrib import encoder_decoder_config
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import fusion
from specjax.models import heads
from specjax.models import loading
from specjax.models import sharding
from specjax.testing import toys
from tests import tiers

_FIELDS = {
  'vocab_size': 50,
  'num_layers': 2,
  'd_model': 16,
  'num_heads': 4,
  'num_kv_heads': 2,
  'head_dim': 4,
  'd_ff': 24,
}
_TOKENS = np.random.default_rng(0).integers(50, size=(2, 12))


def _random_params(config):
  """Parameters that are nowhere 0 or 1, biases and norms included."""
  params = flax_modules.init_params(jax.random.key(0), config)
  draw = np.random.default_rng(1)
  return jax.tree.map(
    lambda leaf: leaf + np.float32(0.1 * draw.normal(size=leaf.shape)), params
  )


def _copy(params):
  """The same arrays in dicts that may be modified."""
  return jax.tree.map(lambda leaf: leaf, params)


def _assert_equal(actual, expected):
  jax.tree.map(np.testing.assert_array_equal, actual, expected)


_VARIANTS = [
  {},
  {'num_kv_heads': 4},
  {'num_kv_heads': 1, 'qk_norm': True},
  {'qkv_bias': True, 'mlp_bias': True, 'out_bias': True},
  {'gated': False, 'activation': 'gelu', 'norm': 'layer'},
  {'d_ff': 25, 'parallel_residual': True, 'rotary_fraction': 0.5},
]


@pytest.mark.parametrize(
  'fields',
  tiers.cases(_VARIANTS, _VARIANTS[3], _VARIANTS[5]),
  ids=lambda fields: ', '.join(fields) or 'grouped queries',
)
def test_logits_equal_those_of_separate_projections(fields):
  config = config_lib.TransformerConfig(**_FIELDS | fields)
  params, model = _random_params(config), adapters.Transformer(config)
  fused = fusion.fuse(config, _copy(params))
  names = [('attention', 'query_key_value')]
  names += [('feed_forward', 'gate_up')] * config.gated
  assert fusion.fused_layers(fused) == {
    ('layers', str(i), *name) for i in range(2) for name in names
  }
  outputs, expected = (
    jax.jit(
      lambda params: [
        model.extend(params, None, tokens)
        for tokens in (_TOKENS, _TOKENS[:1, :1])
      ]
    )(model_params)
    for model_params in (fused, params)
  )
  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=2e-6),
    outputs,
    expected,
  )
  _assert_equal(fusion.separate(config, fused), params)
  _assert_equal(fusion.separate(config, params), params)


def test_layers_are_fused_in_place_and_keep_their_number_of_parameters():
  config = config_lib.TransformerConfig(**_FIELDS)
  params = _random_params(config)
  size = lambda: sum(leaf.size for leaf in jax.tree.leaves(params))
  initial_size = size()
  assert fusion.fuse(config, params) is params
  assert size() == initial_size
  assert set(params['layers']['0']['feed_forward']) == {'gate_up', 'down'}
  attention = params['layers']['0']['attention']
  assert set(attention) == {'query_key_value', 'out'}


def test_each_group_holds_one_key_head():
  config = config_lib.TransformerConfig(**_FIELDS)
  head_ids = {'query': 4, 'key': 2, 'value': 2}
  # The number of the head that a column belongs to.
  layer = {
    name: {'kernel': jnp.repeat(jnp.arange(num), 4)[None]}
    for name, num in head_ids.items()
  }
  fused = fusion.fuse(config, layer)['query_key_value']['kernel']
  by_head = fused.reshape(2, 4, 4)[..., 0]
  np.testing.assert_array_equal(by_head, [[0, 1, 0, 0], [2, 3, 1, 1]])


def test_projections_that_a_mesh_does_not_divide_stay_separate():
  config = config_lib.TransformerConfig(**_FIELDS)  # Of gate and up, 8 groups.
  for num_devices, expected in (
    (2, {'query_key_value', 'gate_up'}),
    (4, {'gate_up'}),
    (3, set()),
  ):
    mesh = jax.sharding.AbstractMesh(
      (1, num_devices), (meshes.DATA, meshes.MODEL)
    )
    fused = jax.eval_shape(
      functools.partial(fusion.fuse, config, mesh=mesh),
      flax_modules.abstract_params(config),
    )
    assert {name for *_, name in fusion.fused_layers(fused)} == expected


def test_projections_that_a_mesh_does_not_divide_are_separated():
  """Queries of a drafter that was fused before are cut as if it was not."""
  layer = config_lib.TransformerConfig(**_FIELDS | {'num_layers': 1})
  head = heads.configure('eagle', layer)
  mesh = jax.sharding.AbstractMesh((1, 4), (meshes.DATA, meshes.MODEL))
  for config, model in (
    (layer, adapters.Transformer(layer)),
    (head, heads.head(head)),
  ):
    shapes = flax_modules.abstract_params(config)
    fused = jax.eval_shape(
      functools.partial(fusion.fuse, config), _copy(shapes)
    )
    laid_out = sharding.shard(models.Head(config, model, fused), mesh)
    fused_names = {name for *_, name in fusion.fused_layers(laid_out.params)}
    assert fused_names == {'gate_up'}
    shard = functools.partial(sharding.shard_params, config, mesh=mesh)
    queries, expected = (
      [
        leaf
        for path, leaf in checkpoint.flatten(params).items()
        if path.endswith('query/kernel')
      ]
      for params in (laid_out.params, shard(shapes))
    )
    assert queries == expected
    assert tuple(queries[0].sharding.spec) == (None, meshes.MODEL)


def test_cross_attention_stays_separate():
  config = encoder_decoder_config.EncoderDecoderConfig(
    vocab_size=50,
    encoder_layers=1,
    decoder_layers=1,
    d_model=16,
    num_heads=2,
    head_dim=8,
    d_ff=24,
    start_id=0,
  )
  params = _random_params(config)
  fused = fusion.fuse(config, _copy(params))
  assert 'query' in fused['decoder']['layers']['0']['cross']
  assert len(fusion.fused_layers(fused)) == 4
  model = adapters.language_model(config)
  tokens = np.array([[5, 6, 7, 0, 8, 9]])

  def prefill(params):
    cache = model.init_cache(params, 1, 16)
    return model.prefill(params, cache, tokens, np.array([6]))

  jax.tree.map(
    functools.partial(np.testing.assert_allclose, rtol=1e-5, atol=2e-6),
    *(jax.jit(prefill)(model_params) for model_params in (fused, params)),
  )
  _assert_equal(fusion.separate(config, fused), params)


@pytest.mark.slow
@pytest.mark.parametrize('kind', ['eagle', 'eagle3', 'medusa', 'dflash'])
def test_files_of_heads_are_read_to_fused_ones(kind, tmp_path, monkeypatch):
  toys.write_family(tmp_path, {'draft': 0.5})
  toys.write_heads(tmp_path, {kind: kind})
  separate = families.load(tmp_path / 'heads')
  monkeypatch.setattr(fusion, '_platform', lambda params: 'gpu')
  fused = families.load(tmp_path / 'heads')
  num = 2 * fused.target.config.num_layers
  assert len(fusion.fused_layers(fused.target.params)) == num
  head = fused.drafters[kind]
  assert bool(fusion.fused_layers(head.params)) == (kind != 'medusa')
  # What heads share with their target is the same array.
  shared, table = (
    model.params['embedding']['embedding'] for model in (head, fused.target)
  )
  assert shared is table
  for name in ('draft', kind):
    output, expected = (
      families.decoder(family, name, max_length=64).decode([[1, 2, 3], [4]], 16)
      for family in (fused, separate)
    )
    assert [r.tokens for r in output] == [r.tokens for r in expected]
  models.save_head(head, tmp_path / 'saved')
  loaded_head = loading.load_head(tmp_path / 'saved', fused.target)
  if kind != 'medusa':
    name = 'layers' if kind == 'dflash' else 'layer'
    _assert_equal(loaded_head.params[name], head.params[name])


def test_checkpoints_hold_separate_projections(tmp_path, monkeypatch):
  config = config_lib.TransformerConfig(**_FIELDS)
  params = _random_params(config)
  fused = fusion.fuse(config, _copy(params))
  path = tmp_path / 'target.safetensors'
  checkpoint.save(path, config, fused, np.float32)
  _assert_equal(checkpoint.load(path)[1], params)
  model = adapters.Transformer(config)
  folder = tmp_path / 'published'
  models.save(models.Checkpoint(config, model, fused), folder)
  _assert_equal(models.load(folder).params, params)
  monkeypatch.setattr(fusion, '_platform', lambda params: 'gpu')
  _assert_equal(models.load(folder).params, fused)


def test_a_file_of_fused_projections_is_refused(tmp_path, monkeypatch):
  config = config_lib.TransformerConfig(**_FIELDS)
  fused = fusion.fuse(config, _random_params(config))
  path = tmp_path / 'target.safetensors'
  monkeypatch.setattr(fusion, 'separate', lambda config, params: params)
  checkpoint.save(path, config, fused)
  with pytest.raises(ValueError, match='query/kernel is missing.*gate_up/ker'):
    checkpoint.load(path)
