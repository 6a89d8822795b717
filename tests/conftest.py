"""What all tests share: two tiers, XLA's flags, and plugins of this suite."""

import gc
import os

import jax

from tests import memory
from tests import program_cache
from tests import xla

pytest_plugins = ['tests.extras']

# PyTorch's threads wait for each other, and workers have taken all cores.
os.environ.setdefault('OMP_NUM_THREADS', '1')
xla.compile_quickly()  # Before anything is compiled.

# Nothing is broadcast or converted implicitly.
jax.config.update('jax_numpy_rank_promotion', 'raise')
jax.config.update('jax_numpy_dtype_promotion', 'strict')


def pytest_addoption(parser):
  parser.addoption(
    '--all',
    action='store_true',
    help='Also run the second tier: experiments, notebooks, large samples.',
  )


def pytest_configure(config):
  config.addinivalue_line(
    'markers', 'slow: belongs to the second tier, which needs --all.'
  )
  config.pluginmanager.register(program_cache.ProgramCache())
  config.pluginmanager.register(memory.Memory())


def pytest_collection_finish():
  """Makes garbage collections rare: tracing creates millions of objects."""
  gc.collect()
  gc.freeze()
  gc.set_threshold(100_000, 20, 20)


def pytest_collection_modifyitems(config, items):
  if config.getoption('--all'):
    return
  slow = [item for item in items if 'slow' in item.keywords]
  config.hook.pytest_deselected(items=slow)
  items[:] = [item for item in items if 'slow' not in item.keywords]
