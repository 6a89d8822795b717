"""What few tests need and few users have: they are skipped where it is missing.

With `--require-extras`, as in continuous integration, they fail instead.
"""

import importlib
import importlib.util
import types

import pytest

# The extra of setup.py that installs each package.
EXTRAS = {
  'libtpu': 'accelerators',
  'lm_eval': 'lm-eval',
  'torch': 'oracles',
  'transformers': 'oracles',
}

_required = False  # Whether a test that misses something fails.


def pytest_addoption(parser):
  parser.addoption(
    '--require-extras',
    action='store_true',
    help='Fail where a package, a compiler or the weights of SmolLM2 are '
    'missing, instead of skipping.',
  )


def pytest_configure(config):
  global _required
  _required = config.getoption('--require-extras')
  config.addinivalue_line(
    'markers', "oracles: compares with PyTorch; needs the extra 'oracles'."
  )


def pytest_terminal_summary(terminalreporter):
  for name in EXTRAS:
    if importlib.util.find_spec(name) is None:
      terminalreporter.write_line(f'Skipped what needs {_message(name)}')


def load(name: str) -> types.ModuleType:
  """Imports a package of `EXTRAS`, or skips the test or module that calls."""
  if importlib.util.find_spec(name) is None:
    miss(_message(name))
  return importlib.import_module(name)


def miss(message: str) -> None:
  """Skips the test or module that calls, or fails where extras are required."""
  if _required:
    pytest.fail(message)
  pytest.skip(message, allow_module_level=True)


def _message(name):
  return f"{name}, which pip install -e '.[{EXTRAS[name]}]' installs."
