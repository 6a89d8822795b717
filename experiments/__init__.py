"""Commands; on a machine without accelerators, JAX looks for none."""

import glob
from importlib import metadata
import os

# Of NVIDIA's driver, in Windows' subsystem for Linux, too, and of TPUs.
_DEVICES = '/dev/nvidia*', '/dev/dxg', '/dev/accel*', '/dev/vfio/[0-9]*'
_PLUGINS = {'xla_cuda12', 'xla_cuda13'}
_MORE_PLUGINS = 'PJRT_NAMES_AND_LIBRARY_PATHS'

# The plugins for CUDA and TPU are also installed for their compilers alone. JAX
# would start both, and show why they fail. Other plugins have other devices.
_names = {each.name for each in metadata.entry_points(group='jax_plugins')}
_is_known = _names <= _PLUGINS and not os.environ.get(_MORE_PLUGINS)
if _is_known and not any(map(glob.glob, _DEVICES)):
  os.environ.setdefault('JAX_PLATFORMS', 'cpu')  # Before JAX is imported.
