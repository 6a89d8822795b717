"""Checkpoints of specjax: a safetensors file with the config in its header."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import hashlib
import json
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy import typing as npt
import safetensors
from safetensors import numpy as safetensors_numpy

from specjax import base
from specjax.contrib import encoder_decoder_config
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from specjax.models import fusion
from specjax.models import head_config

# Suffix of the name of the scales of a matrix that is stored as int8.
_SCALE = ':scale'


def save(
  path: str | os.PathLike[str],
  config: flax_modules.AnyConfig,
  params: base.Params,
  dtype: npt.DTypeLike = np.float16,
) -> None:
  """Writes parameters and their config.

  Args:
    path: the file, usually `*.safetensors`.
    config: the architecture, stored in the header.
    params: nested dict of arrays. Fused projections are stored separately.
    dtype: stored type of floating-point arrays. float16 halves the file and
      keeps 3 decimal digits. int8 stores matrices with one byte per number,
      between -127 and 127 times a scale for each column, and other arrays as
      float16. Integers keep their type.

  Raises:
    ValueError: a parameter is not finite, or too large for `dtype`.
  """
  arrays: dict[str, np.ndarray] = {}
  for name, value in flatten(fusion.separate(config, params)).items():
    arrays |= _store(name, np.asarray(value), np.dtype(dtype))
  header = json.dumps(dataclasses.asdict(config))
  metadata = {'config': header, 'sha256': _digest(header, arrays)}
  path = os.path.expanduser(path)
  part = f'{path}.part'
  safetensors_numpy.save_file(arrays, part, metadata=metadata)
  os.replace(part, path)


def load(
  path: str | os.PathLike[str],
  shared: base.Params | None = None,
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> tuple[flax_modules.AnyConfig, base.Params]:
  """Reads a file that `save` wrote.

  Args:
    path: the file.
    shared: parameters of another model. They replace top-level entries that the
      file lacks, such as the embedding of a drafter that shares its target's,
      without a copy. A reduced output head is copied from the rows of the
      other's.
    dtype: type of the parameters from the file; integers keep their type.

  Raises:
    ValueError: the file is missing, truncated or corrupt; `save` did not write
      it, but HuggingFace, for example; or its arrays differ from those of its
      config (all differences are listed).
  """
  path = os.path.expanduser(path)
  if not os.path.isfile(path):
    raise ValueError(f'There is no checkpoint at {path}.')
  # The header is checked before the arrays are read, which may be large.
  with error_context(path), _open(path) as file:
    metadata = file.metadata() or {}
  if not {'config', 'sha256'} <= set(metadata):
    raise ValueError(_unknown_format(path, metadata))
  with error_context(path), _open(path) as file:
    arrays = {name: file.get_tensor(name) for name in file.keys()}
    config = config_from_dict(json.loads(metadata['config']))
    if metadata['sha256'] != _digest(metadata['config'], arrays):
      raise ValueError('its checksum differs')
  abstract = flax_modules.abstract_params(config)
  stored = {name.split('/')[0] for name in arrays}
  used = {
    name: value
    for name, value in (shared or {}).items()
    if name in abstract and name not in stored
  }
  arrays = _restore(arrays, dtype) | flatten(used)
  if shared and 'head_rows' in stored and 'head' not in stored:
    head = cutting.output_head(shared, np.asarray(arrays['head_rows']))
    arrays |= flatten({'head': head})
  return config, unflatten(arrays, abstract, str(path))


def flatten(params: base.Params) -> dict[str, jax.Array]:
  """Returns parameters by path, `{'layers/0/query/kernel': array, ...}`."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(params)
  return {_name(path): leaf for path, leaf in leaves}


def unflatten(
  arrays: Mapping[str, Any], abstract: base.Params, source: str
) -> base.Params:
  """Returns named arrays in the structure of `abstract`; inverts `flatten`.

  Args:
    arrays: arrays by path.
    abstract: parameters with the expected names and shapes.
    source: name of their source, for errors.

  Raises:
    ValueError: names or shapes differ; every difference is listed.
  """
  problems = differences(arrays, flatten(abstract))
  if problems:
    raise ValueError(f'{source} does not fit: {"; ".join(problems)}.')
  return jax.tree_util.tree_map_with_path(
    lambda path, _: arrays[_name(path)], abstract
  )


def differences(
  arrays: Mapping[str, Any], expected: Mapping[str, Any]
) -> list[str]:
  """Returns sentences on how names and shapes of arrays differ.

  Args:
    arrays: arrays, or anything with a `shape`, by name.
    expected: the arrays that there should be.
  """
  return [
    *(f'{name} is missing' for name in expected if name not in arrays),
    *(f'{name} is unknown' for name in arrays if name not in expected),
    *(
      f'{name} has shape {arrays[name].shape}, not {leaf.shape}'
      for name, leaf in expected.items()
      if name in arrays and arrays[name].shape != leaf.shape
    ),
  ]


def config_from_dict(fields: dict[str, Any]) -> flax_modules.AnyConfig:
  """Builds the config of a model or of a head from plain values.

  Args:
    fields: names and values. A head has a `kind`, and an encoder-decoder
      `encoder_layers`.

  Raises:
    ValueError: a field is unknown (the known ones are listed) or out of range.
  """
  if 'kind' in fields:
    return head_config.from_dict(fields)
  if 'encoder_layers' in fields:
    return encoder_decoder_config.from_dict(fields)
  return config_lib.from_dict(fields)


def _store(
  name: str, array: np.ndarray, dtype: np.dtype[Any]
) -> dict[str, np.ndarray]:
  """Returns the arrays of the file for a parameter: one, or int8 and scales."""
  if not np.issubdtype(array.dtype, np.integer) and dtype == np.int8:
    if array.ndim > 1:
      return _quantize(name, array)
    dtype = np.dtype(np.float16)
  if np.issubdtype(array.dtype, np.integer):
    dtype = array.dtype
  stored = np.ascontiguousarray(array.astype(dtype))
  if not np.isfinite(stored).all():
    raise ValueError(f'{name} holds values that {dtype.name} cannot store.')
  return {name: stored}


def _quantize(name: str, array: np.ndarray) -> dict[str, np.ndarray]:
  """Returns a matrix as int8, and a scale for each of its columns."""
  if not np.isfinite(array).all():
    raise ValueError(f'{name} holds values that int8 cannot store.')
  scale = np.abs(array).max(axis=0).astype(np.float32) / 127
  numbers = np.rint(array / np.where(scale > 0, scale, 1))
  return {name: numbers.astype(np.int8), f'{name}{_SCALE}': scale}


def _restore(
  arrays: Mapping[str, np.ndarray], dtype: jax.typing.DTypeLike
) -> dict[str, jax.Array]:
  """Returns the parameters of a file's arrays; inverts `_store`."""
  restored = {}
  for name, array in arrays.items():
    if name.endswith(_SCALE):
      continue
    scale = arrays.get(name + _SCALE)
    if scale is not None:
      array = array * scale
    is_integer = np.issubdtype(array.dtype, np.integer)
    restored[name] = jnp.asarray(array, array.dtype if is_integer else dtype)
  return restored


def _open(path: str | os.PathLike[str]) -> Any:
  """Opens a safetensors file."""
  return safetensors.safe_open(path, framework='numpy')


@contextlib.contextmanager
def error_context(path: str | os.PathLike[str]) -> Iterator[None]:
  """Turns errors of reading a file into a `ValueError` with its path."""
  try:
    yield
  except (
    safetensors.SafetensorError,
    OSError,
    KeyError,
    TypeError,
    ValueError,
  ) as error:
    raise ValueError(
      f'The checkpoint at {path} is truncated or corrupt: {error!r}.'
    ) from error


def _unknown_format(path: str, metadata: Mapping[str, str]) -> str:
  """Returns the error for a file that `save` has not written."""
  config_path = os.path.join(os.path.dirname(path), 'config.json')
  evidence = []
  if has_field(config_path, 'model_type'):
    evidence.append(f'{config_path} has a model_type')
  if metadata.get('format') == 'pt':
    evidence.append("its format is 'pt'")
  error = (
    f'{path} is a safetensors file, but not a checkpoint of specjax: its '
    'header lacks config and checksum.'
  )
  if not evidence:
    return error
  return (
    f'{error} It looks like a HuggingFace file ({" and ".join(evidence)}): '
    'specjax.models.load reads its folder, and checkpoint.save can store its '
    'parameters.'
  )


def has_field(path: str, *names: str) -> bool:
  """Returns whether a JSON file exists and has one of the fields.

  Experiments also write a `config.json`; HuggingFace's has a `model_type`.

  Args:
    path: the file.
    *names: names of fields.
  """
  try:
    with open(path, encoding='utf-8') as file:
      fields = json.load(file)
      return any(name in fields for name in names)
  except (OSError, TypeError, ValueError):
    return False


def _digest(header: str, arrays: Mapping[str, np.ndarray]) -> str:
  """Returns the SHA-256 of a file's header and arrays."""
  digest = hashlib.sha256(header.encode())
  for name in sorted(arrays):
    digest.update(name.encode())
    digest.update(arrays[name].tobytes())
  return digest.hexdigest()


def _name(path: Sequence[Any]) -> str:
  """Returns the name of a leaf, given its path in a tree."""
  return '/'.join(str(entry.key) for entry in path)
