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

Row = dict[str, Any]


def write(
  workdir: workdirs.Workdir,
  experiment: str,
  rows: Sequence[Row],
  claims: Sequence[Row] = (),
) -> None:
  """Writes `results.json`.

  Args:
    workdir: of the run.
    experiment: its name.
    rows: flat rows of a table, as JSON.
    claims: what the paper claims beside what was measured.
  """
  path = os.path.join(workdir, FILE)
  content = {
    'format': _FORMAT,
    'experiment': experiment,
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


def tables(rows: Sequence[Row], columns: Sequence[str] = ()) -> str:
  """Returns a table of each `part` that rows name; long parts are left out.

  Args:
    rows: flat.
    columns: as in `table`.
  """
  parts: dict[Any, list[Row]] = {}
  for row in rows:
    parts.setdefault(row.get('part'), []).append(row)
  return '\n\n'.join(
    f'{len(own)} rows of {part!r} are in {FILE}.'
    if part is not None and len(own) > _MOST_ROWS
    else table(own, columns)
    for part, own in parts.items()
  )


def table(rows: Sequence[Row], columns: Sequence[str] = ()) -> str:
  """Returns rows as an aligned text table; arguments as in `cells`."""
  lines = cells(rows, columns)
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
    + (' ± standard error' if f'{name}_error' in errors else '')
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
    text = f'{value:.3f}' if abs(value) < 1000 else f'{value:.0f}'
    return text if error is None else f'{text} ± {error:.3f}'
  return str(value)
