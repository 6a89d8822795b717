"""Stores a teacher's outputs for all training rows on disk.

Most of the time of distillation is the teacher's, since a student is much
smaller. Its logits would take `V` numbers per token. Instead, the `F` inputs of
its output head are stored, from which the head computes the logits of any
tokens again.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import hashlib
import json
import math
import os
import shutil
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from specjax import base
from specjax import json_files
from specjax import meshes
from specjax import sampling
from specjax.data import packing
from specjax.models import adapters

# Bytes of a block, the unit of `st_blocks`.
_BLOCK = 512
# Entries along each axis of a parameter by which its teacher is recognized.
_CORNER = 8


def teach(
  model: base.LanguageModel,
  params: base.Params,
  rows: packing.Batch,
  folder: str,
  *,
  taps: Sequence[int] = (),
  batch_size: int = 4,
  seconds: float = math.inf,
) -> packing.TaughtBatch | None:
  """Computes the features of all rows, or resumes an interrupted call.

  Args:
    model: the teacher.
    params: its parameters.
    rows: all training rows.
    folder: folder of the files; a token takes `2 * F + 8` bytes, and `2 * F`
      more for each tap.
    taps: other features of the teacher that are stored, as indices of
      `base.ModelOutput.features`.
    batch_size: rows per call of the teacher.
    seconds: time after which no further batch is computed; the same call
      resumes.

  Returns:
    The rows, with their features mapped from disk, or None if the time was too
    short for all of them.

  Raises:
    ValueError: the folder belongs to other rows or to another teacher, the disk
      is too small, or features are not finite in float16.
  """
  start_time = time.monotonic()
  os.makedirs(folder, exist_ok=True)
  shape = *rows.tokens.shape, model.feature_sizes[-1]
  identity = {
    'rows': _digest(rows),
    'teacher': _digest(map(_corner, jax.tree.leaves(params))),
    'shape': list(shape),
    'taps': list(taps),
  }
  progress = _Progress(folder, identity)
  array_specs = {
    'features': (np.float16, shape),
    'normalizers': (np.float32, shape[:2]),
    'best': (np.int32, shape[:2]),
    **{f'tap_{tap}': (np.float16, shape) for tap in taps},
  }
  array_specs = {
    os.path.join(folder, f'{name}.npy'): spec
    for name, spec in array_specs.items()
  }
  _check_disk(folder, array_specs)
  arrays = [
    _open_array(path, *spec, progress.num_done)
    for path, spec in array_specs.items()
  ]
  read = functools.partial(_read, model, tuple(taps))
  with tqdm.tqdm(
    total=len(rows.tokens),
    initial=progress.num_done,
    unit='row',
    disable=None,  # Where the output is no terminal.
  ) as bar:
    for first in range(progress.num_done, len(rows.tokens), batch_size):
      if time.monotonic() - start_time >= seconds:
        return None
      indices = slice(first, first + batch_size)
      batch = packing.take(rows, indices)
      for array, value in zip(arrays, read(params, batch), strict=True):
        if not np.isfinite(value).all():
          raise ValueError(
            'Outputs of the teacher must be finite and at most 65,504, the '
            'largest number of float16, in which they are stored.'
          )
        array[indices] = value
        array.flush()
      progress.write(first + len(batch.tokens))
      bar.update(len(batch.tokens))
  features, normalizers, best, *tapped = arrays
  return packing.TaughtBatch(*rows, features, normalizers, best, tuple(tapped))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _read(
  model: base.LanguageModel,
  taps: tuple[int, ...],
  params: base.Params,
  batch: Any,
) -> tuple[jax.Array, ...]:
  """Returns the fields that a `packing.TaughtBatch` has and a `Batch` lacks."""
  output = adapters.read_packed(model, params, batch)
  normalizers = jax.nn.logsumexp(output.logits, axis=-1)
  features = [output.features[tap].astype(jnp.float16) for tap in (-1, *taps)]
  best = sampling.most_likely(output.logits)
  return features[0], normalizers, best, *features[1:]


class _Progress:
  """The number of finished rows, stored with the identity of all rows.

  Attributes:
    num_done: number of finished rows.
  """

  def __init__(self, folder: str, identity: dict[str, Any]):
    """Reads the progress.

    Raises:
      ValueError: the folder belongs to other rows or to another teacher.
    """
    self._path = os.path.join(folder, 'progress.json')
    self._identity = identity
    fields = json_files.read(folder, 'progress.json')
    self.num_done = fields.pop('num_done', 0)
    if fields not in ({}, identity):
      raise ValueError(
        f'{folder} holds outputs for other rows, of another teacher or from '
        'another kind of device. Use another folder, or delete this one.'
      )

  def write(self, num_done: int) -> None:
    """Stores the number of finished rows."""
    self.num_done = num_done
    with open(f'{self._path}.part', 'w', encoding='utf-8') as file:
      json.dump({**self._identity, 'num_done': num_done}, file)
    os.replace(f'{self._path}.part', self._path)


def _check_disk(
  folder: str, array_specs: Mapping[str, tuple[Any, Any]]
) -> None:
  """Raises `ValueError` unless the disk has room for the arrays.

  Files are sparse and grow as they are written. After an interruption, only the
  missing blocks are needed.
  """
  needed = 0
  for path, (dtype, shape) in array_specs.items():
    needed += math.prod(shape) * dtype().itemsize
    if os.path.exists(path):
      needed -= os.stat(path).st_blocks * _BLOCK
  free = shutil.disk_usage(folder).free
  if needed > free:
    raise ValueError(
      f'Outputs of the teacher need {needed / 1e9:.3f} GB, but the disk of '
      f'{folder} has {free / 1e9:.3f} GB left.'
    )


def _open_array(
  path: str, dtype: Any, shape: tuple[int, ...], num_done: int
) -> np.memmap[Any, Any]:
  """Opens an array on disk; creates it if no row is finished."""
  mode = 'r+' if num_done else 'w+'
  return np.lib.format.open_memmap(path, mode, dtype, shape)


def _corner(leaf: jax.Array) -> np.ndarray:
  """Returns a few numbers of a parameter, which training changes."""
  corner = leaf[(slice(_CORNER),) * leaf.ndim]
  return np.asarray(meshes.fetch(corner), np.float32)


def _digest(arrays: Iterable[np.ndarray]) -> str:
  """Returns the SHA-256 of arrays."""
  digest = hashlib.sha256()
  for array in arrays:
    digest.update(np.ascontiguousarray(array).tobytes())
  return digest.hexdigest()
