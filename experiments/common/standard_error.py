"""Filters the standard error of libraries, below Python."""

from collections.abc import Iterator
import contextlib
import os
import re
import tempfile


@contextlib.contextmanager
def without(pattern: bytes) -> Iterator[None]:
  """Drops text that matches a pattern; writes all other text at the end.

  Libraries in C++ write to the file descriptor, which Python's `sys.stderr`
  and its log handlers do not see. Nothing is dropped if it is closed.

  Args:
    pattern: a regular expression, whose `^` and `$` match at each line.
  """
  try:
    original = os.dup(2)
  except OSError:
    yield
    return
  with tempfile.TemporaryFile() as file:
    os.dup2(file.fileno(), 2)
    try:
      yield
    finally:
      os.dup2(original, 2)
      os.close(original)
      file.seek(0)
      kept = re.sub(pattern, b'', file.read(), flags=re.MULTILINE)
      while kept:
        kept = kept[os.write(2, kept) :]
