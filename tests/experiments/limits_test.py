"""Runs whose process has a deadline."""

import os
import subprocess
import sys

import pytest

from experiments import main
from experiments.common import limits
from experiments.common import log
from experiments.common import results
from experiments.common import workdirs
from tests import smoke
from tests.experiments import toy

_METHODS = 'none', 'small:2'


def _set_deadline(monkeypatch, seconds):
  for name, value in limits.environment(seconds).items():
    monkeypatch.setenv(name, value)


def _unset_deadline(monkeypatch):
  for name in limits.environment(0.0):
    monkeypatch.delenv(name)


def test_no_unit_is_begun_after_the_deadline(tmp_path, monkeypatch):
  workdir = workdirs.Workdir(
    tmp_path / 'run', toy.config('quickstart', None, {})
  )
  units = [{'number': i} for i in range(4)]

  def compute(unit):
    if unit['number'] == 1:
      _set_deadline(monkeypatch, -1.0)
    return {'value': unit['number']}

  resume = lambda: log.resume(workdir, units, compute)
  outcomes = list(limits.until_deadline(workdir, resume()))
  assert [outcome['value'] for outcome in outcomes] == [0, 1]
  assert workdir.is_incomplete
  with pytest.raises(limits.OutOfTime, match='the same command resumes'):
    list(resume())
  _unset_deadline(monkeypatch)
  assert [outcome['value'] for outcome in resume()] == [0, 1, 2, 3]
  assert limits.remaining_seconds() == float('inf')


def test_results_have_the_methods_that_there_was_time_for(
  tmp_path, monkeypatch, family
):
  changes = {'methods': _METHODS, 'prompts': {'all': {}}, 'data_dir': ''}
  changes |= toy.SIZES | {'repeats': 0}
  config = toy.config('evaluate', family, changes)
  full_rows = toy.run(config, tmp_path / 'whole')
  assert [row['method'] for row in full_rows] == [
    method for method in _METHODS for _ in range(3)
  ]
  torn_dir = toy.torn_workdir(tmp_path / 'whole', tmp_path / 'late')
  _set_deadline(monkeypatch, -1.0)
  with pytest.raises(limits.OutOfTime):
    main.run(config, torn_dir)
  assert results.read(torn_dir)['rows'] == full_rows[:3]
  # A sweep has not done anything yet, either.
  config.sweep = ({'seed': 0}, {'seed': 1})
  with pytest.raises(limits.OutOfTime):
    main.run(config, tmp_path / 'nothing')
  assert not results.read(tmp_path / 'nothing')['rows']
  config.sweep = ''
  _unset_deadline(monkeypatch)
  assert toy.run(config, torn_dir) == full_rows


@pytest.mark.parametrize('is_parent', [True, False])
def test_a_process_ends_with_the_one_that_gave_its_deadline(is_parent):
  """Covers a parent that ends before the process checks for the first time."""
  code = """
import time
from experiments.common import limits
limits.end_with_parent()
time.sleep(2 * limits._PAUSE)
"""
  environment = limits.environment(60.0)
  if not is_parent:
    environment = {name: '1' for name in environment}
  process = subprocess.run(
    [sys.executable, '-c', code],
    env=os.environ | environment,
    cwd=smoke.ROOT,
    check=False,
  )
  assert process.returncode == int(not is_parent)
