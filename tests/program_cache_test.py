"""A folder of programs that is of no use is reported, and harms no test."""

import collections
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests import program_cache

_ROOT = pathlib.Path(__file__).parents[1]


def _run(folder):
  """Runs a small file of tests; returns how it ended and what it printed."""
  ended = subprocess.run(
    [sys.executable, '-m', 'pytest', '-n0', 'tests/rewards_test.py'],
    cwd=_ROOT,
    env=os.environ | {'SPECJAX_TEST_CACHE': str(folder)},
    capture_output=True,
    text=True,
  )
  return ended.returncode, ended.stdout


def test_a_folder_that_cannot_be_made_is_named_with_the_reason(tmp_path):
  file = tmp_path / 'file'
  file.touch()
  assert program_cache.problem(tmp_path / 'folder') == ''
  assert program_cache.problem(file / 'folder') == 'Not a directory'


def test_a_full_disk_is_a_reason(tmp_path, monkeypatch):
  usage = collections.namedtuple('usage', 'free')
  monkeypatch.setattr(shutil, 'disk_usage', lambda _: usage(2**20))
  assert program_cache.problem(tmp_path) == 'less than 256 MiB are free'


@pytest.mark.slow
def test_programs_are_found_again_unless_they_are_damaged(tmp_path):
  code, text = _run(tmp_path)
  assert code == 0 and ' and found 0, ' in text
  code, text = _run(tmp_path)
  assert code == 0 and 'Compiled 0 programs' in text
  for file in tmp_path.rglob('*-cache'):
    file.write_bytes(file.read_bytes()[:100])
  code, text = _run(tmp_path)
  assert code == 0 and ' and found 0, ' in text


@pytest.mark.slow
def test_a_run_without_its_folder_says_why(tmp_path):
  file = tmp_path / 'file'
  file.touch()
  code, text = _run(file)
  assert code == 0
  assert f'without the cache folder {file}/' in text
  assert 'Not a directory' in text
