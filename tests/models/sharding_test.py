"""Models over many devices say what they say on one."""

import dataclasses
import functools
import json
import pathlib
import subprocess
import sys

import jax
import ml_collections
import numpy as np
import pytest

from experiments.common import methods as methods_lib
from experiments.common import prompts as prompts_lib
from specjax import families
from specjax import meshes
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import fusion
from specjax.models import heads
from specjax.models import layouts
from specjax.models import sharding
from tests import xla

NUM_DEVICES = 8
NUM_PROMPTS = 16
_MAX_LENGTH = 96
_NEW_TOKENS = 16
# Bandits play all of their arms, by temperature.
_HEADS = {
  'bandit': 'ucb_spec',
  'label': 'heads',
  'arms': ('feature_head(eagle):eagle', 'medusa(medusa):4'),
}
_OF_THE_BATCH = {
  'bandit': 'ucb_spec',
  'label': 'of the batch',
  'arms': ('medium:3/block', 'small:4x3/otm'),
}
_OF_A_ROW = {
  'bandit': 'ucb_spec',
  'label': 'of a row',
  'arms': ('small:2', 'small:4'),
  'per_row': True,
}
METHODS = {0.0: (_HEADS,), 1.0: (_OF_THE_BATCH, _OF_A_ROW)}
_CONFIG = config_lib.TransformerConfig(
  vocab_size=64,
  num_layers=1,
  d_model=24,
  num_heads=8,
  num_kv_heads=2,
  head_dim=4,
  d_ff=30,
  tie_embeddings=False,
)


def _abstract_mesh(data, model):
  return jax.sharding.AbstractMesh((data, model), (meshes.DATA, meshes.MODEL))


@pytest.mark.parametrize(
  ('name', 'expected_spec'),
  [
    ('layers/0/attention/query/kernel', (None, 'model')),
    ('layers/0/attention/key/kernel', (None, None)),  # Two heads by four.
    ('layers/0/attention/out/kernel', ('model', None)),
    ('layers/0/attention/query_key_value/kernel', (None, None)),
    ('layers/0/feed_forward/up/kernel', (None, None)),  # 30 by four.
    ('layers/0/attention_norm/scale', (None,)),
    ('embedding/embedding', ('model', None)),
    ('head/kernel', (None, 'model')),
  ],
)
def test_parameters_are_cut_where_their_parts_divide(name, expected_spec):
  shapes = checkpoint.flatten(flax_modules.abstract_params(_CONFIG))
  shapes |= checkpoint.flatten(
    jax.eval_shape(
      functools.partial(fusion.fuse, _CONFIG),
      flax_modules.abstract_params(_CONFIG),
    )
  )
  mesh = _abstract_mesh(2, 4)
  result = sharding.parameter_sharding(_CONFIG, name, shapes[name].shape, mesh)
  assert tuple(result.spec) == expected_spec
  replicated = sharding.parameter_sharding(
    _CONFIG, name, shapes[name].shape, mesh, split=False
  )
  assert not any(replicated.spec)


def test_the_head_of_a_reduced_vocabulary_is_whole():
  head = heads.configure('eagle', _CONFIG, head_size=16)
  mesh = _abstract_mesh(1, 2)
  spec_of = lambda name, *shape: tuple(
    sharding.parameter_sharding(head, name, shape, mesh).spec
  )
  assert spec_of('head/kernel', 24, 16) == (None, None)
  assert spec_of('layer/attention/query/kernel', 24, 32) == (None, 'model')


def test_the_markov_head_of_a_block_head_is_whole():
  """It is no output of an attention layer."""
  head = heads.configure('dflash', _CONFIG, markov_rank=3)
  result = sharding.parameter_sharding(
    head, 'markov_out/kernel', (3, _CONFIG.vocab_size), _abstract_mesh(1, 2)
  )
  assert not any(result.spec)


def test_logits_are_computed_in_parts_where_their_matrix_is_cut():
  """So that neither a table is gathered, nor what is whole already."""
  mesh = _abstract_mesh(1, 2)
  tied = dataclasses.replace(_CONFIG, tie_embeddings=True)
  reduced = dataclasses.replace(_CONFIG, head_size=16)
  for config, split, in_parts in (
    (_CONFIG, True, True),
    (tied, True, True),
    (tied, False, False),
    (reduced, True, False),
  ):
    params = flax_modules.abstract_params(config)
    sharded = sharding.shard_params(config, params, mesh, split=split)
    assert sharding._is_output_split(sharded) == in_parts
  head = heads.configure('eagle', tied)  # With its target's table.
  params = {'embedding': flax_modules.abstract_params(tied)['embedding']}
  sharded = sharding.shard_params(head, params, mesh, split=False)
  assert sharding._is_output_split(sharded)


def test_a_mesh_that_does_not_fit_is_refused():
  with pytest.raises(
    ValueError, match='at most 1 devices in total, got data=2'
  ):
    meshes.make(2, 1)
  with pytest.raises(ValueError, match='data >= 1, .*got data=0, model=1'):
    meshes.make(0, 1)
  with pytest.raises(ValueError, match='divide the 8 attention heads .*got 3'):
    sharding.check_heads(_CONFIG, _abstract_mesh(1, 3))


@pytest.mark.slow
def test_a_mesh_of_one_device_changes_nothing():
  family = families.load('mini', mesh=meshes.make())
  prompts = [[1, 2, 3], [4]]
  texts = [
    families.decoder(model_family, 'small', draft_length=2).decode(prompts, 8)
    for model_family in (family, families.load('mini'))
  ]
  assert [r.tokens for r in texts[0]] == [r.tokens for r in texts[1]]


def decode_texts(mesh):
  """Returns the texts of all methods on a mesh, by label."""
  texts = {}
  for temperature, methods in METHODS.items():
    config = ml_collections.ConfigDict(
      {
        'family': 'mini/heads',
        'mesh': mesh,
        'methods': methods,
        'sampling': {'temperature': temperature},
      }
    )
    family = prompts_lib.load_family(config)
    prompts = [
      family.tokenizer.encode_prompt(example.prompt)[: _MAX_LENGTH // 2]
      for example in family.prompts[:NUM_PROMPTS]
    ]
    for method in methods_lib.parse_all(config, list(family.drafters)):
      decoder = methods_lib.build(method, family, _MAX_LENGTH).decoder
      results = decoder.decode(prompts, _NEW_TOKENS, seed=1)
      assert np.all(sum(result.pulls for result in results))
      texts[method.label] = [result.tokens for result in results]
  return texts


@pytest.mark.slow
@pytest.mark.parametrize('layout', ['separate', 'fused'])
def test_eight_devices_say_what_one_says(layout, tmp_path):
  file = tmp_path / 'said.json'
  subprocess.run(
    [sys.executable, '-m', 'tests.models.sharding_test', '4x2', file, layout],
    cwd=pathlib.Path(__file__).parents[2],
    env=xla.environment(NUM_DEVICES),
    check=True,
  )
  sharded_texts = json.loads(file.read_text(encoding='utf-8'))
  single_texts = decode_texts({'data': 1, 'model': 1})
  assert list(sharded_texts) == list(single_texts)
  for label, texts in single_texts.items():
    assert len(texts) == NUM_PROMPTS
    assert sharded_texts[label] == texts, label


_HEADS_OF_A_KIND = [
  heads.head(heads.configure(kind, _CONFIG))
  for kind in ('eagle', 'medusa', 'dflash')
]


@pytest.mark.parametrize(
  'model',
  [adapters.Transformer(_CONFIG), *_HEADS_OF_A_KIND],
  ids=['transformer', 'eagle', 'medusa', 'dflash'],
)
def test_a_model_that_is_laid_out_already_gets_another_layout(model):
  """So that no output is constrained twice."""
  layout = layouts.Layout(meshes.make())
  other_layout = dataclasses.replace(layout, split_cache=False)
  laid_out = layouts.lay_out(model, layout)
  assert laid_out == layouts.lay_out(model, layout) != model
  assert layouts.lay_out(laid_out, layout) == laid_out
  assert layouts.lay_out(laid_out, other_layout) == layouts.lay_out(
    model, other_layout
  )


def test_an_early_exit_is_laid_out_as_its_model():
  model = adapters.Transformer(dataclasses.replace(_CONFIG, num_layers=2))
  layout = layouts.Layout(meshes.make())
  early = layouts.lay_out(model, layout).exit(1)
  assert early == layouts.lay_out(model.exit(1), layout)


def test_rows_that_the_mesh_does_not_divide_are_refused():
  mesh = _abstract_mesh(2, 1)
  with pytest.raises(ValueError, match='multiple of 2, .* got 3 rows'):
    layouts.Layout(mesh).rows(np.zeros((3, 4)))


if __name__ == '__main__':
  sizes = [int(size) for size in sys.argv[1].split('x')]
  if sys.argv[3] == 'fused':
    fusion._platform = lambda params: 'gpu'
  texts_of_methods = decode_texts({'data': sizes[0], 'model': sizes[1]})
  with open(sys.argv[2], 'w', encoding='utf-8') as output:
    json.dump(texts_of_methods, output)
