"""Runs as many tests as fit into some minutes, beginning with what changed.

Files come in this order: those that the last commits touched, or whose source
they touched, then all others from a place that depends on the commit, so that
each file has its turn within some commits.
"""

import pathlib
import subprocess
import time

import pytest

_NUM_COMMITS = 10


class Budget:
  """A pytest plugin that deselects nothing, but skips when time is over."""

  def __init__(self, minutes):
    self._end = time.monotonic() + 60 * minutes

  def pytest_collection_modifyitems(self, items):
    files = list(dict.fromkeys(item.path for item in items))
    place = {path: i for i, path in enumerate(_in_order(files))}
    items.sort(key=lambda item: place[item.path])

  def pytest_runtest_setup(self):
    if time.monotonic() > self._end:
      pytest.skip('no time is left')

  def pytest_terminal_summary(self, terminalreporter):
    reports = terminalreporter.stats.get('skipped', [])
    late = [r for r in reports if 'no time is left' in str(r.longrepr)]
    names = sorted({r.nodeid.split('::')[0] for r in late})
    terminalreporter.write_line(
      f'{len(late)} tests did not run, for lack of time. {" ".join(names)}'
    )


def _in_order(files):
  """Files that changed, then the others from a place given by the commit."""
  commit = _git('rev-parse', 'HEAD')
  changed = _git('log', f'-{_NUM_COMMITS}', '--name-only', '--format=').split()
  stems = {pathlib.Path(name).stem for name in changed}
  first, others = [], []
  for path in files:
    stem = path.stem.removesuffix('_test')
    (first if {stem, path.stem} & stems else others).append(path)
  turn = int(commit[:8] or '0', 16) % max(1, len(others))
  return first + others[turn:] + others[:turn]


def _git(*words):
  done = subprocess.run(
    ['git', *words], capture_output=True, text=True, check=False
  )
  return done.stdout.strip() if done.returncode == 0 else ''
