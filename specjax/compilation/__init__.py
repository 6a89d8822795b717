"""Decodes, compiled for devices that need not be there."""

from specjax.compilation.devices import Device
from specjax.compilation.devices import all_of
from specjax.compilation.devices import find
from specjax.compilation.devices import several
from specjax.compilation.inspection import Inspection
from specjax.compilation.launches import Launches
from specjax.compilation.programs import DoesNotFit
from specjax.compilation.programs import Memory
from specjax.compilation.programs import Program
from specjax.compilation.programs import check_fits
from specjax.compilation.programs import compile_decode
from specjax.compilation.programs import least_bytes

__all__ = [
  'Device',
  'DoesNotFit',
  'Inspection',
  'Launches',
  'Memory',
  'Program',
  'all_of',
  'check_fits',
  'compile_decode',
  'find',
  'least_bytes',
  'several',
]
