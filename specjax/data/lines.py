"""Files of a JSON object per line, whose end a killed process may have torn."""

from collections.abc import Callable
import json
import os
from typing import Any


def read(path: str | os.PathLike[str]) -> list[bytes]:
  """Returns the lines of a file, each with its end.

  Only `\\n` ends a line: some separators of Unicode occur inside of strings.

  Raises:
    ValueError: the file cannot be read.
  """
  try:
    with open(path, 'rb') as file:
      return list(file)
  except OSError as error:
    raise ValueError(f'Cannot read {path}: {error.strerror}.') from error


def keep_while(
  path: str | os.PathLike[str],
  wanted: Callable[[dict[str, Any]], bool] = lambda row: True,
) -> list[dict[str, Any]]:
  """Cuts a file off before its first torn or unwanted line.

  In place: a kill at any moment must not lose the lines that are kept. Lines
  before the end are never torn, and are only damaged where a machine or a disk
  has failed: those are not cut, but named.

  Args:
    path: the file; nothing happens if there is none.
    wanted: whether to keep a complete line.

  Returns:
    The objects that are left.

  Raises:
    ValueError: the file cannot be read, or lines are damaged; it says which.
  """
  if not os.path.exists(path):
    return []
  lines, rows, damaged, end = read(path), [], [], 0
  for number, line in enumerate(lines, start=1):
    if not line.endswith(b'\n'):
      break
    row = _parse(line)
    if row is None:
      damaged.append(number)
    elif wanted(row):
      rows.append(row)
    else:
      break
    end += len(line)
  if damaged:
    raise ValueError(
      f'{path} is damaged: there is no JSON object in line '
      f'{", ".join(map(str, damaged))}. Delete what is damaged to go on '
      'without it.'
    )
  if end < sum(map(len, lines)):
    os.truncate(path, end)
  return rows


def _parse(line):
  """A JSON object, or None."""
  try:
    row = json.loads(line.decode())
  except (RecursionError, ValueError):
    return None
  return row if isinstance(row, dict) else None
