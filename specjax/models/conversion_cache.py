"""Converted parameters on disk, for the next time that they are wanted."""

from collections.abc import Callable
from collections.abc import Sequence
import json
import os
import shutil

import jax
import jax.numpy as jnp
from orbax import checkpoint as ocp

from specjax import base
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib

_SOURCE, _PARAMS = 'converted_from.json', 'converted_params'


def read_or_make(
  folder: str,
  config: config_lib.Config,
  files: Sequence[str],
  dtype: jax.typing.DTypeLike | None,
  make: Callable[[], base.Params],
  places: Callable[[str, Sequence[int]], jax.sharding.Sharding] | None = None,
) -> base.Params:
  """Returns what a folder keeps, or makes it anew and keeps that.

  Args:
    folder: of one model.
    config: its architecture.
    files: of what the parameters are made. If another name, size or time is
      that of the folder's, it is stale and made anew.
    dtype: of the parameters, or None.
    make: makes the parameters.
    places: where a parameter of a name and shape shall be.

  Raises:
    ValueError: the folder holds something else, or cannot be read.
  """
  folder = os.path.abspath(folder)
  source = _source(files, dtype)
  known = os.path.join(folder, _SOURCE)
  if os.path.isfile(known):
    with open(known, encoding='utf-8') as file:
      if file.read() == source:
        return _read(folder, config, places)
  elif os.path.isdir(folder) and os.listdir(folder):
    raise ValueError(f'cache must be a folder of its own, got {folder}.')
  os.makedirs(folder, exist_ok=True)
  _write(known, '')  # Stale, if this is interrupted.
  shutil.rmtree(os.path.join(folder, _PARAMS), ignore_errors=True)
  params = make()
  with ocp.StandardCheckpointer() as checkpointer:
    checkpointer.save(os.path.join(folder, _PARAMS), checkpoint.flatten(params))
  _write(known, source)
  return params


def _source(files, dtype):
  """What identifies the files, as a text."""
  stats = {os.path.abspath(path): os.stat(path) for path in files}
  return json.dumps(
    {
      'dtype': None if dtype is None else jnp.dtype(dtype).name,
      'files': [
        [path, stat.st_size, stat.st_mtime_ns] for path, stat in stats.items()
      ],
    },
    indent=2,
  )


def _read(folder, config, places):
  try:
    with ocp.StandardCheckpointer() as checkpointer:
      path = os.path.join(folder, _PARAMS)
      arrays = checkpointer.restore(path, _wanted(checkpointer, path, places))
    abstract = adapters.abstract_params(config)
    return checkpoint.unflatten(arrays, abstract, folder)
  except Exception as error:  # orbax and its storage raise many kinds.
    raise ValueError(
      f'The cache is truncated or corrupt; delete {folder} ({error!r}).'
    ) from error


def _wanted(checkpointer, path, places):
  """Where arrays shall be that are restored; None: as always."""
  if places is None:
    return None
  found = checkpointer.metadata(path).item_metadata.tree
  return {
    name: jax.ShapeDtypeStruct(
      each.shape, each.dtype, sharding=places(name, each.shape)
    )
    for name, each in found.items()
  }


def _write(path, text):
  with open(path, 'w', encoding='utf-8') as file:
    file.write(text)
