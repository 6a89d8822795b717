"""Checkpoints come back as they were written, or not at all."""

import dataclasses
import re

import jax
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from specjax.data import datastore
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules

_CONFIG = config_lib.TransformerConfig(
  vocab_size=11,
  num_layers=2,
  d_model=8,
  num_heads=2,
  num_kv_heads=1,
  head_dim=4,
  d_ff=12,
  sliding_window=4,
  local_layers=(True, False),
  rope_scaling=config_lib.RopeScaling('linear', 2.0),
)


@pytest.fixture(scope='module')
def params():
  return flax_modules.init_params(jax.random.key(0), _CONFIG)


@pytest.fixture
def path(tmp_path, params):
  """A good checkpoint, to be spoilt."""
  path = tmp_path / 'model.safetensors'
  checkpoint.save(path, _CONFIG, params)
  return path


def _assert_refused(path, *reasons):
  with pytest.raises(ValueError, match=re.escape(str(path))) as error:
    checkpoint.load(path)
  for reason in reasons:
    assert reason in str(error.value)


def test_a_checkpoint_in_float32_comes_back_exactly(tmp_path, params):
  path = tmp_path / 'model.safetensors'
  checkpoint.save(path, _CONFIG, params, dtype=np.float32)
  config, loaded_params = checkpoint.load(path)
  assert config == _CONFIG
  jax.tree.map(np.testing.assert_array_equal, loaded_params, params)


def test_float16_costs_three_decimal_digits(path, params):
  """Half a unit in the last of 11 bits; float16 ends at steps of 6e-8."""
  config, loaded_params = checkpoint.load(path)
  assert config == _CONFIG
  assert {x.dtype for x in jax.tree.leaves(loaded_params)} == {
    np.dtype(np.float32)
  }
  jax.tree.map(
    lambda x, y: np.testing.assert_allclose(x, y, rtol=2**-11, atol=3e-8),
    loaded_params,
    params,
  )


def test_saving_leaves_one_file_and_replaces_the_old_one(path, params):
  doubled = jax.tree.map(lambda x: 2 * x, params)
  checkpoint.save(path, _CONFIG, doubled)
  assert [file.name for file in path.parent.iterdir()] == [path.name]
  _, loaded_params = checkpoint.load(path)
  np.testing.assert_array_equal(
    loaded_params['final_norm']['scale'], np.full(8, 2.0)
  )


def test_flatten_and_unflatten_are_inverse(params):
  arrays = checkpoint.flatten(params)
  assert 'layers/1/attention/query/kernel' in arrays
  unflattened = checkpoint.unflatten(
    arrays, jax.eval_shape(lambda: params), 'it'
  )
  jax.tree.map(np.testing.assert_array_equal, unflattened, params)


def test_a_missing_checkpoint_is_named(tmp_path):
  _assert_refused(tmp_path / 'nowhere.safetensors', 'There is no checkpoint')


@pytest.mark.parametrize('share', [0.0, 0.001, 0.2, 0.5, 0.99])
def test_a_truncated_checkpoint_is_refused(path, share):
  content = path.read_bytes()
  path.write_bytes(content[: int(share * len(content))])
  _assert_refused(path, 'truncated or corrupt')


@pytest.mark.parametrize(
  'index', [0, 7, 8, -1, -1000], ids=lambda index: f'byte{index}'
)
def test_flipped_bits_are_noticed(path, index):
  """In the length of the header, in the header and in the arrays."""
  content = bytearray(path.read_bytes())
  content[index] ^= 0x10
  path.write_bytes(content)
  _assert_refused(path, 'truncated or corrupt')


def _write_foreign(path, metadata=None):
  arrays = {'model.norm.weight': np.ones(8, np.float32)}
  safetensors_numpy.save_file(arrays, path, metadata=metadata)


def _refusal(path):
  with pytest.raises(ValueError, match=re.escape(str(path))) as error:
    checkpoint.load(path)
  return str(error.value)


@pytest.mark.parametrize(
  ('metadata', 'config', 'signs'),
  [
    ({'format': 'pt'}, False, "(its format is 'pt')"),
    (None, True, 'config.json has a model_type)'),
    ({'format': 'pt'}, True, "has a model_type and its format is 'pt')"),
  ],
)
def test_a_file_of_huggingface_is_told_from_a_broken_one(
  tmp_path, metadata, config, signs
):
  path = tmp_path / 'model.safetensors'
  _write_foreign(path, metadata)
  if config:
    (tmp_path / 'config.json').write_text('{"model_type": "llama"}')
  message = _refusal(path)
  assert 'not a checkpoint of specjax' in message and 'corrupt' not in message
  assert signs in message and 'models.load' in message


def test_a_file_of_nobody_knows_whom_is_not_called_huggingfaces(tmp_path):
  path = tmp_path / 'model.safetensors'
  _write_foreign(path, {'format': 'np'})
  (tmp_path / 'config.json').write_text('{"experiment": "train"}')
  message = _refusal(path)
  assert message.endswith('specjax: its header lacks config and checksum.')


def test_a_truncated_file_of_huggingface_is_truncated(tmp_path):
  path = tmp_path / 'model.safetensors'
  _write_foreign(path, {'format': 'pt'})
  path.write_bytes(path.read_bytes()[:-4])
  _assert_refused(path, 'truncated or corrupt')


def test_a_datastore_is_no_checkpoint(tmp_path):
  """Its header has a checksum, too, but no config."""
  path = tmp_path / 'datastore.safetensors'
  datastore.save(path, datastore.build([[1, 2, 3, 1, 2]]))
  assert 'corrupt' not in _refusal(path)


def test_arrays_of_another_config_are_refused_one_by_one(path, params):
  other_config = dataclasses.replace(
    _CONFIG, vocab_size=13, tie_embeddings=False, num_layers=1
  )
  checkpoint.save(path, other_config, params)
  _assert_refused(
    path,
    'embedding/embedding has shape (11, 8), not (13, 8)',
    'head/kernel is missing',
    'layers/1/attention/query/kernel is unknown',
  )


def test_a_changed_config_is_seen(path):
  path.write_bytes(path.read_bytes().replace(b'10000.0', b'90000.0'))
  _assert_refused(path, 'truncated or corrupt')


def test_what_float16_cannot_hold_is_not_written(tmp_path, params):
  path = tmp_path / 'model.safetensors'
  huge = jax.tree.map(lambda leaf: leaf + 7e4, params)
  with pytest.raises(ValueError, match='that float16 cannot store'):
    checkpoint.save(path, _CONFIG, huge)
  assert not path.exists()


def test_int8_costs_half_a_step_of_each_column(tmp_path, params):
  path = tmp_path / 'model.safetensors'
  checkpoint.save(path, _CONFIG, params, np.int8)
  _, loaded_params = checkpoint.load(path)
  for name, array in checkpoint.flatten(params).items():
    actual = np.asarray(checkpoint.flatten(loaded_params)[name])
    error = np.abs(actual - np.asarray(array))
    if array.ndim > 1:
      half_step = np.abs(np.asarray(array)).max(axis=0) / 254
      assert (error <= 1.001 * half_step).all() and error.max() > 0
    else:
      np.testing.assert_allclose(actual, array, rtol=1e-3)


def test_integers_are_kept_as_they_are(tmp_path):
  config, params = cutting.narrow_head(
    _CONFIG, flax_modules.init_params(jax.random.key(0), _CONFIG), [0, 2]
  )
  path = tmp_path / 'model.safetensors'
  checkpoint.save(path, config, params)
  rows = checkpoint.load(path)[1]['head_rows']
  assert rows.dtype == np.int32
  np.testing.assert_array_equal(rows, params['head_rows'])


def test_what_a_file_lacks_is_shared_without_a_copy(tmp_path, params):
  path = tmp_path / 'model.safetensors'
  saved_params = {
    name: leaf for name, leaf in params.items() if name != 'embedding'
  }
  checkpoint.save(path, _CONFIG, saved_params, np.float32)
  with pytest.raises(ValueError, match='embedding/embedding is missing'):
    checkpoint.load(path)
  _, loaded_params = checkpoint.load(path, shared=params)
  table = lambda tree: tree['embedding']['embedding']
  assert table(loaded_params) is table(params)
  assert jax.tree.all(jax.tree.map(np.array_equal, loaded_params, params))
