"""The container: formats of arrays, and files that are broken."""

import random
import struct
import sys

import gguf
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.models.gguf import container
from tests.models.gguf import files

_KINDS = gguf.GGMLQuantizationType
# Bits of a value, where a block has a scale and perhaps a minimum.
_BITS = {'Q4_0': 4, 'Q4_1': 4, 'Q5_0': 5, 'Q5_1': 5, 'Q8_0': 8}


def _write_array(tmp_path, array, kind):
  """Writes one array in a format and returns the array that is read."""
  path = tmp_path / 'a.gguf'
  files.write(path, {'a': array}, kinds={'a': _KINDS[kind]})
  header = container.read_header(path)
  entry = header.arrays['a']
  assert entry.kind == kind and entry.shape == array.shape
  array_read = container.read(entry)
  assert array_read.shape == array.shape and array_read.dtype == entry.dtype
  return array_read


@pytest.mark.parametrize('kind', ['F32', 'F16', 'BF16'])
def test_plain_formats_keep_their_values_and_type(tmp_path, kind):
  dtype = {'F32': np.float32, 'F16': np.float16, 'BF16': jnp.bfloat16}[kind]
  array = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(dtype)
  array_read = _write_array(tmp_path, array.astype(np.float32), kind)
  assert array_read.dtype == dtype
  np.testing.assert_array_equal(array_read, array)


@pytest.mark.parametrize('kind', _BITS)
def test_quantized_values_are_as_near_as_their_bits_allow(tmp_path, kind):
  array = np.random.default_rng(0).normal(size=(6, 64)).astype(np.float32)
  blocks = array.reshape(6, 2, 32)
  if kind.endswith('1'):  # The scale spans the smallest to the greatest value.
    steps = np.ptp(blocks, axis=-1) / (2 ** _BITS[kind] - 1)
  else:  # The far end of the other sign is not reached.
    steps = abs(blocks).max(-1) / (2 ** (_BITS[kind] - 1) - 1)
  array_read = _write_array(tmp_path, array, kind)
  error = abs(array_read - array).reshape(blocks.shape).max(-1)
  assert (error < 1.01 * steps).all() and (error > 0.1 * steps).all()


@pytest.mark.parametrize('kind', _BITS)
def test_a_block_is_decoded_as_by_hand(tmp_path, kind):
  """Nibbles of the first half of a block stand below those of the second."""
  rng = np.random.default_rng(0)
  bits = _BITS[kind]
  values = rng.integers(0, 2**bits, 32)
  low = values % 16
  parts = [np.float16(0.5).tobytes()]
  if kind.endswith('1'):
    parts.append(np.float16(-3).tobytes())
  if bits == 5:
    high = sum(int(v >= 16) << i for i, v in enumerate(values))
    parts.append(struct.pack('<I', high))
  if bits == 8:
    parts.append(values.astype(np.uint8).tobytes())
  else:
    parts.append((low[:16] | low[16:] << 4).astype(np.uint8).tobytes())
  path = tmp_path / 'a'
  path.write_bytes(b''.join(parts))
  entry = container.Array(str(path), (1, 32), kind, 0, path.stat().st_size)
  if kind.endswith('1'):
    expected = 0.5 * values - 3
  elif bits == 8:
    expected = 0.5 * values.astype(np.int8)
  else:
    expected = 0.5 * (values - 2 ** (bits - 1))
  np.testing.assert_array_equal(container.read(entry)[0], expected)


def _scales(packed):
  """Eight 6-bit scales and minima of 12 bytes."""
  pairs = []
  for i in range(4):
    pairs.append((packed[i] & 63, packed[i + 4] & 63))
  for i in range(4):
    scale = packed[i + 8] & 15 | packed[i] >> 6 << 4
    pairs.append((scale, packed[i + 8] >> 4 | packed[i + 4] >> 6 << 4))
  return pairs


def _q4_k(block, high=None):
  """Decodes four chunks of 64 values, whose nibbles are two rows of 32."""
  scale, min_scale = (float(x) for x in np.frombuffer(block[:4], np.float16))
  pairs, data = _scales(block[4:16]), block[-128:]
  values = []
  for row in range(8):
    for i in range(32):
      value = data[row // 2 * 32 + i] >> row % 2 * 4 & 15
      if high is not None:
        value += (high[i] >> row & 1) * 16
      factor, minimum = pairs[row]
      values.append(scale * factor * value - min_scale * minimum)
  return values


def _q6_k(block):
  """Low nibbles, high bit pairs, and a scale for each 16 values."""
  low, high = block[:128], block[128:192]
  scales = np.frombuffer(block[192:208], np.int8)
  scale = float(np.frombuffer(block[208:], np.float16)[0])
  values = []
  for i in range(256):
    half, index = divmod(i, 128)
    row, column = divmod(index, 32)
    nibble = low[64 * half + 32 * (row % 2) + column] >> row // 2 * 4 & 15
    pair = high[32 * half + column] >> 2 * row & 3
    value = (nibble | pair << 4) - 32
    values.append(scale * int(scales[i // 16]) * value)
  return values


_BY_HAND = {
  'Q4_K': (144, 0, _q4_k),
  'Q5_K': (176, 0, lambda block: _q4_k(block, block[16:48])),
  'Q6_K': (210, 208, _q6_k),
}


@pytest.mark.parametrize('kind', _BY_HAND)
def test_blocks_of_256_are_decoded_as_by_hand(tmp_path, kind):
  size, index, by_hand = _BY_HAND[kind]
  blocks = []
  for seed in range(6):
    block = bytearray(random.Random(seed).randbytes(size))
    block[index : index + 2] = np.float16(0.25 + seed).tobytes()
    if kind != 'Q6_K':
      block[2:4] = np.float16(0.5 * seed).tobytes()
    blocks.append(bytes(block))
  path = tmp_path / 'a'
  path.write_bytes(b'before' + b''.join(blocks))
  entry = container.Array(str(path), (3, 512), kind, 6, 6 * size)
  array_read = container.read(entry)
  expected = np.array([by_hand(block) for block in blocks], np.float32)
  np.testing.assert_allclose(array_read, expected.reshape(3, 512), rtol=1e-6)


def test_metadata_of_all_types_come_back(tmp_path):
  path = tmp_path / 'a.gguf'
  writer = gguf.GGUFWriter(path, 'llama')
  expected = {}
  for name in ('int8', 'int16', 'int32', 'int64'):
    for sign, kind in ((-5, name), (5, f'u{name}')):
      getattr(writer, f'add_{kind}')(kind, sign)
      expected[kind] = sign
  writer.add_float32('float32', 0.5)
  writer.add_float64('float64', 0.1)
  writer.add_bool('bool', True)
  writer.add_string('string', 'é 漢')
  writer.add_array('strings', ['a', '', 'ç'])
  writer.add_array('numbers', [1, -2, 3])
  expected |= {'float32': 0.5, 'float64': 0.1, 'bool': True, 'string': 'é 漢'}
  expected |= {'strings': ['a', '', 'ç'], 'numbers': [1, -2, 3]}
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  header = container.read_header(path)
  assert header.metadata == expected | {'general.architecture': 'llama'}
  assert not header.arrays


def _header(*parts):
  return b'GGUF' + struct.pack('<IQQ', *parts)


def _named(kind, *fields):
  return struct.pack('<QcI', 1, b'a', kind) + b''.join(fields)


@pytest.mark.parametrize(
  ('content', 'message'),
  {
    'empty': (b'', 'Cannot read'),
    'another': (b'PK\x03\x04' * 9, 'not a GGUF file'),
    'version': (_header(4, 0, 0), 'newer .*version 4'),
    'big-endian': (b'GGUF' + struct.pack('>IQQ', 3, 0, 0), 'little-endian'),
    'many values': (_header(3, 0, 2**60), 'truncated'),
    'many arrays': (_header(3, 2**60, 0), 'truncated'),
    'long text': (
      _header(3, 0, 1) + _named(8, struct.pack('<Q', 2**62)),
      'truncated',
    ),
    'long list': (
      _header(3, 0, 1) + _named(9, struct.pack('<IQ', 0, 2**62)),
      'truncated',
    ),
    'list of lists': (
      _header(3, 0, 1) + _named(9, struct.pack('<IQIQB', 9, 1, 0, 1, 7)),
      'a is a list of lists, which is not supported',
    ),
    'type': (_header(3, 0, 1) + _named(13, bytes(9)), r'13\)? is not a valid'),
    'twice': (_header(3, 0, 2) + 2 * _named(4, bytes(4)), 'Duplicate a'),
    'no text': (
      _header(3, 0, 1) + _named(8, struct.pack('<Q', 1), b'\xff'),
      'utf-8',
    ),
    'large array': (
      _header(3, 1, 0) + _named(2, struct.pack('<QQIQ', 32, 2**50, 0, 0)),
      'truncated',
    ),
    'axes': (_header(3, 1, 0) + _named(2**31), 'truncated'),
    'no axes': (_header(3, 1, 0) + _named(0, bytes(99)), r'shape \(\)'),
    'many elements': (
      _header(3, 1, 0)
      + _named(2, struct.pack('<QQIQ', 2**32, 2**32, 0, 0), bytes(99)),
      'corrupt',
    ),
    'format': (
      _header(3, 1, 0) + _named(1, struct.pack('<QIQ', 1, 99, 0)),
      r'newer than the package gguf .*99\)? is not a valid',
    ),
    'known format': (
      _header(3, 1, 0) + _named(1, struct.pack('<QIQ', 256, 16, 0), bytes(99)),
      'must be of F32, .*, got IQ2_XXS',
    ),
    'part of a block': (
      _header(3, 1, 0) + _named(1, struct.pack('<QIQ', 33, 2, 0)),
      r'corrupt.*\(33\) is not a multiple of Q4_0',
    ),
    'elsewhere': (
      _header(3, 1, 0) + _named(1, struct.pack('<QIQ', 1, 0, 32)) + bytes(99),
      'a has a wrong offset',
    ),
  }.values(),
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, message):
  path = tmp_path / 'broken.gguf'
  path.write_bytes(content)
  with pytest.raises(ValueError, match=message) as caught:
    container.read_header(path)
  assert str(path) in str(caught.value)


def test_without_the_package_it_is_said_what_to_install(monkeypatch, tmp_path):
  files.write(tmp_path / 'a.gguf', {})
  monkeypatch.setitem(sys.modules, 'gguf', None)
  with pytest.raises(ValueError, match=r"pip install 'specjax\[gguf\]'"):
    container.read_header(tmp_path / 'a.gguf')
