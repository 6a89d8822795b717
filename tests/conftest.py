"""What every test file shares."""

import jax
import pytest

from tests import xla

# Before anything is compiled.
xla.compile_quickly()


@pytest.fixture(scope='module', autouse=True)
def _programs_of_one_file():
  """Compiled programs are dropped behind a file.

  A process may map so many pieces of memory (65530 on Linux), and the programs
  of the whole suite have more.
  """
  yield
  jax.clear_caches()
