"""Locks folders, so that one process at a time uses each."""

from collections.abc import Iterator
import contextlib
import os
import socket
import time
from typing import IO

from specjax import write_errors

try:
  import fcntl
except ImportError:  # Without such locks, as on Windows, nothing is locked.
  fcntl = None  # type: ignore[assignment]

FILE = 'lock'
# Seconds to wait for another process: a job that is being replaced may still be
# writing its last lines.
_PATIENCE = 60.0
_PAUSE = 0.1


@contextlib.contextmanager
def held(
  folder: str | os.PathLike[str], patience: float = _PATIENCE
) -> Iterator[None]:
  """Locks a folder against other processes, by a file in it.

  The operating system holds the lock and releases it when the process ends, in
  whatever manner; a stale file locks nothing.

  Args:
    folder: an existing folder.
    patience: seconds to wait for a process that holds the lock.

  Raises:
    ValueError: another process still holds the lock after this time, or the
      folder cannot be written.
  """
  path = os.path.join(folder, FILE)
  with write_errors.explain(path):
    file = _wait_for(path, folder, patience)
  try:
    yield
  finally:
    # Before the lock is released: a waiting process opens a new file.
    with contextlib.suppress(OSError):
      os.unlink(path)
    file.close()


def _wait_for(
  path: str, folder: str | os.PathLike[str], patience: float
) -> IO[str]:
  """Waits for the lock; returns the file, open and locked."""
  began, was_reported = time.monotonic(), False
  while True:
    file = open(path, 'a+', encoding='utf-8')
    if _lock(file):
      if _is_at(path, file):
        break
      file.close()  # Its owner has removed it since it was opened.
      continue
    file.seek(0)
    owner = file.read() or 'another process'
    message = f'{folder} is in use by {owner}'
    file.close()
    # A process that waits for itself would wait forever.
    if owner == _this_process() or time.monotonic() - began > patience:
      raise ValueError(f'{message}. Use another workdir, or wait for its end.')
    if not was_reported:
      print(f'{message}: waiting for {patience:.0f} seconds at most.')
      was_reported = True
    time.sleep(_PAUSE)
  file.truncate(0)
  file.write(_this_process())
  file.flush()
  return file


def _this_process() -> str:
  return f'process {os.getpid()} on {socket.gethostname()}'


def _lock(file: IO[str]) -> bool:
  """Locks a file; returns whether no other process has locked it."""
  try:
    if fcntl is not None:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:  # Some network file systems have no locks.
    print(f'{file.name} cannot be locked ({error.strerror}).')
  return True


def _is_at(path: str, file: IO[str]) -> bool:
  try:
    return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
  except FileNotFoundError:
    return False
