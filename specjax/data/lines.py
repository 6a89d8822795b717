"""Files of lines that a killed process may have left with a torn end."""

from collections.abc import Callable
import os


def keep_while(
  path: str | os.PathLike[str],
  wanted: Callable[[bytes], bool] = lambda line: True,
) -> int:
  """Cuts a file off before its first torn or unwanted line.

  In place: a kill at any moment must not lose the lines that are kept.

  Args:
    path: the file; nothing happens if there is none.
    wanted: whether to keep a complete line.

  Returns:
    The number of lines that are left.
  """
  if not os.path.exists(path):
    return 0
  with open(path, 'rb+') as file:
    num = end = 0
    for line in file:
      if not line.endswith(b'\n') or not wanted(line):
        break
      num += 1
      end += len(line)
    file.truncate(end)
  return num
