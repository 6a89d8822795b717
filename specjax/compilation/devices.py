"""Devices that programs are compiled for, which need not exist locally."""

from collections.abc import Iterator
import contextlib
import functools
import importlib.util
import os
from typing import Any
from typing import NamedTuple

import jax
from jax.experimental import topologies


class Device(NamedTuple):
  """One or several devices of a kind.

  Attributes:
    name: name of the device, see `find`.
    platform: 'cpu', 'cuda' or 'tpu'.
    topology: the platform's name of the arrangement of devices.
    memory: bytes of one device that programs may use; None if unknown.
    bandwidth: bytes per second of its main memory; None if unknown.
    flops: bfloat16 operations per second in dense products; None if unknown.
  """

  name: str
  platform: str
  topology: str
  memory: float | None
  bandwidth: float | None
  flops: float | None


class _Chip(NamedTuple):
  """The specification of one device.

  Attributes:
    memory: See `Device`; without the part that XLA reserves.
    bandwidth: See `Device`.
    flops: See `Device`.
    axes: number of axes along which several devices are arranged.
  """

  memory: float
  bandwidth: float
  flops: float
  axes: int


_TPUS = {
  'v5e': _Chip(15.75 * 2**30, 819e9, 197e12, 2),
  'v5p': _Chip(95e9, 2765e9, 459e12, 3),
  'v6e': _Chip(31.25 * 2**30, 1640e9, 918e12, 2),
}
_GPUS = {
  'h100': _Chip(80e9, 3352e9, 989e12, 1),
  'h200': _Chip(141e9, 4800e9, 989e12, 1),
}
# Properties of these GPUs that the compiler requires, from their driver.
_TARGET = """
gpu_device_info {{
  threads_per_block_limit: 1024
  threads_per_warp: 32
  shared_memory_per_block: 49152
  shared_memory_per_core: 233472
  shared_memory_per_block_optin: 232448
  threads_per_core_limit: 2048
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
  core_count: 132
  fpus_per_core: 128
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  memory_bandwidth: {bandwidth:.0f}
  l2_cache_size: 52428800
  clock_rate_ghz: 1.98
  device_memory_size: {memory:.0f}
  driver_version: "12.9.0"
  runtime_version: "12.9.0"
  compile_time_toolkit_version: "12.9.0"
  cuda_compute_capability {{ major: 9 minor: 0 }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 8 }}
device_description_str: "NVIDIA {name}"
"""
# Packages with a platform's compiler. One of them suffices; `setup.py` installs
# the first.
_COMPILERS = {
  'tpu': ('libtpu',),
  'cuda': ('jax_cuda12_plugin', 'jax_cuda13_plugin'),
}


def find(name: str) -> Device:
  """Returns a device by its name.

  Args:
    name: 'cpu'; a GPU such as 'h100', or 'h100:8' for eight; or a TPU with the
      arrangement of its chips, such as 'v5e:1x1' or 'v5e:2x4'.

  Raises:
    ValueError: there is no such device.
  """
  chip, _, layout = name.partition(':')
  if name == 'cpu':
    return Device(name, 'cpu', '', None, None, None)
  if chip in _GPUS and (layout.isdigit() or not layout):
    return Device(name, 'cuda', f'1x1x{layout or 1}', *_GPUS[chip][:3])
  if chip in _TPUS and layout:
    return Device(name, 'tpu', name, *_TPUS[chip][:3])
  tpus = [f'{chip}:{_layout(chip, 1)}' for chip in _TPUS]
  known = ', '.join(['cpu', *_GPUS, *tpus])
  raise ValueError(
    f'device must be one of {known}, or several, such as h100:8 or v5e:2x4, '
    f'got {name!r}.'
  )


def several(device: Device, num: int) -> Device:
  """Returns `num` devices of the same kind.

  Raises:
    ValueError: `num` is not a power of two.
  """
  if num < 1 or num & (num - 1):
    raise ValueError(f'num must be a power of two, got {num}.')
  chip, _, _ = device.name.partition(':')
  is_single = device.platform == 'cuda' and num == 1
  if device.platform == 'cpu' or is_single:
    return find(chip)
  return find(f'{chip}:{_layout(chip, num)}')


def _layout(chip: str, num: int) -> str:
  """Returns the most even arrangement of `num` chips, a power of two."""
  axes = {**_GPUS, **_TPUS}[chip].axes
  doublings = num.bit_length() - 1
  # Later axes are doubled first.
  sizes = [2 ** ((doublings + i) // axes) for i in range(axes)]
  return 'x'.join(map(str, sizes))


def missing(device: Device) -> str:
  """Returns an error if a device's compiler is not installed, or ''."""
  packages = _COMPILERS.get(device.platform)
  if packages is None or any(map(importlib.util.find_spec, packages)):
    return ''
  return (
    f'Compiling for {device.name} needs {packages[0]}: pip install -e '
    "'.[accelerators]'."
  )


@functools.cache
def jax_devices(device: Device) -> tuple[Any, ...]:
  """Returns JAX's devices, for which programs can be compiled.

  Raises:
    ValueError: the compiler is not installed, or refuses the topology.
  """
  if device.platform == 'cpu':
    return tuple(jax.devices('cpu'))
  if message := missing(device):
    raise ValueError(message)
  options = {}
  if device.platform == 'cuda':
    target = _TARGET.format(
      name=device.name.partition(':')[0].upper(),
      memory=device.memory,
      bandwidth=device.bandwidth,
    )
    options = {'topology': device.topology, 'target_config': target}
  else:
    # Without these, libtpu queries the network for the local TPU, and admits
    # only one process at a time.
    os.environ.setdefault('TPU_SKIP_MDS_QUERY', '1')
    os.environ.setdefault('ALLOW_MULTIPLE_LIBTPU_LOAD', '1')
  try:
    with without_flags():
      topology = topologies.get_topology_desc(
        platform=device.platform, topology_name=device.topology, **options
      )
  except Exception as error:
    reason = str(error).partition('\n')[0]
    raise ValueError(
      f'The compiler refuses the device {device.name!r}: {reason}. On a '
      'machine without one, JAX_PLATFORMS=cpu must be set before JAX starts.'
    ) from error
  return tuple(topology.devices)


@contextlib.contextmanager
def without_flags() -> Iterator[None]:
  """Hides `XLA_FLAGS` from libtpu, which exits the process on unknown flags.

  JAX reads them for the CPU before.
  """
  jax.devices('cpu')
  flags = os.environ.pop('XLA_FLAGS', None)
  try:
    yield
  finally:
    if flags is not None:
      os.environ['XLA_FLAGS'] = flags
