"""The container GGUF: metadata, and arrays in one of many formats.

What a header says is checked against the size of the file before anything is
made of that size, so that a broken file costs no time and no memory.
"""

from collections.abc import Callable
import math
import mmap
import os
import re
import struct
from typing import Any
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

_VERSIONS = (2, 3)
# Numbers by the type that the header gives them.
_SCALARS = {
  0: 'B',
  1: 'b',
  2: 'H',
  3: 'h',
  4: 'I',
  5: 'i',
  6: 'f',
  7: '?',
  10: 'Q',
  11: 'q',
  12: 'd',
}
_STRING, _ARRAY = 8, 9
_MAX_DIMENSIONS = 4
# The first of several files.
_SPLIT = re.compile(r'(?P<stem>.*)-00001-of-(?P<count>\d{5})\.gguf', re.S)
# What arrays of these formats are made of; others become float32.
_PLAIN = {'F32': np.float32, 'F16': np.float16, 'BF16': jnp.bfloat16}
_QUANTISED = ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q4_K', 'Q5_K', 'Q6_K')


class Array(NamedTuple):
  """Where an array is, and what it holds.

  Attributes:
    path: its file.
    shape: as of a NumPy array, the last axis being contiguous.
    kind: name of its format, such as 'Q4_1'.
    start: place of its first byte in the file.
    num_bytes: how many it has.
  """

  path: str
  shape: tuple[int, ...]
  kind: str
  start: int
  num_bytes: int

  @property
  def dtype(self) -> np.dtype[Any]:
    """The type of what `read` returns."""
    return np.dtype(_PLAIN.get(self.kind, np.float32))


class Header(NamedTuple):
  """All of a file but the arrays' contents."""

  metadata: dict[str, Any]  # numbers, texts, and lists of them
  arrays: dict[str, Array]


def read_header(path: str | os.PathLike[str]) -> Header:
  """Reads what a file has, or several into which a model is split.

  Args:
    path: the file, of several the first.

  Raises:
    ValueError: the file is truncated, corrupt or no GGUF; it is one of several,
      but not the first, or others are missing; an array has a format that is
      not supported, or the package `gguf` is not installed.
  """
  path = os.fspath(path)
  header = _read_one(path)
  arrays = dict(header.arrays)
  for other in _others(path, header.metadata):
    found = _read_one(other).arrays
    twice = arrays.keys() & found.keys()
    if twice:
      raise ValueError(f'{other} has again {", ".join(sorted(twice))}.')
    arrays |= found
  return header._replace(arrays=arrays)


def _read_one(path):
  """The header of one file."""
  sizes = _formats()
  try:
    with (
      open(path, 'rb') as file,
      mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
      return _header(path, _Cursor(data), sizes)
  except (OSError, ValueError) as error:
    raise ValueError(f'Cannot read {path}: {error}') from error


def _others(path, metadata):
  """The files that hold the rest of a model; llama.cpp numbers them from 1."""
  count, number = (metadata.get(f'split.{n}', 0) for n in ('count', 'no'))
  if type(count) is not int or count < 0:
    raise ValueError(f'split.count of {path} must be >= 0, got {count!r}.')
  if count in (0, 1):
    return []
  match = _SPLIT.fullmatch(path)
  if match is None or int(match['count']) != count or number != 0:
    raise ValueError(
      f'{path} is one of the {count} files of a split GGUF: give the first of '
      f'them, whose name must end in -00001-of-{count:05d}.gguf.'
    )
  paths = [
    f'{match["stem"]}-{i:05d}-of-{count:05d}.gguf' for i in range(1, count + 1)
  ]
  missing = [each for each in paths if not os.path.isfile(each)]
  if missing:
    raise ValueError(
      f'{path} is one of the {count} files of a split GGUF, but there is no '
      f'{", ".join(missing)}.'
    )
  return paths[1:]


def read(array: Array) -> np.ndarray:
  """Returns an array of a file; a quantised one as float32."""
  with open(array.path, 'rb') as file:
    file.seek(array.start)
    data = np.frombuffer(file.read(array.num_bytes), np.uint8)
  if data.size != array.num_bytes:
    raise ValueError(f'{array.path} has become shorter.')
  if array.kind in _PLAIN:
    return data.view(array.dtype).reshape(array.shape)
  package = _package()
  rows = data.reshape(math.prod(array.shape[:-1]), -1)
  kind = package.GGMLQuantizationType[array.kind]
  return package.quants.dequantize(rows, kind).reshape(array.shape)


class _Cursor:
  """Reads a header from front to back."""

  def __init__(self, data: mmap.mmap):
    self.data = data
    self.place = 0

  def bytes(self, count: int) -> bytes:
    """The next bytes, if there are so many."""
    self.need(count)
    self.place += count
    return self.data[self.place - count : self.place]

  def need(self, count: int) -> None:
    """Refuses to go on if fewer bytes are left."""
    if count > len(self.data) - self.place:
      raise ValueError(
        f'it is truncated or corrupt: {count} bytes are missing behind '
        f'byte {self.place} of {len(self.data)}.'
      )

  def numbers(self, kind: str, count: int = 1) -> list[Any]:
    """The next numbers of a type of `struct`."""
    size = struct.calcsize(f'<{kind}')
    self.need(size * count)
    return list(struct.unpack(f'<{count}{kind}', self.bytes(size * count)))

  def text(self) -> str:
    """The next string."""
    (length,) = self.numbers('Q')
    return self.bytes(length).decode()

  def value(self) -> Any:
    """The next value of any type."""
    (kind,) = self.numbers('I')
    if kind != _ARRAY:
      return self._values(kind, 1)[0]
    kind, count = *self.numbers('I'), *self.numbers('Q')
    return self._values(kind, count)

  def _values(self, kind, count):
    if kind in _SCALARS:
      return self.numbers(_SCALARS[kind], count)
    if kind == _ARRAY:
      raise ValueError('lists of lists are not supported.')
    if kind != _STRING:
      raise ValueError(f'it is corrupt: there is no type {kind} of values.')
    self.need(8 * count)  # Each has a length, at least.
    return [self.text() for _ in range(count)]


def _header(path, cursor, sizes):
  """Reads a header to its end."""
  if cursor.bytes(4) != b'GGUF':
    raise ValueError('it is no GGUF file.')
  (version,) = cursor.numbers('I')
  if version not in _VERSIONS:
    raise ValueError(
      f'version must be one of {_VERSIONS}, little-endian, got {version}.'
    )
  num_arrays, num_values = cursor.numbers('Q', 2)
  metadata = _named(cursor, num_values, cursor.value)
  entry = lambda: _entry(path, cursor, sizes)
  entries = _named(cursor, num_arrays, entry)
  alignment = metadata.get('general.alignment', 32)
  if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
    raise ValueError(f'alignment must be a power of two, got {alignment}.')
  return Header(metadata, _placed(cursor, entries, alignment))


def _named(cursor, count, read_value: Callable[[], Any]) -> dict[str, Any]:
  """So many pairs of a name and a value."""
  cursor.need(12 * count)  # The length of a name and a type, at least.
  found: dict[str, Any] = {}
  for _ in range(count):
    name = cursor.text()
    if name in found:
      raise ValueError(f'it is corrupt: {name!r} is there twice.')
    found[name] = read_value()
  return found


def _entry(path, cursor, sizes):
  """Shape, format and offset of an array."""
  (num_dimensions,) = cursor.numbers('I')
  if num_dimensions > _MAX_DIMENSIONS:
    raise ValueError(f'it is corrupt: an array has {num_dimensions} axes.')
  shape = tuple(cursor.numbers('Q', num_dimensions)[::-1])
  (kind,), (offset,) = cursor.numbers('I'), cursor.numbers('Q')
  if kind not in sizes:
    raise ValueError(
      f'format {kind} of arrays is not known to the package gguf, which may be '
      'older than the file.'
    )
  name, block, block_bytes = sizes[kind]
  if name not in (*_PLAIN, *_QUANTISED):
    raise ValueError(
      f'arrays must be of {", ".join((*_PLAIN, *_QUANTISED))}, got {name}.'
    )
  if not shape or 0 in shape or shape[-1] % block:
    raise ValueError(f'it is corrupt: no {name} array has the shape {shape}.')
  num_bytes = math.prod(shape) // block * block_bytes
  return Array(path, shape, name, offset, num_bytes)


def _placed(cursor, entries, alignment):
  """Arrays with their places in the file; one follows the other."""
  place = first = cursor.place + -cursor.place % alignment
  arrays = {}
  for name, entry in entries.items():
    if first + entry.start != place:
      raise ValueError(f'it is corrupt: {name} is not where it should be.')
    cursor.place = place
    cursor.need(entry.num_bytes)
    arrays[name] = entry._replace(start=place)
    place += entry.num_bytes + -entry.num_bytes % alignment
  return arrays


def _formats():
  """Name, values and bytes of a block of each format, by its number."""
  package = _package()
  return {
    int(kind): (kind.name, *size)
    for kind, size in package.GGML_QUANT_SIZES.items()
  }


def _package():
  """The package gguf, which is an extra."""
  try:
    import gguf
  except ImportError as error:
    raise ValueError(
      "GGUF files need the package gguf: pip install 'specjax[gguf]'."
    ) from error
  return gguf
