"""Command buffers (CUDA graphs) for the whole decode loop.

By default, XLA launches one CUDA graph per round, which contains its
conditionals, and the host reads after each round whether another one follows. A
loop inside of the round, such as a tree walk, splits the graph; if its trip
count is unknown, the host reads a number in each iteration. With these options,
the whole decode loop is one graph, and its loops run on the device.

This requires CUDA 12.3 or later; with an older driver, XLA leaves conditionals
and loops to the host.
"""

import glob
import os

# For `compiler_options` of `jax.jit` and `.compile`. XLA does not include
# `WHILE` by default. The minimum graph size is 1, since a loop is one
# instruction of the program, and programs with fewer instructions than the
# minimum, by default 5, have no graph.
OPTIONS = {
  'xla_gpu_enable_command_buffer': (
    'FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,'
    'CONDITIONAL,WHILE'
  ),
  'xla_gpu_graph_min_graph_size': '1',
}
# Device files of NVIDIA's driver, also in the Windows Subsystem for Linux.
_DRIVERS = '/dev/nvidia*', '/dev/dxg'


def enable() -> None:
  """Sets `OPTIONS` in `XLA_FLAGS`, for all programs of this process.

  It must be called before JAX starts its devices. Flags that are set already
  are kept. On machines without an NVIDIA GPU, nothing is set, since other
  compilers exit the process on unknown flags.
  """
  if not any(map(glob.glob, _DRIVERS)):
    return
  flags = os.environ.get('XLA_FLAGS', '').split()
  names = {flag.partition('=')[0] for flag in flags}
  flags += [
    f'--{name}={value}'
    for name, value in OPTIONS.items()
    if f'--{name}' not in names
  ]
  os.environ['XLA_FLAGS'] = ' '.join(flags)


def are_enabled() -> bool:
  """Returns whether `XLA_FLAGS` puts loops into command buffers."""
  flags = dict(
    flag.partition('=')[::2] for flag in os.environ.get('XLA_FLAGS', '').split()
  )
  kinds = flags.get('--xla_gpu_enable_command_buffer', '').split(',')
  return 'WHILE' in kinds or '+WHILE' in kinds
