"""What all tests share: two tiers, XLA's flags, and plugins of this suite."""

import gc
import os
import pathlib

import jax
import pytest

from tests import memory
from tests import program_cache
from tests import xla

pytest_plugins = ['tests.extras']

# The first tier proves the library only.
_EXPERIMENTS = pathlib.Path(__file__).parent / 'experiments'

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
    help='Also run the second tier: experiments, notebooks, large samples, '
    'comparison with PyTorch.',
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
  for item in items:
    if _EXPERIMENTS in item.path.parents:
      item.add_marker(pytest.mark.slow)
  if config.getoption('--all'):
    return
  tiers = [], []
  for item in items:
    tiers['slow' in item.keywords or 'oracles' in item.keywords].append(item)
  items[:], second_tier = tiers
  config.hook.pytest_deselected(items=second_tier)
