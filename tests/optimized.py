"""Programs that run for longer than it takes to compile them well.

All others are compiled quickly, see `tests.xla`.
"""

import functools

import jax

jit = functools.partial(
  jax.jit,
  compiler_options={
    'xla_backend_optimization_level': 3,
    'xla_llvm_disable_expensive_passes': False,
  },
)
