"""Estimates memory, traffic and launches of decoding from compiled programs.

Programs are compiled for TPUs and GPUs without the device; nothing is run.
"""

from specjax.compilation.devices import Device
from specjax.compilation.devices import find
from specjax.compilation.devices import jax_devices
from specjax.compilation.devices import several
from specjax.compilation.inspection import Inspection
from specjax.compilation.launches import Launches
from specjax.compilation.programs import DoesNotFit
from specjax.compilation.programs import Memory
from specjax.compilation.programs import Program
from specjax.compilation.programs import check_fits
from specjax.compilation.programs import compile_decode
from specjax.compilation.programs import min_bytes

__all__ = [
  'Device',
  'DoesNotFit',
  'Inspection',
  'Launches',
  'Memory',
  'Program',
  'check_fits',
  'compile_decode',
  'find',
  'jax_devices',
  'min_bytes',
  'several',
]
