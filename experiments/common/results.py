"""Writes and reads `results.json`, and formats rows as tables of text."""

from collections.abc import Sequence
import math
import os
import pathlib
from typing import Any

import pandas as pd

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
    'complete': not workdir.is_incomplete,
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


def frame(rows: Sequence[Row]) -> pd.DataFrame:
  """Returns rows as a data frame; columns that a row lacks are NaN."""
  return pd.DataFrame(list(rows), dtype=object)


def records(table: pd.DataFrame) -> list[Row]:
  """Returns the rows of `frame`, each without the columns that it lacks."""
  is_nan = lambda value: isinstance(value, float) and math.isnan(value)
  return [
    {name: value for name, value in row.items() if not is_nan(value)}
    for row in table.to_dict('records')
  ]


def tables(rows: Sequence[Row], config: Any) -> list[pd.DataFrame]:
  """Returns the tables that a config specifies, with cells of text.

  There is one table per value of the column `part`, or a single table if rows
  have no parts. A long part is replaced by a reference to the file.

  Args:
    rows: the rows of a result.
    config: has `columns`, the names of the columns to be shown; or `pivot`, a
      dictionary of `down`, the columns that name a line, `across`, the column
      whose values become the table's columns, and `value`, the column that
      fills the table.
  """
  whole = frame(rows)
  if 'part' not in whole:
    return [_table(whole, config)]
  parts = whole.groupby('part', sort=False, dropna=False)
  return [_table(part, config, name) for name, part in parts]


def _table(rows: pd.DataFrame, config: Any, name: Any = None) -> pd.DataFrame:
  """Returns the table of one part, or of rows without parts."""
  if isinstance(name, str) and len(rows) > _MOST_ROWS:
    reference = f'{len(rows)} rows of {name!r} are in {FILE}.'
    return pd.DataFrame(columns=[reference])
  if config.get('pivot', None):
    return pivot(rows, **config.pivot)
  return cells(rows, config.get('columns', ()))


def pivot(
  rows: pd.DataFrame, down: Sequence[str], across: str, value: str
) -> pd.DataFrame:
  """Returns one line per value of `down`, one column per value of `across`.

  The paper's numbers follow ours in parentheses.
  """
  rows = rows.dropna(subset=[value, across])
  texts = _column(rows, value)
  if 'paper' in rows:
    of_value = rows['paper_field'] == value
    numbers = rows['paper'].map(cell)
    texts = texts.where(~of_value, texts + ' (' + numbers + ')')
  names = {name.replace('_', ' '): rows[name].map(cell) for name in down}
  headers = rows[across].map(str)
  lines = pd.DataFrame({**names, across: headers, value: texts})
  keys = [*names, across]
  lines = lines.drop_duplicates(keys, keep='last').set_index(keys)[value]
  table = lines.unstack(fill_value='', sort=False)[headers.unique()]
  return table.rename_axis(columns=None).reset_index()


def cells(
  rows: pd.DataFrame | Sequence[Row], columns: Sequence[str] = ()
) -> pd.DataFrame:
  """Returns a table of text: standard errors are shown next to their values.

  By default, all columns that have a value in some row are shown.
  """
  if not isinstance(rows, pd.DataFrame):
    rows = frame(rows)
  table = rows.dropna(axis='columns', how='all')
  names = [name for name in columns or table if name in table]
  errors = {f'{name}_error' for name in names} & {*table}
  headers = {
    name: name.replace('_', ' ')
    + (_ERRORS.get(name, _ERRORS['']) if f'{name}_error' in errors else '')
    for name in names
    if name not in errors
  }
  return pd.DataFrame(
    {header: _column(table, name) for name, header in headers.items()}
  )


def _column(rows: pd.DataFrame, name: str) -> pd.Series:
  """Returns a column as text, with errors if there are any."""
  nothing = pd.Series(None, rows.index, dtype=object)
  pairs = zip(rows.get(name, nothing), rows.get(f'{name}_error', nothing))
  return pd.Series([cell(*pair) for pair in pairs], rows.index, dtype=object)


def cell(value: Any, error: float | None = None) -> str:
  """Formats a value for tables; a missing value is an empty cell."""
  if value is None or value is pd.NA or value != value:
    return ''
  if isinstance(value, float) and math.isfinite(value):
    digits = 3 if abs(value) < 100 else 1
    text = f'{value:.{digits}f}'
    missing = error is None or error != error
    return text if missing else f'{text} ± {error:.{digits}f}'
  return str(value)


def text(table: pd.DataFrame) -> str:
  """Formats a table for a terminal."""
  return markdown(table) if table.empty else table.to_string(index=False)


def markdown(table: pd.DataFrame) -> str:
  """Formats a table as Markdown; one without rows is a sentence."""
  if table.empty:
    return ' '.join(table)
  lines = [table.columns, ['---'] * table.shape[1], *table.to_numpy()]
  return '\n'.join(
    '| ' + ' | '.join(str(cell).replace('|', '\\|') for cell in line) + ' |'
    for line in lines
  )
