"""What XLA is told while tests run: nearly all of their time is compilation."""

import os
import subprocess
import sys

import jax

# Half as long to compile, and slow to run, which small models do not mind.
_QUICK = {
  'xla_backend_optimization_level': 0,
  'xla_llvm_disable_expensive_passes': True,
  'xla_cpu_use_fusion_emitters': False,
  'xla_cpu_parallel_codegen_split_count': 1,
}
_FLAGS = ' '.join(f'--{name}={value}' for name, value in _QUICK.items())


def compile_quickly() -> None:
  """Sets `XLA_FLAGS` on a CPU, unless they are set or this XLA lacks one.

  An unknown flag ends a process, so another one tries them. Processes that
  this one starts inherit them.
  """
  if 'XLA_FLAGS' in os.environ:
    return
  quick = {**os.environ, 'XLA_FLAGS': _FLAGS}
  code = 'import sys, jax; sys.exit(jax.default_backend() != "cpu")'
  process = subprocess.run([sys.executable, '-c', code], env=quick, check=False)
  if process.returncode == 0:
    os.environ['XLA_FLAGS'] = _FLAGS


def environment(num_devices: int) -> dict[str, str]:
  """Returns the environment of a process with so many devices, all the CPU."""
  flags = os.environ.get('XLA_FLAGS', '')
  flags += f' --xla_force_host_platform_device_count={num_devices}'
  return {**os.environ, 'XLA_FLAGS': flags, 'JAX_PLATFORMS': 'cpu'}


def compile_as_usual(lowered: jax.stages.Lowered) -> jax.stages.Compiled:
  """Returns what users get, as far as its text (optimized HLO) shows."""
  quick = os.environ.get('XLA_FLAGS') == _FLAGS
  return lowered.compile(
    {'xla_cpu_use_fusion_emitters': True} if quick else None
  )
