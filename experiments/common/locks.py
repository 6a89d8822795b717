"""One process at a time in a folder."""

from collections.abc import Iterator
import contextlib
import os
import socket
import time

from specjax import write_errors

try:
  import fcntl
except ImportError:  # Windows has no such locks, and folders no protection.
  fcntl = None  # type: ignore[assignment]

FILE = 'lock'
# Seconds for which another process is waited for: a job that is being replaced
# may still be writing its last lines.
_PATIENCE = 60.0
_PAUSE = 0.1


@contextlib.contextmanager
def held(
  folder: str | os.PathLike[str], patience: float = _PATIENCE
) -> Iterator[None]:
  """Keeps other processes out of a folder, in which there is a file meanwhile.

  The lock is the system's, which takes it back when the process ends, however
  it ends; a file that is left behind locks nothing.

  Args:
    folder: which exists.
    patience: seconds to wait for a process that holds it.

  Raises:
    ValueError: it still holds it then, or the folder cannot be written.
  """
  path = os.path.join(folder, FILE)
  with write_errors.explain(path):
    file = _wait_for(path, folder, patience)
  try:
    yield
  finally:
    # Before the lock is given back: who waits opens a new file.
    with contextlib.suppress(OSError):
      os.unlink(path)
    file.close()


def _wait_for(path, folder, patience):
  """Returns the file, open and locked."""
  began, was_reported = time.monotonic(), False
  while True:
    file = open(path, 'a+', encoding='utf-8')
    if _lock(file):
      if _is_at(path, file):
        break
      file.close()  # Who had it has removed it since it was opened.
      continue
    file.seek(0)
    owner = file.read() or 'another process'
    in_use = f'{folder} is in use by {owner}'
    file.close()
    # Who waits for itself waits in vain.
    if owner == _this_process() or time.monotonic() - began > patience:
      raise ValueError(f'{in_use}. Use another workdir, or wait for its end.')
    if not was_reported:
      print(f'{in_use}: waiting for {patience:.0f} seconds at most.')
      was_reported = True
    time.sleep(_PAUSE)
  file.truncate(0)
  file.write(_this_process())
  file.flush()
  return file


def _this_process():
  return f'process {os.getpid()} on {socket.gethostname()}'


def _lock(file):
  """Whether no other process has it."""
  try:
    if fcntl is not None:
      fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
  except BlockingIOError:
    return False
  except OSError as error:  # Some network file systems have no locks.
    print(f'{file.name} cannot be locked ({error.strerror}).')
  return True


def _is_at(path, file):
  try:
    return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
  except FileNotFoundError:
    return False
