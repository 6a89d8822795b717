"""JSON objects in the files of a folder."""

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
  try:
    with open(path, encoding='utf-8') as file:
      fields = json.load(file)
  except (OSError, RecursionError, ValueError) as error:
    raise ValueError(f'Cannot read {path}: {error}.') from error
  if not isinstance(fields, dict):
    raise ValueError(f'{path} must hold a JSON object.')
  return fields


def write(
  folder: str | os.PathLike[str], name: str, fields: dict[str, Any]
) -> None:
  """Writes a file."""
  path = os.path.join(folder, name)
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(fields, file, indent=2, ensure_ascii=False)
    file.write('\n')
