"""Reads and writes the safetensors files of a HuggingFace folder."""

import json
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from specjax import registry
from specjax.models import checkpoint
from specjax.models.huggingface import weights

_WEIGHTS = 'model.safetensors'
_INDEX = 'model.safetensors.index.json'
_PICKLED = ('.bin', '.pt', '.pth', '.ckpt', '.pkl')
# Parameters may have only the first four types.
_TYPES = {
  'F16': np.float16,
  'BF16': jnp.bfloat16,
  'F32': np.float32,
  'F64': np.float64,
  'C64': np.complex64,
  'F8_E4M3': jnp.float8_e4m3fn,
  'F8_E4M3FNUZ': jnp.float8_e4m3fnuz,
  'F8_E5M2': jnp.float8_e5m2,
  'F8_E5M2FNUZ': jnp.float8_e5m2fnuz,
  'F8_E8M0': jnp.float8_e8m0fnu,
  'F4': jnp.float4_e2m1fn,
  'BOOL': np.bool_,
  'U8': np.uint8,
  'U16': np.uint16,
  'U32': np.uint32,
  'U64': np.uint64,
  'I8': np.int8,
  'I16': np.int16,
  'I32': np.int32,
  'I64': np.int64,
}
_SHARD_BYTES = 2 * 10**9


def load(folder: str, *names: str) -> weights.Tensors:
  """Returns the arrays of a folder; reads only their names and shapes.

  Args:
    folder: a folder with `model.safetensors`, or with several files and their
      index. As in transformers, only the names of files are read from the
      index.
    *names: alternative names of `model.safetensors`.

  Raises:
    ValueError: there are no such files, or some are missing, truncated or
      corrupt, or have arrays of unknown types. Pickled weights are never read.
  """
  single_files = [
    name
    for name in (_WEIGHTS, *names)
    if os.path.isfile(os.path.join(folder, name))
  ]
  files = single_files[:1] or _indexed_files(folder)
  missing = [f for f in files if not os.path.isfile(os.path.join(folder, f))]
  if missing:
    raise ValueError(f'{folder} lacks {", ".join(missing)} of its {_INDEX}.')
  shapes: dict[str, jax.ShapeDtypeStruct] = {}
  file_of: dict[str, str] = {}
  for file in files:
    shapes_in_file = _shapes(os.path.join(folder, file))
    shapes |= shapes_in_file
    file_of |= dict.fromkeys(shapes_in_file, file)
  return weights.Tensors(
    shapes, lambda name: _read(os.path.join(folder, file_of[name]), name)
  )


def save(
  folder: str, tensors: weights.Tensors, shard_bytes: int = _SHARD_BYTES
) -> None:
  """Writes arrays to a folder, and an index if they fill several files.

  Args:
    folder: a folder without weights.
    tensors: the arrays.
    shard_bytes: maximum size of a file, unless one array exceeds it. Memory
      holds the arrays of one file at a time.
  """
  shards: list[dict[str, int]] = [{}]
  for name, shape in tensors.shapes.items():
    size = shape.size * shape.dtype.itemsize
    if shards[-1] and sum(shards[-1].values()) + size > shard_bytes:
      shards.append({})
    shards[-1][name] = size
  file_of: dict[str, str] = {}
  for i, names in enumerate(shards, 1):
    file_name = _WEIGHTS
    if len(shards) > 1:
      file_name = f'model-{i:05d}-of-{len(shards):05d}.safetensors'
    file_of |= dict.fromkeys(names, file_name)
    safetensors_numpy.save_file(
      {name: tensors.read(name) for name in names},
      os.path.join(folder, file_name),
      metadata={'format': 'pt'},
    )
  if len(shards) > 1:
    total = sum(size for shard in shards for size in shard.values())
    index = {'metadata': {'total_size': total}, 'weight_map': file_of}
    with open(os.path.join(folder, _INDEX), 'w', encoding='utf-8') as file:
      json.dump(index, file, indent=2)


def _indexed_files(folder: str) -> list[str]:
  """Returns the names of the files in a folder's index."""
  path = os.path.join(folder, _INDEX)
  if not os.path.isfile(path):
    raise ValueError(_missing_weights(folder))
  with checkpoint.error_context(path), open(path, encoding='utf-8') as file:
    files = set(dict(json.load(file)['weight_map']).values())
    for name in files:
      # A downloaded index must not refer to files elsewhere.
      if os.path.basename(name) != name or not name:
        raise ValueError(f'{name!r} is not the name of a file')
  return sorted(files)


def _missing_weights(folder: str) -> str:
  """Returns the error for a folder without safetensors files."""
  pickled = [n for n in sorted(os.listdir(folder)) if n.endswith(_PICKLED)]
  problem = f'{folder} has neither {_WEIGHTS} nor {_INDEX}'
  if not pickled:
    return f'{problem}.'
  return (
    f'{problem}, but only {", ".join(pickled)}: pickled weights can run any '
    'code and are never opened; save_pretrained of a model in transformers '
    'writes safetensors.'
  )


def _shapes(path: str) -> dict[str, jax.ShapeDtypeStruct]:
  """Returns shapes and types of the arrays in a file, by name."""
  with checkpoint.error_context(path), _open(path) as file:
    slices = {name: file.get_slice(name) for name in file.keys()}
    entries = {
      name: (tuple(entry.get_shape()), entry.get_dtype())
      for name, entry in slices.items()
    }
  for name, (_, kind) in entries.items():
    registry.lookup(_TYPES, f'type of {name} in {path}:', kind)
  return {
    name: jax.ShapeDtypeStruct(shape, _TYPES[kind])
    for name, (shape, kind) in entries.items()
  }


def _read(path: str, name: str) -> np.ndarray:
  """Returns an array of a file."""
  # The file is opened for each array: mapped pages count as memory in use.
  with checkpoint.error_context(path), _open(path) as file:
    return file.get_tensor(name)


def _open(path: str) -> Any:
  """Opens a safetensors file."""
  return safetensors.safe_open(path, framework='numpy')
