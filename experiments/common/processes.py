"""One run by several processes, of which each has some of the devices.

All of them run the same program, and each keeps a log of its own.
"""

from collections.abc import Sequence
import os
from typing import Any

from absl import flags
import jax
from jax.experimental import multihost_utils
import numpy as np

from specjax import meshes


def define(values: flags.FlagValues) -> None:
  """Defines the flags that make a process one of several."""
  flags.DEFINE_bool(
    'distributed',
    False,
    'Run as one of several processes, which JAX finds by itself on Cloud TPU '
    'and Slurm, and elsewhere by the three flags below.',
    flag_values=values,
  )
  flags.DEFINE_string(
    'coordinator', None, 'HOST:PORT of process 0.', flag_values=values
  )
  flags.DEFINE_integer(
    'num_processes', None, 'How many there are.', flag_values=values
  )
  flags.DEFINE_integer(
    'process_id', None, 'Which of them this is.', flag_values=values
  )


def join(values: Any) -> str:
  """Joins the other processes, if there are any; returns the workdir of this.

  Process 0 has the one that was asked for, others have folders inside of it.

  Raises:
    ValueError: the processes do not have the same config.
  """
  asked = values.coordinator, values.num_processes, values.process_id
  if not values.distributed:
    if asked != (None, None, None):
      raise ValueError(
        'coordinator, num_processes and process_id need --distributed.'
      )
    return values.workdir
  jax.distributed.initialize(*asked)
  meshes.check_same('config', values.config.to_json())
  if is_first():
    return values.workdir
  return os.path.join(values.workdir, f'process_{jax.process_index()}')


def is_first() -> bool:
  """Whether this process shows what comes out."""
  return jax.process_index() == 0


def common(done: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
  """Returns what is done in all processes, of the units of `names`.

  They do the rest together, as one that was killed a moment before another has
  finished less.

  Raises:
    ValueError: the processes do not have the same units, as where a file of
      prompts differs.
  """
  if jax.process_count() == 1:
    return done
  meshes.check_same('units of work, as of prompts', ' '.join(names))
  own = np.array([name in done for name in names])
  everywhere = multihost_utils.process_allgather(own).all(axis=0)
  return {name: done[name] for name, has in zip(names, everywhere) if has}
