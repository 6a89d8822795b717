"""Experiments and their commands.

On a machine without accelerators, JAX is told not to look for any.
"""

import contextlib
import ctypes
import glob
import importlib
from importlib import metadata
import os

from experiments.common import standard_error

# Device files of NVIDIA's driver (also in WSL) and of TPUs.
DEVICES = '/dev/nvidia*', '/dev/dxg', '/dev/accel*', '/dev/vfio/[0-9]*'
_PLUGINS = {'xla_cuda12', 'xla_cuda13'}
_MORE_PLUGINS = 'PJRT_NAMES_AND_LIBRARY_PATHS'
# Each library of a plugin for CUDA writes this when it is loaded, before it has
# read which messages to log.
NO_DRIVER = (
  rb'(^WARNING: All log messages before absl::InitializeLog\(\) .*\n)?'
  rb'^I\d+ .* cudart_stub\.cc:\d+\] Could not find cuda drivers .*\n'
)

# The plugins for CUDA and TPU may be installed only for their compilers. JAX
# would try to start both and report errors. Other plugins have other devices.
_plugins = metadata.entry_points(group='jax_plugins')
_is_known = {plugin.name for plugin in _plugins} <= _PLUGINS
if os.environ.get(_MORE_PLUGINS):
  _is_known = False
if _is_known and not any(map(glob.glob, DEVICES)):
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')  # Before JAX is imported.
  if _plugins:
    with standard_error.without(NO_DRIVER):
      importlib.import_module('jax')
      # JAX would load this library only when it starts its devices.
      for _plugin in _plugins:
        with contextlib.suppress(ImportError, OSError):
          _package = importlib.import_module(_plugin.module)
          _folder = os.path.dirname(str(_package.__file__))
          ctypes.CDLL(os.path.join(_folder, 'xla_cuda_plugin.so'))
