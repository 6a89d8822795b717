"""Arrays of transformers become parameters, exactly or not at all."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import flax_modules
from specjax.models.huggingface import architectures
from specjax.models.huggingface import weights
from tests.models.huggingface import oracle

pytestmark = pytest.mark.oracles

_COPIES = ('encoder.embed_tokens.weight', 'decoder.embed_tokens.weight')


def _read(case, arrays, **options):
  config = architectures.read_config(oracle.fields(case))
  model_type, _ = oracle.CASES[case]
  config, tensors = weights.resolve(config, model_type, oracle.tensors(arrays))
  return config, weights.read(config, model_type, tensors, **options)


@pytest.mark.parametrize('case', oracle.CASES)
def test_writing_undoes_reading(case):
  expected = oracle.arrays(case)
  config, params = _read(case, expected)
  tensors = weights.write(config, oracle.CASES[case][0], params)
  if config.tie_embeddings:
    del expected['lm_head.weight']
  assert tensors.shapes.keys() == expected.keys() - set(_COPIES)
  for name, shape in tensors.shapes.items():
    array = tensors.read(name)
    assert array.shape == shape.shape and array.flags['C_CONTIGUOUS']
    np.testing.assert_array_equal(array, expected[name], err_msg=name)


def test_every_mismatch_is_listed_at_once():
  arrays = oracle.arrays('llama')
  del arrays['model.norm.weight']
  arrays['model.extra.weight'] = np.zeros(3)
  arrays['lm_head.weight'] = arrays['lm_head.weight'][:40]
  up = 'model.layers.0.mlp.up_proj.weight'
  arrays[up] = arrays[up].astype(np.int8)
  with pytest.raises(ValueError) as error:
    _read('llama', arrays)
  for problem in (
    'model.norm.weight is missing',
    'model.extra.weight is unknown',
    'lm_head.weight has shape (40, 32), not (50, 32)',
    f'{up} has the type int8, not one of float16, bfloat16',
  ):
    assert problem in str(error.value)


def test_files_of_older_versions_are_read():
  arrays = oracle.arrays('neox_parallel')
  _, params = _read('neox_parallel', arrays)
  arrays['embed_out.weight'] = arrays.pop('lm_head.weight')
  arrays['gpt_neox.layers.0.attention.bias'] = np.tri(256)
  arrays['gpt_neox.layers.0.attention.rotary_emb.inv_freq'] = np.ones(2)
  _, old = _read('neox_parallel', arrays)
  jax.tree.map(np.testing.assert_array_equal, old, params)


def test_one_table_may_stand_for_its_copies():
  """Whichever of them a file has; one that differs is not left out."""
  arrays = oracle.arrays('t5')
  _, expected = _read('t5', arrays)
  unread = 'decoder.block.0.layer.1.EncDecAttention.relative_attention_bias'
  arrays[f'{unread}.weight'] = np.ones((8, 2))
  table = arrays.pop('shared.weight')
  _, params = _read('t5', arrays)
  jax.tree.map(np.testing.assert_array_equal, params, expected)
  arrays['shared.weight'] = table + 1
  with pytest.raises(ValueError, match='must be equal to shared.weight'):
    _read('t5', arrays)


def test_two_arrays_of_one_meaning_are_refused():
  arrays = oracle.arrays('neox_parallel')
  arrays['embed_out.weight'] = arrays['lm_head.weight']
  with pytest.raises(ValueError, match='are two names of one array'):
    _read('neox_parallel', arrays)


def test_an_architecture_cannot_hold_parameters_that_it_does_not_have():
  config = architectures.read_config(oracle.fields('gemma2'))
  params = flax_modules.abstract_params(config)
  with pytest.raises(ValueError, match='llama.*layers/2/attention_post_norm'):
    weights.write(config, 'llama', params)


def test_more_layers_than_arrays_are_refused_before_they_are_built():
  config = architectures.read_config(
    oracle.fields('llama') | {'num_hidden_layers': 10**9}
  )
  with pytest.raises(ValueError, match='1000000000 layers, .* only 21 arrays'):
    weights.read(config, 'llama', oracle.tensors(oracle.arrays('llama')))


def test_types_are_kept_or_become_what_is_asked_for():
  """Each array's own; models take what is mixed."""
  arrays = oracle.arrays('llama')
  narrow = {
    name: array if 'norm' in name else array.astype(jnp.bfloat16)
    for name, array in arrays.items()
  }
  config, unpadded = _read('llama', narrow)
  for name, leaf in checkpoint.flatten(unpadded).items():
    assert leaf.dtype == (jnp.float32 if 'norm' in name else jnp.bfloat16)
  _, wide = _read('llama', narrow, dtype=jnp.float32)
  assert {leaf.dtype for leaf in jax.tree.leaves(wide)} == {np.dtype('float32')}
  model = adapters.Transformer(config)
  logits = [
    model.extend(p, None, oracle.TOKENS).logits for p in (unpadded, wide)
  ]
  np.testing.assert_allclose(*logits, rtol=1e-4, atol=1e-3)


def test_one_array_is_read_at_a_time_the_largest_first():
  arrays, read_names = oracle.arrays('phi3'), []
  source = oracle.tensors(arrays)
  source = source._replace(read=lambda n: (read_names.append(n), arrays[n])[1])
  config = architectures.read_config(oracle.fields('phi3'))
  weights.read(config, 'phi3', source)
  sizes = [arrays[name].size for name in read_names]
  assert sizes == sorted(sizes, reverse=True) and len(read_names) == len(arrays)


def test_padding_of_the_vocabulary_is_written():
  config, params = _read('llama', oracle.arrays('llama'))
  config = dataclasses.replace(config, vocab_size=47, padded_vocab_size=50)
  tensors = weights.write(config, 'llama', params)
  assert tensors.shapes['lm_head.weight'].shape == (50, 32)
