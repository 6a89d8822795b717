"""Command buffers: XLA's CUDA graphs, for whole decodes.

By default, XLA launches one CUDA graph per round, with the conditionals in it,
and the host reads after each round whether another one follows. A loop inside
of the round, as where a tree is walked, cuts the graph into several; if its
length is unknown, the host reads a number for each of its iterations. With
these options, a whole decode is one graph, and its loops run on the device.

CUDA 12.3 or later is needed; with an older driver, XLA leaves conditionals and
loops to the host.
"""

import glob
import os

# For `compiler_options` of `jax.jit` and `.compile`. `WHILE` is what XLA does
# not do by default. A loop is put into a graph as a whole, as one instruction
# of the program, and a program with fewer instructions than the least, which is
# 5 by default, would have no graph at all.
OPTIONS = {
  'xla_gpu_enable_command_buffer': (
    'FUSION,CUBLAS,CUBLASLT,CUSTOM_CALL,CUDNN,DYNAMIC_SLICE_FUSION,'
    'CONDITIONAL,WHILE'
  ),
  'xla_gpu_graph_min_graph_size': '1',
}
# Of NVIDIA's driver, also in Windows' subsystem for Linux.
_DRIVERS = '/dev/nvidia*', '/dev/dxg'


def enable() -> None:
  """Sets `OPTIONS` in `XLA_FLAGS`, for all that JAX compiles in this process.

  JAX reads them when it starts its devices; later, they have no effect. Flags
  that are set already stay as they are. On machines without an NVIDIA GPU,
  nothing is set: other compilers end a process that has flags they lack.
  """
  if not any(map(glob.glob, _DRIVERS)):
    return
  flags = os.environ.get('XLA_FLAGS', '').split()
  named = {flag.partition('=')[0] for flag in flags}
  flags += [
    f'--{name}={value}'
    for name, value in OPTIONS.items()
    if f'--{name}' not in named
  ]
  os.environ['XLA_FLAGS'] = ' '.join(flags)


def are_enabled() -> bool:
  """Returns whether `XLA_FLAGS` puts loops into command buffers."""
  flags = dict(
    flag.partition('=')[::2] for flag in os.environ.get('XLA_FLAGS', '').split()
  )
  kinds = flags.get('--xla_gpu_enable_command_buffer', '').split(',')
  return 'WHILE' in kinds or '+WHILE' in kinds
