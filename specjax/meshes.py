"""Meshes of devices, and arrays that are sharded over them."""

from collections.abc import Sequence
import hashlib
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np

# Axes of a mesh: rows of a batch are divided along the first; heads, hidden
# units and the vocabulary along the second.
DATA, MODEL = 'data', 'model'


def make(
  data: int = 1, model: int = 1, devices: Sequence[Any] | None = None
) -> jax.sharding.Mesh:
  """Returns a mesh of the first `data * model` devices.

  Args:
    data: number of parts of the rows of a batch.
    model: number of parts of heads, hidden units and vocabulary.
    devices: the devices; those of all processes by default.

  Raises:
    ValueError: there are fewer devices.
  """
  available = list(jax.devices() if devices is None else devices)
  if data < 1 or model < 1 or data * model > len(available):
    raise ValueError(
      f'mesh must have data >= 1, model >= 1 and at most {len(available)} '
      f'devices in total, got data={data}, model={model}.'
    )
  return jax.make_mesh(
    (data, model),
    (DATA, MODEL),
    axis_types=(jax.sharding.AxisType.Auto,) * 2,
    devices=available[: data * model],
  )


def put(leaf: Any, sharding: jax.sharding.Sharding) -> Any:
  """Returns an array, or its shape, with a sharding.

  Each device receives only its part. An array that already has the sharding is
  not copied.
  """
  if isinstance(leaf, jax.ShapeDtypeStruct):
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
  if isinstance(leaf, jax.Array) and leaf.sharding == sharding:
    return leaf
  if sharding.is_fully_addressable:
    return jax.device_put(leaf, sharding)
  whole = np.asarray(leaf)
  return jax.make_array_from_callback(whole.shape, sharding, whole.__getitem__)


def num_parts(tree: Any) -> int:
  """Returns the number of parts of the rows; 1 for arrays without a mesh."""
  for leaf in jax.tree.leaves(tree):
    sharding = getattr(leaf, 'sharding', None)
    if isinstance(sharding, jax.sharding.NamedSharding):
      return sharding.mesh.shape.get(DATA, 1)
  return 1


def check_same(name: str, value: str) -> None:
  """Raises `ValueError` unless all processes have the same value.

  Args:
    name: name of the value, for the error.
    value: the value of this process.

  Raises:
    ValueError: the value of another process differs; the error lists the
      processes.
  """
  digest = hashlib.sha256(value.encode()).digest()
  digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
  # A single process has no first axis.
  digests = digests.reshape(-1, len(digest))
  different = np.flatnonzero((digests != digests[0]).any(-1)).tolist()
  if different:
    raise ValueError(
      f'All processes must have the same {name}, but process 0 differs from '
      f'{", ".join(map(str, different))}.'
    )


def fetch(tree: Any) -> Any:
  """Returns complete arrays as NumPy arrays, in every process."""
  is_local = lambda leaf: getattr(leaf, 'is_fully_addressable', True)
  if all(map(is_local, jax.tree.leaves(tree))):
    return jax.device_get(tree)
  return multihost_utils.process_allgather(tree, tiled=True)
