"""Devices to compile for, where their compilers are."""

import pytest

from specjax import compilation
from specjax.compilation import devices
from tests import extras


@pytest.fixture(name='find', scope='session')
def _find():
  """Finds a device; where its compiler is missing, the test is skipped."""

  def find(name):
    device = compilation.find(name)
    if message := devices.missing(device):
      extras.miss(message)
    return device

  return find
