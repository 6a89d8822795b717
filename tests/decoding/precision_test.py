"""Where JAX computes in 64 bits by default, decoders still do not."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

from tests.decoding import wide

pytestmark = pytest.mark.slow

_ROOT = pathlib.Path(__file__).parents[2]


def _run(*parts):
  process = subprocess.run(
    [sys.executable, '-m', 'tests.decoding.wide', *parts],
    cwd=_ROOT,
    env={**os.environ, 'JAX_ENABLE_X64': '1'},
    capture_output=True,
    text=True,
    timeout=600,
  )
  assert process.returncode == 0, process.stderr
  return process.stdout


def test_nothing_is_drawn_or_computed_with_64_bits():
  """Covers all components, decode loops of all arms, and all drivers."""
  _run('components', 'greedy', 'rows', 'arms', 'heads')


def test_every_driver_decodes_the_same_tokens():
  assert json.loads(_run('tokens')) == wide.tokens()
