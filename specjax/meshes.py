"""Many devices as one: a mesh of them, and arrays that lie on it."""

from collections.abc import Sequence
import hashlib
from typing import Any

import jax
from jax.experimental import multihost_utils
import numpy as np

# The axes: rows of a batch are cut along one; heads, hidden units and the
# vocabulary along the other.
DATA, MODEL = 'data', 'model'


def make(
  data: int = 1, model: int = 1, devices: Sequence[Any] | None = None
) -> jax.sharding.Mesh:
  """Returns a mesh of the first `data * model` devices.

  Args:
    data: among how many the rows of a batch are divided.
    model: among how many heads, hidden units and vocabulary are divided.
    devices: those of all processes, by default.

  Raises:
    ValueError: there are not as many devices.
  """
  available = list(jax.devices() if devices is None else devices)
  if data < 1 or model < 1 or data * model > len(available):
    raise ValueError(
      f'mesh must have data >= 1, model >= 1 and at most {len(available)} '
      f'devices in all, got data={data}, model={model}.'
    )
  return jax.make_mesh(
    (data, model),
    (DATA, MODEL),
    axis_types=(jax.sharding.AxisType.Auto,) * 2,
    devices=available[: data * model],
  )


def put(leaf: Any, sharding: jax.sharding.Sharding) -> Any:
  """Lays an array, or only its shape, on devices.

  Each device is given its part alone; what lies there already is not copied.
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
  """Returns among how many devices rows are divided, where arrays lie so."""
  for leaf in jax.tree.leaves(tree):
    sharding = getattr(leaf, 'sharding', None)
    if isinstance(sharding, jax.sharding.NamedSharding):
      return sharding.mesh.shape.get(DATA, 1)
  return 1


def check_same(what: str, text: str) -> None:
  """Raises unless all processes that run one program pass the same text.

  Args:
    what: the text describes, for the message.
    text: of this process.

  Raises:
    ValueError: the texts of some processes differ from that of the first.
  """
  digest = hashlib.sha256(text.encode()).digest()
  digests = multihost_utils.process_allgather(np.frombuffer(digest, np.uint8))
  # With one process, there is no first axis.
  digests = digests.reshape(-1, len(digest))
  others = np.flatnonzero((digests != digests[0]).any(-1)).tolist()
  if others:
    raise ValueError(
      f'All processes must have the same {what}; of process 0, that of '
      f'{", ".join(map(str, others))} differs.'
    )


def fetch(tree: Any) -> Any:
  """Returns arrays as NumPy arrays: whole, in each of the processes."""
  is_here = lambda leaf: getattr(leaf, 'is_fully_addressable', True)
  if all(map(is_here, jax.tree.leaves(tree))):
    return jax.device_get(tree)
  return multihost_utils.process_allgather(tree, tiled=True)
