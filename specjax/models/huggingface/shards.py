"""Weights in one or several safetensors files of a folder."""

import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy

from specjax import registry
from specjax.models import checkpoint
from specjax.models.huggingface import weights

_ONE = 'model.safetensors'
_INDEX = 'model.safetensors.index.json'
_PICKLED = ('.bin', '.pt', '.pth', '.ckpt', '.pkl')
# Only the first four are types of parameters.
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
  """Finds the arrays of a folder; only their names and shapes are read.

  Args:
    folder: with `model.safetensors`, or with several files and their index.
      The index only says which files there are, as in transformers: which
      arrays they hold they say themselves.
    *names: of other files, one of which may stand for `model.safetensors`.

  Raises:
    ValueError: there are no such files, or some are missing, truncated or
      corrupt, or have arrays of unknown types. Pickled weights are never read.
  """
  found_one = [
    name
    for name in (_ONE, *names)
    if os.path.isfile(os.path.join(folder, name))
  ]
  files = found_one[:1] or _indexed_files(folder)
  missing = [f for f in files if not os.path.isfile(os.path.join(folder, f))]
  if missing:
    raise ValueError(f'{folder} lacks {", ".join(missing)} of its {_INDEX}.')
  shapes: dict[str, jax.ShapeDtypeStruct] = {}
  places: dict[str, str] = {}
  for name in files:
    found = _shapes(os.path.join(folder, name))
    shapes |= found
    places |= dict.fromkeys(found, name)
  return weights.Tensors(
    shapes, lambda name: _read(os.path.join(folder, places[name]), name)
  )


def save(
  folder: str, tensors: weights.Tensors, shard_bytes: int = _SHARD_BYTES
) -> None:
  """Writes arrays to a folder, and an index if they fill several files.

  Args:
    folder: without weights.
    tensors: what to write.
    shard_bytes: size above which a file is not filled further; at most this
      many bytes, or one array, are in memory at a time.
  """
  shards: list[dict[str, int]] = [{}]
  for name, shape in tensors.shapes.items():
    size = shape.size * shape.dtype.itemsize
    if shards[-1] and sum(shards[-1].values()) + size > shard_bytes:
      shards.append({})
    shards[-1][name] = size
  places: dict[str, str] = {}
  for i, names in enumerate(shards, 1):
    part = _ONE
    if len(shards) > 1:
      part = f'model-{i:05d}-of-{len(shards):05d}.safetensors'
    places |= dict.fromkeys(names, part)
    safetensors_numpy.save_file(
      {name: tensors.read(name) for name in names},
      os.path.join(folder, part),
      metadata={'format': 'pt'},
    )
  if len(shards) > 1:
    total = sum(size for shard in shards for size in shard.values())
    index = {'metadata': {'total_size': total}, 'weight_map': places}
    with open(os.path.join(folder, _INDEX), 'w', encoding='utf-8') as file:
      json.dump(index, file, indent=2)


def _indexed_files(folder):
  """The files that an index names."""
  path = os.path.join(folder, _INDEX)
  if not os.path.isfile(path):
    raise ValueError(_without_weights(folder))
  with checkpoint.errors_name(path), open(path, encoding='utf-8') as file:
    files = set(dict(json.load(file)['weight_map']).values())
    for name in files:
      # What was downloaded must not name files elsewhere.
      if os.path.basename(name) != name or not name:
        raise ValueError(f'{name!r} is no name of a file')
  return sorted(files)


def _without_weights(folder):
  """What is wrong with a folder that has no safetensors."""
  pickled = [n for n in sorted(os.listdir(folder)) if n.endswith(_PICKLED)]
  problem = f'{folder} has neither {_ONE} nor {_INDEX}'
  if not pickled:
    return f'{problem}.'
  return (
    f'{problem}, but only {", ".join(pickled)}: pickled weights can run any '
    'code and are never opened; save_pretrained of a model in transformers '
    'writes safetensors.'
  )


def _shapes(path):
  with checkpoint.errors_name(path), _open(path) as file:
    slices = {name: file.get_slice(name) for name in file.keys()}
    found = {
      name: (tuple(each.get_shape()), each.get_dtype())
      for name, each in slices.items()
    }
  for name, (_, kind) in found.items():
    registry.lookup(_TYPES, f'type of {name} in {path}:', kind)
  return {
    name: jax.ShapeDtypeStruct(shape, _TYPES[kind])
    for name, (shape, kind) in found.items()
  }


def _read(path, name):
  # Opened again each time: pages of a mapped file count as memory in use.
  with checkpoint.errors_name(path), _open(path) as file:
    return file.get_tensor(name)


def _open(path):
  return safetensors.safe_open(path, framework='numpy')
