"""The annotations of the package are checked, those of the protocols too."""

import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]


def check(*arguments):
  command = [sys.executable, '-m', 'mypy', *arguments]
  return subprocess.run(
    command, cwd=ROOT, capture_output=True, text=True, check=False
  )


@pytest.mark.slow
def test_types_are_consistent():
  pytest.importorskip('mypy')
  done = check('specjax')
  assert not done.returncode, done.stdout


@pytest.mark.slow
def test_a_coupling_of_another_signature_is_refused(tmp_path):
  pytest.importorskip('mypy')
  file = tmp_path / 'broken.py'
  file.write_text(
    'import jax\n'
    'from specjax import base\n'
    'def pick(key: jax.Array, candidates: jax.Array) -> jax.Array:\n'
    '  return candidates[0]\n'
    'coupling: base.Coupling = pick\n'
  )
  done = check(str(file))
  assert 'Incompatible types in assignment' in done.stdout, done.stdout
