"""What a teacher computes of all training rows, once, on disk.

A student is far smaller than its teacher: most of the time of distillation is
the teacher's. Its logits would be `V` numbers a token; the features that its
head reads are `F`, and the head makes the logits of any tokens of them again.
"""

from collections.abc import Sequence
import functools
import hashlib
import json
import math
import os
import shutil
import time

import jax
import jax.numpy as jnp
import numpy as np
import tqdm

from specjax import base
from specjax import json_files
from specjax import sampling
from specjax.data import packing
from specjax.models import adapters

# Bytes of a block, in which the system counts what a file takes.
_BLOCK = 512


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
  """Computes the features of all rows, or goes on where it was interrupted.

  Args:
    model: the teacher.
    params: its parameters.
    rows: all training rows.
    folder: of the files; a token takes `2 * F + 8` bytes, and `2 * F` more for
      each tap.
    taps: other features of the teacher that are kept, as indices of
      `base.ModelOutput.features`.
    batch_size: rows that the teacher reads at once.
    seconds: after which no batch is begun; the same call goes on.

  Returns:
    The rows, with their features mapped from disk, or None if there was too
    little time for all of them.

  Raises:
    ValueError: the folder is of other rows or of another teacher, or its disk
      is too small.
  """
  began = time.monotonic()
  os.makedirs(folder, exist_ok=True)
  shape = *rows.tokens.shape, model.feature_sizes[-1]
  identity = {'rows': _digest(rows), 'shape': list(shape), 'taps': list(taps)}
  progress = _Progress(folder, identity)
  kept = {
    'features': (np.float16, shape),
    'normalizers': (np.float32, shape[:2]),
    'best': (np.int32, shape[:2]),
    **{f'tap_{tap}': (np.float16, shape) for tap in taps},
  }
  path_of = lambda name: os.path.join(folder, f'{name}.npy')
  kept = {path_of(name): each for name, each in kept.items()}
  _check_room(folder, kept)
  arrays = [
    _array(path, *each, progress.num_done) for path, each in kept.items()
  ]
  read = functools.partial(_read, model, tuple(taps))
  with tqdm.tqdm(
    total=len(rows.tokens), initial=progress.num_done, unit='row'
  ) as bar:
    for first in range(progress.num_done, len(rows.tokens), batch_size):
      if time.monotonic() - began >= seconds:
        return None
      some = slice(first, first + batch_size)
      batch = packing.take(rows, some)
      for array, value in zip(arrays, read(params, batch), strict=True):
        if not np.isfinite(value).all():
          raise ValueError(
            'What the teacher computes is not finite, or exceeds the 65,504 of '
            'float16, in which it is kept.'
          )
        array[some] = value
        array.flush()
      progress.write(first + len(batch.tokens))
      bar.update(len(batch.tokens))
  features, normalizers, best, *tapped = arrays
  return packing.TaughtBatch(*rows, features, normalizers, best, tuple(tapped))


@functools.partial(jax.jit, static_argnums=(0, 1))
def _read(model, taps, params, batch):
  """Features of the head, what normalises its logits, the best token, taps."""
  extension = adapters.read_packed(model, params, batch)
  normalizers = jax.nn.logsumexp(extension.logits, axis=-1)
  features = [extension.features[tap] for tap in (-1, *taps)]
  features = [each.astype(jnp.float16) for each in features]
  best = sampling.most_likely(extension.logits)
  return features[0], normalizers, best, *features[1:]


class _Progress:
  """How many rows are done, on disk, and of what."""

  def __init__(self, folder, identity):
    self._path = os.path.join(folder, 'progress.json')
    self._identity = identity
    found = json_files.read(folder, 'progress.json')
    self.num_done = found.pop('num_done', 0)
    if found not in ({}, identity):
      raise ValueError(
        f'{folder} holds what a teacher computed of other rows. Use another '
        'folder, or delete this one.'
      )

  def write(self, num_done):
    self.num_done = num_done
    with open(f'{self._path}.part', 'w', encoding='utf-8') as file:
      json.dump({**self._identity, 'num_done': num_done}, file)
    os.replace(f'{self._path}.part', self._path)


def _check_room(folder, kept):
  """Refuses a disk that is too small: files grow only as they are written.

  What they take already, after an interruption, is not needed once more.
  """
  needed = 0
  for path, (dtype, shape) in kept.items():
    needed += math.prod(shape) * dtype().itemsize
    if os.path.exists(path):
      needed -= os.stat(path).st_blocks * _BLOCK
  free = shutil.disk_usage(folder).free
  if needed > free:
    raise ValueError(
      f'What the teacher computes needs {needed / 1e9:.3f} GB, and the disk of '
      f'{folder} has {free / 1e9:.3f} GB left.'
    )


def _array(path, dtype, shape, num_done):
  """An array on disk; a new one, if nothing is done."""
  mode = 'r+' if num_done else 'w+'
  return np.lib.format.open_memmap(path, mode, dtype, shape)


def _digest(rows):
  digest = hashlib.sha256()
  for field in rows:
    digest.update(np.ascontiguousarray(field).tobytes())
  return digest.hexdigest()
