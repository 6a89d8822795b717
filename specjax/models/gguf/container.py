"""Reads GGUF files: metadata, and plain or quantized arrays."""

import math
import os
import re
from typing import Any
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from numpy import typing as npt

from specjax import optional

# Name of the first file of a split model.
_SPLIT = re.compile(r'(?P<stem>.*)-00001-of-(?P<count>\d{5})\.gguf', re.S)
# Formats whose arrays keep their type; all others become float32.
_PLAIN = {'F32': np.float32, 'F16': np.float16, 'BF16': jnp.bfloat16}
_QUANTIZED = ('Q4_0', 'Q4_1', 'Q5_0', 'Q5_1', 'Q8_0', 'Q4_K', 'Q5_K', 'Q6_K')


class Array(NamedTuple):
  """The location and the format of an array in a file.

  Attributes:
    path: the file.
    shape: shape in NumPy's order, the last axis being contiguous.
    kind: name of the format, such as 'Q4_1'.
    start: offset of the first byte in the file.
    num_bytes: size in the file.
  """

  path: str
  shape: tuple[int, ...]
  kind: str
  start: int
  num_bytes: int

  @property
  def dtype(self) -> np.dtype[Any]:
    """The type of the array that `read` returns."""
    return np.dtype(_PLAIN.get(self.kind, np.float32))


class Header(NamedTuple):
  """All of a file except the contents of its arrays.

  Attributes:
    metadata: numbers, strings, and lists of them, by name.
    arrays: locations of arrays, by name.
  """

  metadata: dict[str, Any]
  arrays: dict[str, Array]


def read_header(path: str | os.PathLike[str]) -> Header:
  """Reads the header of a file, or of all files of a split model.

  Args:
    path: the file, or the first of several.

  Raises:
    ValueError: the file is truncated, corrupt or not a GGUF file; the model is
      split, and the file is not the first, or others are missing; an array has
      an unsupported format; or the package `gguf` is not installed.
  """
  path = os.fspath(path)
  header = _read_one(path)
  arrays = dict(header.arrays)
  for other in _others(path, header.metadata):
    other_arrays = _read_one(other).arrays
    duplicates = arrays.keys() & other_arrays.keys()
    if duplicates:
      raise ValueError(f'{other} repeats {", ".join(sorted(duplicates))}.')
    arrays |= other_arrays
  return header._replace(arrays=arrays)


def _read_one(path: str) -> Header:
  """Reads the header of one file."""
  reader_type = _reader_type()
  try:
    reader = reader_type(path)
    metadata = {
      name: field.contents()
      for name, field in reader.fields.items()
      if not name.startswith('GGUF.')  # Versions and counts of the format.
    }
  except OSError as error:
    raise ValueError(f'Cannot read {path}: {error.strerror}.') from error
  except Exception as error:  # The package raises many kinds.
    raise ValueError(
      f'Cannot read {path}: it is truncated, corrupt, not a GGUF file, or '
      f'newer than the package gguf ({error}).'
    ) from error
  try:
    for name, field in reader.fields.items():
      if any(kind.name == 'ARRAY' for kind in field.types[1:]):
        raise ValueError(f'{name} is a list of lists, which is not supported.')
    return Header(metadata, _arrays(path, reader))
  except ValueError as error:
    raise ValueError(f'Cannot read {path}: {error}') from error


def _others(path: str, metadata: dict[str, Any]) -> list[str]:
  """Returns the other files of a split model, whose names count from 1."""
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
  missing = [other for other in paths if not os.path.isfile(other)]
  if missing:
    raise ValueError(
      f'{path} is one of the {count} files of a split GGUF, but there is no '
      f'{", ".join(missing)}.'
    )
  return paths[1:]


def read(array: Array) -> np.ndarray:
  """Reads an array; quantized ones become float32."""
  data = np.fromfile(
    array.path, np.uint8, count=array.num_bytes, offset=array.start
  )
  if data.size != array.num_bytes:
    raise ValueError(f'{array.path} has been truncated.')
  if array.kind in _PLAIN:
    return data.view(array.dtype).reshape(array.shape)
  package = _package()
  rows = data.reshape(math.prod(array.shape[:-1]), -1)
  kind = package.GGMLQuantizationType[array.kind]
  return package.quants.dequantize(rows, kind).reshape(array.shape)


def _reader_type() -> type[Any]:
  """Returns a header reader of the package `gguf` that checks bounds."""
  _package()
  import gguf

  class Reader(gguf.GGUFReader):
    """Raises `ValueError` if a header refers to bytes beyond the file."""

    def _get(
      self,
      offset: int,
      dtype: npt.DTypeLike,
      count: int = 1,
      override_order: Any = None,
    ) -> np.ndarray:
      end = int(offset) + int(count) * np.dtype(dtype).itemsize
      if end > self.data.size:
        raise ValueError(f'it ends at byte {self.data.size}, before {end}')
      if self.byte_order != 'I':
        raise ValueError('it is not little-endian')
      # Slices of a memory map take several times as long as those of an array.
      return np.asarray(self.data)[int(offset) : end].view(dtype)

  return Reader


def _arrays(path: str, reader: Any) -> dict[str, Array]:
  """Returns the arrays of a file, which must be contiguous."""
  arrays = {}
  start = int(reader.data_offset)
  for tensor in reader.tensors:
    name, kind = tensor.name, tensor.tensor_type.name
    if kind not in (*_PLAIN, *_QUANTIZED):
      raise ValueError(
        f'arrays must be of {", ".join((*_PLAIN, *_QUANTIZED))}, got {kind}.'
      )
    shape = tuple(tensor.shape.tolist()[::-1])
    if not shape or 0 in shape:
      raise ValueError(f'it is corrupt: {name} has the shape {shape}.')
    if tensor.data_offset != start:
      raise ValueError(f'it is corrupt: {name} has a wrong offset.')
    arrays[name] = Array(path, shape, kind, start, tensor.n_bytes)
    start += tensor.n_bytes + -tensor.n_bytes % int(reader.alignment)
  return arrays


def _package() -> Any:
  """Imports the optional package `gguf`."""
  return optional.load('gguf', 'gguf', 'A GGUF file')
