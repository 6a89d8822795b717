"""Keeps the programs that tests compile, for the next run and all workers.

Nearly all of the time of the suite is compilation. Compiled programs are kept
in the user's cache folder (`SPECJAX_TEST_CACHE` names another one; set to
nothing, no program is kept), in a subfolder for each version of JAX, set of XLA
flags and processor: a program that was compiled for another processor may use
instructions that this one does not have. Each run ends with how many programs
it compiled and how many it found.
"""

import contextlib
import hashlib
import os
import pathlib
import platform
import shutil
import tempfile

import jax
import pytest

# The least recently written programs are deleted beyond this.
_MAX_BYTES = 2**30
_MIN_FREE_BYTES = 2**28


class ProgramCache:
  """A pytest plugin: sets the folder, counts programs, bounds the folder."""

  def __init__(self):
    self._counts = {'compiled': 0, 'found': 0}
    self._problem = ''
    jax.monitoring.register_event_duration_secs_listener(self._on_duration)
    jax.monitoring.register_event_listener(self._on_event)
    self._folder = folder()
    if self._folder is not None:
      self._problem = problem(self._folder)
    if self._folder is None or self._problem:
      os.environ['JAX_COMPILATION_CACHE_DIR'] = ''
      return
    # Processes that a test starts read these; this one has read them already.
    os.environ['JAX_COMPILATION_CACHE_DIR'] = str(self._folder)
    os.environ['JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS'] = '0'
    jax.config.update('jax_compilation_cache_dir', str(self._folder))
    jax.config.update('jax_persistent_cache_min_compile_time_secs', 0.0)

  def _on_duration(self, event, duration, **_):
    del duration
    self._counts['compiled'] += event.endswith('/backend_compile_duration')

  def _on_event(self, event, **_):
    # JAX also reports a cached program as compiled.
    is_hit = event == '/jax/compilation_cache/cache_hits'
    self._counts['found'] += is_hit
    self._counts['compiled'] -= is_hit

  def pytest_sessionfinish(self, session):
    output = getattr(session.config, 'workeroutput', None)
    if output is not None:
      output['programs'] = self._counts
    elif self._folder is not None and not self._problem:
      _delete_oldest(self._folder.parent)

  @pytest.hookimpl(optionalhook=True)
  def pytest_testnodedown(self, node):
    # A worker that crashed has no output.
    output = getattr(node, 'workeroutput', {})
    for name, num in output.get('programs', {}).items():
      self._counts[name] += num

  def pytest_terminal_summary(self, terminalreporter):
    location = (
      f'in {self._folder}' if self._folder else 'without a cache folder'
    )
    if self._problem:
      location = f'without the cache folder {self._folder}: {self._problem}'
    terminalreporter.write_line(
      'Compiled {compiled} programs and found {found}, '.format(**self._counts)
      + f'{location}.'
    )


def folder() -> pathlib.Path | None:
  """Returns the folder for this JAX, XLA flags and processor, or None."""
  home = os.environ.get('SPECJAX_TEST_CACHE')
  if home == '':
    return None
  if home is None:
    cache = os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache')
    home = os.path.join(cache, 'specjax', 'tests')
  parts = jax.__version__, jax.lib.__version__, os.environ.get('XLA_FLAGS', '')
  text = repr((*parts, _processor()))
  return pathlib.Path(home, hashlib.sha256(text.encode()).hexdigest()[:16])


def _processor():
  """Returns the processor's model and instruction sets."""
  path = pathlib.Path('/proc/cpuinfo')
  if not path.exists():
    return platform.processor()
  lines = path.read_text(encoding='utf-8').split('\n\n')[0].splitlines()
  names = 'vendor_id', 'cpu family', 'model', 'model name', 'flags', 'Features'
  return [line for line in lines if line.split('\t')[0].strip() in names]


def problem(folder):
  """Returns why programs cannot be kept in a folder; empty if they can."""
  try:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder):
      pass
  except OSError as error:
    return f'{error.strerror or error}'
  if shutil.disk_usage(folder).free < _MIN_FREE_BYTES:
    return f'less than {_MIN_FREE_BYTES >> 20} MiB are free'
  return ''


def _delete_oldest(folder):
  """Deletes the least recently written files until the rest is small enough."""
  files = []
  for path in filter(pathlib.Path.is_file, folder.rglob('*')):
    # Another run may delete files at the same time.
    with contextlib.suppress(FileNotFoundError):
      stat = path.stat()
      files.append((stat.st_mtime, stat.st_size, path))
  total = sum(size for _, size, _ in files)
  for _, size, path in sorted(files):
    if total <= _MAX_BYTES:
      break
    total -= size
    path.unlink(missing_ok=True)
