"""What every experiment leaves in its workdir: `results.json`, and a table."""

from collections.abc import Sequence
import json
import math
import os
from typing import Any

from experiments.common import measure
from experiments.common import workdirs

FILE = 'results.json'
# Of the file; a reader refuses others.
_FORMAT = 2
# Of a part of the rows that is printed.
_MOST_ROWS = 100

# What stands behind the sign, by column; the paper's are of several kinds.
_ERRORS = {'': ' ± standard error', 'paper': ' ± as printed'}

Row = dict[str, Any]


def write(
  workdir: workdirs.Workdir,
  experiment: str,
  command: str,
  rows: Sequence[Row],
  claims: Sequence[Row] = (),
) -> None:
  """Writes `results.json`.

  Args:
    workdir: of the run.
    experiment: its name.
    command: that was run, '' if it is not known.
    rows: flat rows of a table, as JSON.
    claims: what the paper claims beside what was measured.
  """
  path = os.path.join(workdir, FILE)
  content = {
    'format': _FORMAT,
    'experiment': experiment,
    'command': command,
    'device': measure.device(),
    'rows': list(rows),
    'claims': list(claims),
  }
  with open(f'{path}.part', 'w', encoding='utf-8') as file:
    json.dump(content, file, indent=1, ensure_ascii=False)
    file.write('\n')
  os.replace(f'{path}.part', path)


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
  """Reads what `write` has written: a dictionary with `rows` and `claims`.

  Args:
    path: the file, or the workdir that it is in.

  Raises:
    ValueError: there is none, or it is of another format.
  """
  file_path = os.fspath(path)
  if os.path.isdir(file_path):
    file_path = os.path.join(file_path, FILE)
  if not os.path.isfile(file_path):
    raise ValueError(f'There are no results in {file_path}.')
  with open(file_path, encoding='utf-8') as file:
    content = json.load(file)
  version = content.get('format', 1) if isinstance(content, dict) else 1
  if version != _FORMAT:
    raise ValueError(
      f'{file_path} is of format {version}, and only format {_FORMAT} is read: '
      'run its config again.'
    )
  return content


def save_json(path: str, content: Any) -> None:
  """Writes another file of a workdir as JSON."""
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(content, file, indent=1, ensure_ascii=False)
    file.write('\n')


def shown(rows: Sequence[Row], config: Any) -> list[list[list[str]]]:
  """Returns the cells of the tables that a config asks for.

  There is a table for each value of `part`, or one if rows have no parts. Of a
  long part there is only its name; the file has its rows.

  Args:
    rows: flat.
    config: with `columns`, names of those that are shown; or with `pivot`, a
      dictionary of `down`, columns that name a line, `across`, the column whose
      values are the table's columns, and `value`, the column that fills it. All
      columns of the rows, by default.
  """
  parts: dict[Any, list[Row]] = {}
  for row in rows:
    parts.setdefault(row.get('part'), []).append(row)
  return [
    [[f'{len(own)} rows of {part!r} are in {FILE}.']]
    if part is not None and len(own) > _MOST_ROWS
    else _pivoted(own, **config.pivot)
    if config.get('pivot', None)
    else cells(own, config.get('columns', ()))
    for part, own in parts.items()
  ]


def _pivoted(rows, down, across, value):
  """A line for each value of some columns, a column for each of another."""
  rows = [row for row in rows if row.get(value) is not None and across in row]
  heads = list(dict.fromkeys(str(row[across]) for row in rows))
  lines: dict[tuple[str, ...], dict[str, str]] = {}
  for row in rows:
    name = tuple(_cell(row.get(each), None) for each in down)
    lines.setdefault(name, {})[str(row[across])] = _with_paper(row, value)
  return [[*(name.replace('_', ' ') for name in down), *heads]] + [
    [*name, *(line.get(head, '') for head in heads)]
    for name, line in lines.items()
  ]


def table(lines: Sequence[Sequence[str]]) -> str:
  """Returns cells, the first line their head, as an aligned text table."""
  widths = [max(map(len, column)) for column in zip(*lines)]
  texts = [
    '  '.join(
      each.ljust(width) if i == 0 else each.rjust(width)
      for i, (each, width) in enumerate(zip(line, widths))
    )
    for line in lines
  ]
  return '\n'.join(text.rstrip() for text in texts)


def cells(rows: Sequence[Row], columns: Sequence[str] = ()) -> list[list[str]]:
  """Returns what a table shows: its head, and the cells of each row.

  A column stands with the standard error beside it, if the rows have one.

  Args:
    rows: flat.
    columns: those that are shown, by default all in order of appearance.
  """
  known = list(dict.fromkeys(name for row in rows for name in row))
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


def _with_paper(row, name):
  """A number with its error, and the paper's in brackets."""
  text = _cell(row[name], row.get(f'{name}_error'))
  if row.get('paper_field') != name:
    return text
  return f'{text} ({_cell(row["paper"], None)})'


def _cell(value, error):
  """A value as tables show it; nothing for None."""
  if value is None:
    return ''
  if isinstance(value, float) and math.isfinite(value):
    text = f'{value:.3f}' if abs(value) < 1000 else f'{value:.0f}'
    return text if error is None else f'{text} ± {error:.3f}'
  return str(value)
