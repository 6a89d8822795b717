"""Writes and reads `results.json`, and formats rows as tables."""

from collections.abc import Sequence
import math
import os
import pathlib
from typing import Any

from experiments.common import measure
from experiments.common import workdirs
from specjax import json_files

FILE = 'results.json'
# The format of the file; files with other formats raise an error.
_FORMAT = 2
# The longest part of the rows that is shown as a table.
_MOST_ROWS = 40

# Headers of errors, by column; the paper's errors are of several kinds.
_ERRORS = {'': ' ± standard error', 'paper': ' ± as in the paper'}

Row = dict[str, Any]


def write(
  workdir: workdirs.Workdir,
  experiment: str,
  command: str,
  rows: Sequence[Row],
  claims: Sequence[Row] = (),
  device: str = '',
) -> None:
  """Writes `results.json`.

  Args:
    workdir: the folder of the run.
    experiment: the name of the experiment.
    command: the command of the run, or '' if it is not known.
    rows: the rows of the result.
    claims: rows that compare ratios with the paper's.
    device: the device of the run; defaults to JAX's device.
  """
  content = {
    'format': _FORMAT,
    'experiment': experiment,
    'command': command,
    'device': device or measure.device(),
    'rows': list(rows),
    'claims': list(claims),
  }
  save_json(os.path.join(workdir, FILE), content)


def check(workdir: workdirs.Workdir) -> None:
  """Raises `ValueError` if results cannot be written at the end of the run."""
  path = os.path.join(str(workdir), FILE)
  if os.path.isdir(path):
    raise ValueError(f'{path} must be a file, not a folder.')


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
  """Reads a file of `write`, or the one in a workdir.

  Raises:
    ValueError: there is no such file, or it has another format.
  """
  file = pathlib.Path(os.path.expanduser(path))
  if file.is_dir():
    file /= FILE
  if not file.is_file():
    raise ValueError(f'There are no results in {file}.')
  content = json_files.load(file)
  version = content.get('format', 1) if isinstance(content, dict) else 1
  if version != _FORMAT:
    raise ValueError(
      f'{file} has format {version}, but only format {_FORMAT} is supported: '
      'run its config again.'
    )
  return content


def save_json(path: str, content: Any) -> None:
  """Writes a JSON file of a workdir atomically."""
  workdirs.replace(path, json_files.dumps(content, indent=1) + '\n')


def tables(rows: Sequence[Row], config: Any) -> list[list[list[str]]]:
  """Returns the cells of the tables that a config specifies.

  There is one table per value of the column `part`, or a single table if rows
  have no parts. A long part is replaced by a reference to the file.

  Args:
    rows: the rows of a result.
    config: has `columns`, the names of the columns to be shown; or `pivot`, a
      dictionary of `down`, the columns that name a line, `across`, the column
      whose values become the table's columns, and `value`, the column that
      fills the table.
  """
  parts: dict[Any, list[Row]] = {}
  for row in rows:
    parts.setdefault(row.get('part'), []).append(row)
  return [_table(part, part_rows, config) for part, part_rows in parts.items()]


def _table(part: Any, rows: Sequence[Row], config: Any) -> list[list[str]]:
  """Returns the cells of one part."""
  if part is not None and len(rows) > _MOST_ROWS:
    return [[f'{len(rows)} rows of {part!r} are in {FILE}.']]
  if config.get('pivot', None):
    return _pivot(rows, **config.pivot)
  return cells(rows, config.get('columns', ()))


def _pivot(
  rows: Sequence[Row], down: Sequence[str], across: str, value: str
) -> list[list[str]]:
  """Returns one line per value of `down`, one column per value of `across`."""
  rows = [row for row in rows if row.get(value) is not None and across in row]
  headers = list(dict.fromkeys(str(row[across]) for row in rows))
  lines: dict[tuple[str, ...], dict[str, str]] = {}
  for row in rows:
    name = tuple(_cell(row.get(column), None) for column in down)
    text = _cell(row[value], row.get(f'{value}_error'))
    if row.get('paper_field') == value:
      text += f' ({_cell(row["paper"], None)})'
    lines.setdefault(name, {})[str(row[across])] = text
  return [[*(name.replace('_', ' ') for name in down), *headers]] + [
    [*name, *(line.get(header, '') for header in headers)]
    for name, line in lines.items()
  ]


def table(lines: Sequence[Sequence[str]]) -> str:
  """Formats cells as an aligned text table; the first line has the headers."""
  first, *widths = [max(map(len, column)) for column in zip(*lines)]
  texts = [
    '  '.join([line[0].ljust(first), *map(str.rjust, line[1:], widths)])
    for line in lines
  ]
  return '\n'.join(text.rstrip() for text in texts)


def cells(rows: Sequence[Row], columns: Sequence[str] = ()) -> list[list[str]]:
  """Returns the cells of a table: a line of headers, then one per row.

  Standard errors are shown next to their values. By default, all columns that
  have a value in some row are shown, in order of appearance.
  """
  known = list(
    dict.fromkeys(
      name for row in rows for name, value in row.items() if value is not None
    )
  )
  names = [name for name in columns or known if name in known]
  errors = {f'{name}_error' for name in names} & set(known)
  names = [name for name in names if name not in errors]
  headers = [
    name.replace('_', ' ')
    + (_ERRORS.get(name, _ERRORS['']) if f'{name}_error' in errors else '')
    for name in names
  ]
  return [headers] + [
    [_cell(row.get(name), row.get(f'{name}_error')) for name in names]
    for row in rows
  ]


def _cell(value: Any, error: float | None) -> str:
  """Formats a value for tables; None is an empty cell."""
  if value is None:
    return ''
  if isinstance(value, float) and math.isfinite(value):
    digits = 3 if abs(value) < 100 else 1
    text = f'{value:.{digits}f}'
    return text if error is None else f'{text} ± {error:.{digits}f}'
  return str(value)
