"""What every experiment leaves in its workdir: `results.json`, and a table."""

from collections.abc import Sequence
import json
import os
from typing import Any

from experiments.common import measure
from experiments.common import workdirs

FILE = 'results.json'
# Of the file; a reader refuses others.
_FORMAT = 2

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


def table(rows: Sequence[Row], columns: Sequence[str] = ()) -> str:
  """Returns rows as an aligned text table.

  Args:
    rows: flat.
    columns: those that are shown, by default all in order of appearance.
  """
  names = list(columns) or list(dict.fromkeys(name for r in rows for name in r))
  cells = [names] + [[cell(row.get(name)) for name in names] for row in rows]
  widths = [max(map(len, column)) for column in zip(*cells)]
  texts = [
    '  '.join(
      each.ljust(width) if i == 0 else each.rjust(width)
      for i, (each, width) in enumerate(zip(line, widths))
    )
    for line in cells
  ]
  return '\n'.join(text.rstrip() for text in texts)


def cell(value: Any) -> str:
  """Returns a value as tables show it; nothing for None."""
  if value is None:
    return ''
  return f'{value:.3f}' if isinstance(value, float) else str(value)
