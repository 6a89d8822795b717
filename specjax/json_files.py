"""JSON in files."""

import json
import os
from typing import Any


def read(folder: str | os.PathLike[str], name: str) -> dict[str, Any]:
  """Returns the fields of a file; none if there is no file.

  Raises:
    ValueError: the file is no JSON, or no object.
  """
  path = os.path.join(folder, name)
  if not os.path.exists(path):
    return {}
  fields = load(path)
  if not isinstance(fields, dict):
    raise ValueError(f'{path} must hold a JSON object.')
  return fields


def load(path: str | os.PathLike[str]) -> Any:
  """Returns what a file holds.

  Raises:
    ValueError: the file cannot be read, or is no JSON.
  """
  try:
    with open(path, encoding='utf-8') as file:
      return json.load(file)
  except (OSError, RecursionError, ValueError) as error:
    raise ValueError(f'Cannot read {path}: {error}.') from error


def write(
  folder: str | os.PathLike[str], name: str, fields: dict[str, Any]
) -> None:
  """Writes a file."""
  path = os.path.join(folder, name)
  with open(path, 'w', encoding='utf-8') as file:
    file.write(dumps(fields, indent=2) + '\n')


def dumps(value: Any, indent: int | None = None) -> str:
  """Returns JSON that every file can hold, and people can read.

  Characters are escaped only where half a surrogate pair, as of a file name of
  another encoding, cannot be written as UTF-8.
  """
  text = json.dumps(value, indent=indent, ensure_ascii=False)
  try:
    text.encode()
  except UnicodeEncodeError:
    return json.dumps(value, indent=indent)
  return text
