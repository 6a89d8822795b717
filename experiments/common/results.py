"""What every experiment leaves in its workdir: `results.json`, and a table."""

from collections.abc import Sequence
import math
import os
import pathlib
from typing import Any

from experiments.common import measure
from experiments.common import workdirs
from specjax import json_files

FILE = 'results.json'
# Of the file; a reader refuses others.
_FORMAT = 2
# Of a part of the rows that is printed.
_MOST_ROWS = 40

# What stands behind the sign, by column; the paper's are of several kinds.
_ERRORS = {'': ' ± standard error', 'paper': ' ± as printed'}

Row = dict[str, Any]


def write(
  workdir: workdirs.Workdir,
  experiment: str,
  command: str,
  rows: Sequence[Row],
  claims: Sequence[Row] = (),
  device: str = '',
) -> None:
  """Writes `results.json`; the command is '' if it is not known.

  The device is by default the one that JAX computes on.
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
  """Raises a `ValueError` if results could not be written in the end."""
  path = os.path.join(str(workdir), FILE)
  if os.path.isdir(path):
    raise ValueError(f'{path} must be a file, not a folder.')


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
  """Reads what `write` has written: the file, or that of a workdir."""
  file = pathlib.Path(os.path.expanduser(path))
  if file.is_dir():
    file /= FILE
  if not file.is_file():
    raise ValueError(f'There are no results in {file}.')
  content = json_files.load(file)
  version = content.get('format', 1) if isinstance(content, dict) else 1
  if version != _FORMAT:
    raise ValueError(
      f'{file} is of format {version}, and only format {_FORMAT} is read: '
      'run its config again.'
    )
  return content


def save_json(path: str, content: Any) -> None:
  """Writes a file of a workdir as JSON, all of it or nothing."""
  workdirs.replace(path, json_files.dumps(content, indent=1) + '\n')


def shown(rows: Sequence[Row], config: Any) -> list[list[list[str]]]:
  """Returns the cells of the tables that a config asks for.

  There is a table for each value of `part`, or one if rows have no parts. Of a
  long part there is only its name; the file has its rows.

  A config has `columns`, names of those that are shown; or `pivot`, a
  dictionary of `down`, columns that name a line, `across`, the column whose
  values are the table's columns, and `value`, the column that fills it.
  """
  parts: dict[Any, list[Row]] = {}
  for row in rows:
    parts.setdefault(row.get('part'), []).append(row)
  return [_shown(part, own, config) for part, own in parts.items()]


def _shown(part, rows, config):
  """The cells of a part."""
  if part is not None and len(rows) > _MOST_ROWS:
    return [[f'{len(rows)} rows of {part!r} are in {FILE}.']]
  if config.get('pivot', None):
    return _pivoted(rows, **config.pivot)
  return cells(rows, config.get('columns', ()))


def _pivoted(rows, down, across, value):
  """A line for each value of some columns, a column for each of another."""
  rows = [row for row in rows if row.get(value) is not None and across in row]
  heads = list(dict.fromkeys(str(row[across]) for row in rows))
  lines: dict[tuple[str, ...], dict[str, str]] = {}
  for row in rows:
    name = tuple(_cell(row.get(each), None) for each in down)
    text = _cell(row[value], row.get(f'{value}_error'))
    if row.get('paper_field') == value:
      text += f' ({_cell(row["paper"], None)})'
    lines.setdefault(name, {})[str(row[across])] = text
  return [[*(name.replace('_', ' ') for name in down), *heads]] + [
    [*name, *(line.get(head, '') for head in heads)]
    for name, line in lines.items()
  ]


def table(lines: Sequence[Sequence[str]]) -> str:
  """Returns cells, the first line their head, as an aligned text table."""
  first, *widths = [max(map(len, column)) for column in zip(*lines)]
  texts = [
    '  '.join([line[0].ljust(first), *map(str.rjust, line[1:], widths)])
    for line in lines
  ]
  return '\n'.join(text.rstrip() for text in texts)


def cells(rows: Sequence[Row], columns: Sequence[str] = ()) -> list[list[str]]:
  """Returns what a table shows: its head, and the cells of each row.

  A column stands with the standard error beside it, if the rows have one. All
  columns in which a row has something are shown by default, in order of
  appearance.
  """
  known = list(
    dict.fromkeys(
      name for row in rows for name, value in row.items() if value is not None
    )
  )
  names = [name for name in columns or known if name in known]
  errors = {f'{name}_error' for name in names} & set(known)
  names = [name for name in names if name not in errors]
  head = [
    name.replace('_', ' ')
    + (_ERRORS.get(name, _ERRORS['']) if f'{name}_error' in errors else '')
    for name in names
  ]
  return [head] + [
    [_cell(row.get(name), row.get(f'{name}_error')) for name in names]
    for row in rows
  ]


def _cell(value, error):
  """A value as tables show it; nothing for None."""
  if value is None:
    return ''
  if isinstance(value, float) and math.isfinite(value):
    digits = 3 if abs(value) < 100 else 1
    text = f'{value:.{digits}f}'
    return text if error is None else f'{text} ± {error:.{digits}f}'
  return str(value)
