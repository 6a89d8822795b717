"""What every test file shares: two tiers, and programs that are kept."""

import gc
import os

import jax
import pytest

from experiments.common import programs
from tests import budget
from tests import program_cache
from tests import xla

# PyTorch's threads wait for each other, and workers have taken all cores.
os.environ.setdefault('OMP_NUM_THREADS', '1')
xla.compile_quickly()  # Before anything is compiled.

# Nothing is broadcast or converted but what the code says.
jax.config.update('jax_numpy_rank_promotion', 'raise')
jax.config.update('jax_numpy_dtype_promotion', 'strict')


def pytest_addoption(parser):
  parser.addoption(
    '--all',
    action='store_true',
    help='Also run what takes long: experiments, notebooks, large samples.',
  )
  parser.addoption(
    '--require-smollm2',
    action='store_true',
    help='Fail where the weights of SmolLM2 cannot be fetched, not skip.',
  )
  parser.addoption(
    '--require-accelerators',
    action='store_true',
    help='Fail where compilers for TPU and GPU are not installed, not skip.',
  )
  parser.addoption(
    '--minutes',
    type=float,
    help='Start no test later than this; what changed comes first.',
  )


def pytest_configure(config):
  config.addinivalue_line(
    'markers', 'slow: takes long, and only runs with --all.'
  )
  config.pluginmanager.register(program_cache.ProgramCache())
  minutes = config.getoption('--minutes')
  if minutes is not None:
    config.pluginmanager.register(budget.Budget(minutes))


def pytest_collection_finish():
  """Seldom looks for garbage: tracing makes millions of objects that stay."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(100_000, 20, 20)


def pytest_collection_modifyitems(config, items):
  if config.getoption('--all'):
    return
  slow = [item for item in items if 'slow' in item.keywords]
  config.hook.pytest_deselected(items=slow)
  items[:] = [item for item in items if 'slow' not in item.keywords]


@pytest.fixture(scope='module', autouse=True)
def _not_too_many_programs():
  yield
  programs.drop(45_000)  # Many more than by default: toys are small.
