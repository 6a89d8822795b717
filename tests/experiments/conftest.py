"""The toy family that all tests of experiments share; see `toy`."""

import pytest

from tests.experiments import toy


@pytest.fixture(scope='session', name='family')
def _family(tmp_path_factory):
  """The folder of the family."""
  folder = tmp_path_factory.mktemp('family')
  toy.write(folder)
  return folder
