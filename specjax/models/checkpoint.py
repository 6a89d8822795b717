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
from specjax.models import adapters
from specjax.models import config as config_lib


def save(
  path: str | os.PathLike[str],
  config: config_lib.Config,
  params: base.Params,
  dtype: npt.DTypeLike = np.float16,
) -> None:
  """Writes parameters and their config.

  Args:
    path: the file, usually `*.safetensors`.
    config: the architecture, kept in the header.
    params: nested dict of arrays.
    dtype: stored type; float16 halves the file and keeps 3 decimal digits.

  Raises:
    ValueError: a parameter is not finite, or too large for `dtype`.
  """
  arrays = {}
  for name, value in flatten(params).items():
    arrays[name] = np.ascontiguousarray(np.asarray(value).astype(dtype))
    if not np.isfinite(arrays[name]).all():
      raise ValueError(
        f'{name} holds values that {np.dtype(dtype).name} cannot store.'
      )
  header = json.dumps(dataclasses.asdict(config))
  metadata = {'config': header, 'sha256': _digest(header, arrays)}
  part = f'{path}.part'
  safetensors_numpy.save_file(arrays, part, metadata=metadata)
  os.replace(part, path)


def load(
  path: str | os.PathLike[str],
) -> tuple[config_lib.Config, base.Params]:
  """Reads what `save` wrote, as float32.

  Raises:
    ValueError: the file is missing, truncated or corrupt; it is not one of
      `save`, but of HuggingFace, for example; or its arrays are not those of
      its config (all differences are listed).
  """
  if not os.path.isfile(path):
    raise ValueError(f'There is no checkpoint at {path}.')
  # Before the arrays are read: those of others may be large.
  with errors_name(path), _open(path) as file:
    metadata = file.metadata() or {}
  if not {'config', 'sha256'} <= set(metadata):
    raise ValueError(_foreign(path, metadata))
  with errors_name(path), _open(path) as file:
    arrays = {name: file.get_tensor(name) for name in file.keys()}
    config = config_lib.from_dict(json.loads(metadata['config']))
    if metadata['sha256'] != _digest(metadata['config'], arrays):
      raise ValueError('its checksum differs')
  abstract = adapters.abstract_params(config)
  wide = {name: jnp.asarray(x, jnp.float32) for name, x in arrays.items()}
  return config, unflatten(wide, abstract, str(path))


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
  signs = [f'{beside} has a model_type'] * _has_model_type(beside)
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


def _has_model_type(path):
  """Runs leave a config.json, too: it is not enough that there is one."""
  try:
    with open(path, encoding='utf-8') as file:
      return 'model_type' in json.load(file)
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
