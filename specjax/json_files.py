"""Reads and writes JSON files."""

import json
import os
from typing import Any


def read(folder: str | os.PathLike[str], name: str) -> dict[str, Any]:
  """Returns the fields of a JSON object; none if the file does not exist.

  Args:
    folder: folder of the file.
    name: name of the file.

  Raises:
    ValueError: the file cannot be read, or is not a JSON object.
  """
  path = os.path.join(folder, name)
  if not os.path.exists(path):
    return {}
  fields = load(path)
  if not isinstance(fields, dict):
    raise ValueError(f'{path} must contain a JSON object.')
  return fields


def load(path: str | os.PathLike[str]) -> Any:
  """Returns the value in a JSON file.

  Raises:
    ValueError: the file cannot be read, or is not JSON.
  """
  try:
    with open(path, encoding='utf-8') as file:
      return json.load(file)
  except (OSError, RecursionError, ValueError) as error:
    raise ValueError(f'Cannot read {path}: {error}.') from error


def write(
  folder: str | os.PathLike[str], name: str, fields: dict[str, Any]
) -> None:
  """Writes fields to a JSON file.

  Args:
    folder: folder of the file.
    name: name of the file.
    fields: the fields.
  """
  path = os.path.join(folder, name)
  with open(path, 'w', encoding='utf-8') as file:
    file.write(dumps(fields, indent=2) + '\n')


def dumps(value: Any, indent: int | None = None) -> str:
  """Returns a value as readable JSON that can be written as UTF-8.

  Characters are escaped only if the text contains half a surrogate pair, for
  example from a file name in another encoding.
  """
  text = json.dumps(value, indent=indent, ensure_ascii=False)
  try:
    text.encode()
  except UnicodeEncodeError:
    return json.dumps(value, indent=indent)
  return text
