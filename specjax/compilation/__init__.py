"""Decodes, compiled for devices that need not be there."""

from specjax.compilation.devices import Device
from specjax.compilation.devices import find
from specjax.compilation.inspection import Inspection
from specjax.compilation.programs import Memory
from specjax.compilation.programs import Program
from specjax.compilation.programs import compile_decode

__all__ = [
  'Device',
  'Inspection',
  'Memory',
  'Program',
  'compile_decode',
  'find',
]
