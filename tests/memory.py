"""Bounds the memory of a process that runs tests, and reports its peak.

Compiled programs stay in memory, tens of megabytes for each decode loop. Where
a process holds too much, all are dropped; those that are used again are traced
again and found in the program cache.
"""

import ctypes
import gc
import pathlib
import resource
import sys

import jax
import pytest

# A test may add some hundred megabytes before the next look; 2 GB are allowed.
_MAX_BYTES = 1.2e9
# Packages alone, such as PyTorch, may hold nearly as much: dropping programs
# once more would free nothing before they have grown by this.
_MIN_GROWTH_BYTES = 0.2e9
_STATUS = pathlib.Path('/proc/self/statm')


class Memory:
  """A pytest plugin: drops programs after tests, gathers peaks of workers."""

  def __init__(self):
    self._peaks = []
    self._limit = _MAX_BYTES

  @pytest.hookimpl(trylast=True)  # After the fixtures.
  def pytest_runtest_teardown(self, item, nextitem):
    # What the fixtures of a file hold is free after its last test.
    if nextitem is None or nextitem.path != item.path:
      self._limit = _MAX_BYTES
    if _resident() > self._limit:
      drop_programs()
      self._limit = max(_MAX_BYTES, _resident() + _MIN_GROWTH_BYTES)

  def pytest_sessionfinish(self, session):
    output = getattr(session.config, 'workeroutput', None)
    if output is None:
      self._peaks.append(_peak())
    else:
      output['peak_bytes'] = _peak()

  @pytest.hookimpl(optionalhook=True)
  def pytest_testnodedown(self, node):
    # A worker that crashed has no output.
    output = getattr(node, 'workeroutput', {})
    self._peaks.append(output.get('peak_bytes', 0))

  def pytest_terminal_summary(self, terminalreporter):
    terminalreporter.write_line(
      f'A process held {max(self._peaks) / 1e9:.1f} GB at most.'
    )


def drop_programs():
  """Frees the compiled programs of this process, before a large model."""
  jax.clear_caches()
  gc.collect()
  if sys.platform == 'linux':
    # Without this, the C library keeps what was freed.
    ctypes.CDLL('libc.so.6').malloc_trim(0)


def _resident():
  """Returns how many bytes the process holds; 0 where Linux reports none."""
  if not _STATUS.exists():
    return 0
  return int(_STATUS.read_text().split()[1]) * resource.getpagesize()


def _peak():
  """Returns how many bytes the process has held at most."""
  peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
  return peak if sys.platform == 'darwin' else 1024 * peak
