"""Files of weights: whole, in shards, broken, pickled."""

import json
import random

import jax
import numpy as np
import pytest
from safetensors import numpy as safetensors_numpy

from specjax import models
from specjax.models.huggingface import shards
from tests.models.huggingface import oracle

pytestmark = pytest.mark.oracles

_INDEX = 'model.safetensors.index.json'


@pytest.fixture(name='folder')
def _folder(tmp_path):
  return oracle.save('llama', tmp_path / 'one')


@pytest.fixture(name='sharded')
def _sharded(tmp_path):
  return oracle.save('llama', tmp_path / 'several', max_shard_size=2**13)


def test_shards_hold_what_one_file_holds(folder, sharded):
  assert len(list(sharded.glob('*.safetensors'))) > 3
  single_file, split_files = models.load(folder), models.load(sharded)
  jax.tree.map(
    np.testing.assert_array_equal, single_file.params, split_files.params
  )


def test_what_is_written_in_shards_is_read_again(folder, tmp_path):
  tensors = shards.load(str(folder))
  shards.save(str(tmp_path), tensors, shard_bytes=10_000)
  files = sorted(tmp_path.glob('*.safetensors'))
  largest = max(shape.size * 4 for shape in tensors.shapes.values())
  assert len(files) > 3 and files[0].name.endswith(
    f'-of-{len(files):05d}.safetensors'
  )
  assert all(
    file.stat().st_size < max(10_000, largest) + 2000 for file in files
  )
  reloaded = shards.load(str(tmp_path))
  assert reloaded.shapes == tensors.shapes
  for name in reloaded.shapes:
    np.testing.assert_array_equal(reloaded.read(name), tensors.read(name))


def test_missing_shards_are_named(sharded):
  files = sorted(sharded.glob('*.safetensors'))
  for file in files[:2]:
    file.unlink()
  with pytest.raises(ValueError, match=f'{files[0].name}, {files[1].name}'):
    models.load(sharded)


def _change_index(folder, change):
  path = folder / _INDEX
  index = json.loads(path.read_text())
  change(index['weight_map'])
  path.write_text(json.dumps(index))


@pytest.mark.parametrize('name', ['../model.safetensors', '/etc/passwd', '', 3])
def test_an_index_names_files_of_its_folder_only(sharded, name):
  _change_index(sharded, lambda names: names.update({'lm_head.weight': name}))
  with pytest.raises(ValueError, match='corrupt'):
    models.load(sharded)


def test_an_index_only_names_the_files(folder, sharded):
  """Which arrays they hold they say themselves, as in transformers."""

  def change(names):
    names['extra.weight'] = names['lm_head.weight']
    del names['model.norm.weight']

  _change_index(sharded, change)
  single_file, split_files = models.load(folder), models.load(sharded)
  jax.tree.map(
    np.testing.assert_array_equal, single_file.params, split_files.params
  )


def test_pickled_weights_are_refused_and_not_opened(folder):
  (folder / 'model.safetensors').rename(folder / 'pytorch_model.bin')
  (folder / 'pytorch_model.bin').chmod(0)
  with pytest.raises(
    ValueError, match='only pytorch_model.bin: pickled .* can'
  ):
    models.load(folder)
  (folder / 'pytorch_model.bin').unlink()
  with pytest.raises(ValueError, match='neither model.safetensors nor'):
    models.load(folder)


@pytest.mark.parametrize(
  ('kind', 'size', 'message'),
  [
    ('I8', 1, 'has the type int8, not one of float16'),
    ('U32', 4, 'has the type uint32, not one of float16'),
    ('U64', 8, 'has the type uint64, not one of float16'),
    ('C64', 8, 'has the type complex64, not one of float16'),
    ('F8_E8M0', 1, 'has the type float8_e8m0fnu, not one of float16'),
    ('F4', 0.5, 'has the type float4_e2m1fn, not one of float16'),
    ('F6_E2M3', 0.75, "in .*: 'F6_E2M3'. Known: BF16"),
  ],
)
def test_a_type_that_nothing_can_be_computed_in_is_refused(
  folder, kind, size, message
):
  path = folder / 'model.safetensors'
  arrays = safetensors_numpy.load_file(path)
  name = 'model.norm.weight'
  other_arrays = {n: array for n, array in arrays.items() if n != name}
  safetensors_numpy.save_file(other_arrays, path)
  # The type that the package cannot write is last.
  content = path.read_bytes()
  length = int.from_bytes(content[:8], 'little')
  header = json.loads(content[8 : 8 + length])
  begin = len(content) - 8 - length
  data = bytes(int(32 * size))
  offsets = [begin, begin + len(data)]
  header[name] = {'dtype': kind, 'shape': [32], 'data_offsets': offsets}
  text = json.dumps(header).encode()
  path.write_bytes(
    len(text).to_bytes(8, 'little') + text + content[8 + length :] + data
  )
  with pytest.raises(ValueError, match=f'{name} {message}') as caught:
    models.load(folder)
  assert 'corrupt' not in str(caught.value)


def _spoil(content, draw):
  """Cuts the end off, or flips a bit, of the header more often than not."""
  if draw.random() < 0.3:
    return content[: draw.randrange(len(content))]
  size = min(len(content), 3000) if draw.random() < 0.8 else len(content)
  index = draw.randrange(size)
  spoilt = bytearray(content)
  spoilt[index] ^= 1 << draw.randrange(8)
  return bytes(spoilt)


def _fuzz(folder, spoilt, num, seed):
  """Spoils a file, again and again; returns how often it was refused."""
  path, draw, refused = folder / spoilt, random.Random(seed), 0
  content = path.read_bytes()
  for _ in range(num):
    path.write_bytes(_spoil(content, draw))
    try:
      models.load(folder)
    except ValueError:
      refused += 1
  path.write_bytes(content)
  models.load(folder)
  return refused


@pytest.mark.slow
@pytest.mark.parametrize('name', ['model.safetensors', 'config.json'])
def test_broken_files_raise_nothing_but_a_value_error(folder, name):
  """A bit of an array or of a name that is not needed, no reader can see."""
  assert _fuzz(folder, name, 200, seed=1) > 60


def test_a_broken_index_raises_nothing_but_a_value_error(sharded):
  assert _fuzz(sharded, _INDEX, 200, seed=2) > 100
