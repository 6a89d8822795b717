"""Weights in one safetensors file, with the config in its header."""

from collections.abc import Iterator
from collections.abc import Mapping
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
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import fusion
from specjax.models import head_config

# Ends the name of the scales of a matrix that is stored as int8.
_SCALE = ':scale'


def save(
  path: str | os.PathLike[str],
  config: adapters.AnyConfig,
  params: base.Params,
  dtype: npt.DTypeLike = np.float16,
) -> None:
  """Writes parameters and their config.

  Args:
    path: the file, usually `*.safetensors`.
    config: the architecture, kept in the header.
    params: nested dict of arrays. Fused projections are stored
      separately.
    dtype: stored type; float16 halves the file and keeps 3 decimal digits. int8
      keeps of matrices one byte a number, between -127 and 127 times a scale of
      each column, and float16 of all else. Integers stay what they are.

  Raises:
    ValueError: a parameter is not finite, or too large for `dtype`.
  """
  arrays: dict[str, np.ndarray] = {}
  for name, value in flatten(fusion.separate(config, params)).items():
    arrays |= _stored(name, np.asarray(value), np.dtype(dtype))
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
) -> tuple[adapters.AnyConfig, base.Params]:
  """Reads what `save` wrote.

  Args:
    path: the file.
    shared: parameters of another model, by their names at the top; of those
      that the file lacks, such as the embedding of a drafter that has its
      target's, they are taken, without a copy. An output head of some tokens is
      made of the other's.
    dtype: of the parameters that are read; integers stay what they are.

  Raises:
    ValueError: the file is missing, truncated or corrupt; it is not one of
      `save`, but of HuggingFace, for example; or its arrays are not those of
      its config (all differences are listed).
  """
  path = os.path.expanduser(path)
  if not os.path.isfile(path):
    raise ValueError(f'There is no checkpoint at {path}.')
  # Before the arrays are read: those of others may be large.
  with errors_name(path), _open(path) as file:
    metadata = file.metadata() or {}
  if not {'config', 'sha256'} <= set(metadata):
    raise ValueError(_foreign(path, metadata))
  with errors_name(path), _open(path) as file:
    arrays = {name: file.get_tensor(name) for name in file.keys()}
    config = config_from_dict(json.loads(metadata['config']))
    if metadata['sha256'] != _digest(metadata['config'], arrays):
      raise ValueError('its checksum differs')
  abstract = adapters.abstract_params(config)
  own = {name.split('/')[0] for name in arrays}
  lent = {
    name: value
    for name, value in (shared or {}).items()
    if name in abstract and name not in own
  }
  arrays = _restored(arrays, dtype) | flatten(lent)
  if shared and 'head_rows' in own and 'head' not in own:
    part = cutting.head_of(shared, np.asarray(arrays['head_rows']))
    arrays |= flatten({'head': part})
  return config, unflatten(arrays, abstract, str(path))


def flatten(params: base.Params) -> dict[str, jax.Array]:
  """Returns `{'layers/0/query/kernel': array, ...}`."""
  leaves, _ = jax.tree_util.tree_flatten_with_path(params)
  return {_name(path): leaf for path, leaf in leaves}


def unflatten(
  arrays: Mapping[str, Any], abstract: base.Params, source: str
) -> base.Params:
  """Puts named arrays into the structure of `abstract`.

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
  found: Mapping[str, Any], wanted: Mapping[str, Any]
) -> list[str]:
  """Returns how named arrays, or their shapes, differ from others."""
  return [
    *(f'{name} is missing' for name in wanted if name not in found),
    *(f'{name} is unknown' for name in found if name not in wanted),
    *(
      f'{name} has shape {found[name].shape}, not {leaf.shape}'
      for name, leaf in wanted.items()
      if name in found and found[name].shape != leaf.shape
    ),
  ]


def config_from_dict(fields: dict[str, Any]) -> adapters.AnyConfig:
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


def _stored(name, array, dtype):
  """The arrays that a parameter is kept as: itself, or with scales."""
  if not np.issubdtype(array.dtype, np.integer) and dtype == np.int8:
    if array.ndim > 1:
      return _quantized(name, array)
    dtype = np.dtype(np.float16)
  if np.issubdtype(array.dtype, np.integer):
    dtype = array.dtype
  stored = np.ascontiguousarray(array.astype(dtype))
  if not np.isfinite(stored).all():
    raise ValueError(f'{name} holds values that {dtype.name} cannot store.')
  return {name: stored}


def _quantized(name, array):
  """A matrix as int8, and a scale for each of its columns."""
  if not np.isfinite(array).all():
    raise ValueError(f'{name} holds values that int8 cannot store.')
  scale = np.abs(array).max(axis=0).astype(np.float32) / 127
  numbers = np.rint(array / np.where(scale > 0, scale, 1))
  return {name: numbers.astype(np.int8), f'{name}{_SCALE}': scale}


def _restored(arrays, dtype):
  """Undoes `_stored`, but for what was rounded."""
  restored = {}
  for name, array in arrays.items():
    if name.endswith(_SCALE):
      continue
    scale = arrays.get(name + _SCALE)
    if scale is not None:
      array = array * scale
    whole = np.issubdtype(array.dtype, np.integer)
    restored[name] = jnp.asarray(array, array.dtype if whole else dtype)
  return restored


def _open(path):
  return safetensors.safe_open(path, framework='numpy')


@contextlib.contextmanager
def errors_name(path: str | os.PathLike[str]) -> Iterator[None]:
  """Makes a `ValueError` with the file's name of whatever it raises."""
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


def _foreign(path, metadata):
  """Describes a whole file that `save` has not written."""
  beside = os.path.join(os.path.dirname(path), 'config.json')
  signs = [f'{beside} has a model_type'] * has_field(beside, 'model_type')
  signs += ["its format is 'pt'"] * (metadata.get('format') == 'pt')
  said = (
    f'It looks like a file of HuggingFace ({" and ".join(signs)}): '
    'specjax.models.load reads its folder, and checkpoint.save can store its '
    'parameters. '
  )
  return (
    f'{path} is a safetensors file, but no checkpoint of specjax: its '
    f'header lacks config and checksum. {said if signs else ""}'
  ).strip()


def has_field(path: str, *names: str) -> bool:
  """Returns whether a `config.json` has one of the fields.

  Runs leave a file of that name, too; HuggingFace's has a `model_type`.
  """
  try:
    with open(path, encoding='utf-8') as file:
      fields = json.load(file)
      return any(name in fields for name in names)
  except (OSError, TypeError, ValueError):
    return False


def _digest(header, arrays):
  digest = hashlib.sha256(header.encode())
  for name in sorted(arrays):
    digest.update(name.encode())
    digest.update(arrays[name].tobytes())
  return digest.hexdigest()


def _name(path):
  return '/'.join(str(entry.key) for entry in path)
