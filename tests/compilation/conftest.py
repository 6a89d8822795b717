"""Devices to compile for, where their compilers are."""

import pytest

from specjax import compilation
from specjax.compilation import devices


@pytest.fixture(name='find', scope='session')
def _find(request):
  """Finds a device; where its compiler is not, the test is skipped."""

  def find(name):
    device = compilation.find(name)
    if said := devices.missing(device):
      if request.config.getoption('--require-accelerators'):
        pytest.fail(said)
      pytest.skip(said)
    return device

  return find
