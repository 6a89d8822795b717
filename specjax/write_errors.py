"""Files that cannot be written, reported in one sentence."""

from collections.abc import Iterator
import contextlib
import os


@contextlib.contextmanager
def explain(path: str | os.PathLike[str]) -> Iterator[None]:
  """Replaces errors of the operating system by a sentence with the path.

  Args:
    path: the file to write.

  Raises:
    ValueError: the block raised an `OSError`.
  """
  try:
    yield
  except OSError as error:
    reason = error.strerror or error
    raise ValueError(f'Cannot write {os.fspath(path)}: {reason}.') from error
