"""Runs an experiment as several processes, which divide the devices.

All processes run the same program, and each writes its own log.
"""

from collections.abc import Sequence
import json
import os
from typing import Any

from absl import flags
import jax
from jax.experimental import multihost_utils
import numpy as np

from experiments.common import configs
from specjax import meshes


def define(values: flags.FlagValues) -> None:
  """Defines the flags of distributed runs."""
  flags.DEFINE_bool(
    'distributed',
    False,
    'Run as one of several processes. JAX finds them by itself on Cloud TPU '
    'and Slurm, and elsewhere by the three flags below.',
    flag_values=values,
  )
  flags.DEFINE_string(
    'coordinator', None, 'HOST:PORT of process 0.', flag_values=values
  )
  flags.DEFINE_integer(
    'num_processes', None, 'Number of processes.', flag_values=values
  )
  flags.DEFINE_integer(
    'process_id', None, 'Index of this process.', flag_values=values
  )


def join(values: Any) -> str:
  """Joins the other processes, if there are any.

  Returns:
    The workdir of this process: the requested one for process 0, and a folder
    inside it for the others.

  Raises:
    ValueError: the processes have different configs.
  """
  addresses = values.coordinator, values.num_processes, values.process_id
  if not values.distributed:
    if addresses != (None, None, None):
      raise ValueError(
        'coordinator, num_processes and process_id need --distributed.'
      )
    return values.workdir
  jax.distributed.initialize(*addresses)
  meshes.check_same('config', configs.as_json(values.config))
  if is_first():
    return values.workdir
  return os.path.join(values.workdir, f'process_{jax.process_index()}')


def is_first() -> bool:
  """Returns whether this process prints and draws the results."""
  return jax.process_index() == 0


def of_first(value: Any) -> Any:
  """Returns the value of the first process, which can be encoded as JSON."""
  if jax.process_count() == 1:
    return value
  encoded = json.dumps(value).encode()
  size = int(multihost_utils.broadcast_one_to_all(np.array(len(encoded))))
  padded = np.frombuffer(encoded[:size].ljust(size), np.uint8)
  return json.loads(multihost_utils.broadcast_one_to_all(padded).tobytes())


def common(done: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
  """Returns the outcomes of the units that all processes have finished.

  A process that was killed earlier than another has finished less; the
  processes compute the remaining units together.

  Args:
    done: the outcomes of this process, by name.
    names: the names of all units.

  Raises:
    ValueError: the processes have different units, for example because a file
      of prompts differs.
  """
  if jax.process_count() == 1:
    return done
  meshes.check_same('units of work, as of prompts', ' '.join(names))
  is_done = np.array([name in done for name in names])
  everywhere = multihost_utils.process_allgather(is_done).all(axis=0)
  return {name: done[name] for name, all_ in zip(names, everywhere) if all_}
