"""Reads JSONL files, which a killed process may have left incomplete."""

from collections.abc import Callable
import json
import os
from typing import Any


def read(path: str | os.PathLike[str]) -> list[bytes]:
  """Returns the lines of a file, with their line ends.

  Only `\\n` ends a line, since strings may contain Unicode's line separators.

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
  keep: Callable[[dict[str, Any]], bool] = lambda row: True,
) -> list[dict[str, Any]]:
  """Truncates a file before its first incomplete or rejected line.

  The file is truncated in place, so that a kill at any moment loses none of the
  lines that are kept. Only the last line can be incomplete. Earlier lines are
  damaged only by failures of a machine or a disk; they are reported, not
  removed.

  Args:
    path: the file; nothing happens if it does not exist.
    keep: returns whether to keep the object of a complete line.

  Returns:
    The objects of the remaining lines.

  Raises:
    ValueError: the file cannot be read, or lines are damaged, which are listed.
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
    elif keep(row):
      rows.append(row)
    else:
      break
    end += len(line)
  if damaged:
    raise ValueError(
      f'{path} is damaged: there is no JSON object in line '
      f'{", ".join(map(str, damaged))}. Delete damaged lines to continue '
      'without them.'
    )
  if end < sum(map(len, lines)):
    os.truncate(path, end)
  return rows


def _parse(line: bytes) -> dict[str, Any] | None:
  """Returns the JSON object of a line, or None."""
  try:
    row = json.loads(line.decode())
  except (RecursionError, ValueError):
    return None
  return row if isinstance(row, dict) else None
