"""Adds the paper's numbers to rows, and compares the ratios that it claims.

The papers' printed tables are CSV files in `configs/PAPER/tables`: the columns
that name the place of a number, and the numbers. `read` and `table` turn them
into `config.paper`, a tuple of dictionaries:

    source   where the numbers are from, such as 'SpecTr, Table 4'
    field    the column of our rows that they are compared with
    rows     dictionaries of the columns that a row must have, the number as
             `paper`, and perhaps its error as `paper_error`
    claims   a tuple of (claim, above, below, ratio): the paper's ratio of two
             rows, which defaults to the ratio of their numbers; or, with None
             for `below`, the paper's number for one row
    measured the column that our ratios are computed from; defaults to `field`

`above` and `below` are the columns that a row must have, such as
{'method': 'small:4'}. A row that several tables match receives the number of
the last one.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import pathlib
from typing import Any

import numpy as np
import pandas as pd

from experiments.common import results
from specjax import metrics

Row = dict[str, Any]

# A column that is not written to files: estimates over prompts, of type
# `specjax.metrics.Estimate`, by the name of the column that they belong to.
PAIRED = 'paired'
# Columns that are equal for rows on the same prompts.
_SAME = 'prompts', 'domain'
_CONFIGS = pathlib.Path(__file__).parents[2] / 'configs'
_NUMBERS = ['paper', 'paper_error']


def read(file: str, **names: Mapping[Any, Any]) -> pd.DataFrame:
  """Returns a printed table, in our names.

  Args:
    file: the folder and the name of the file, such as 'spectr/table_4'.
    **names: by column, our values for those of the paper; rows with other
      values are left out.
  """
  folder, name = file.split('/')
  numbers = pd.read_csv(_CONFIGS / folder / 'tables' / f'{name}.csv')
  for column, values in names.items():
    numbers[column] = numbers[column].map(values)
  return numbers.dropna(subset=list(names))


def table(
  source: str,
  field: str,
  numbers: pd.DataFrame,
  where: Mapping[str, Any] | None = None,
  ratios: Sequence[tuple[str, str]] = (),
  number: str = 'number',
  **options: Any,
) -> dict[str, Any]:
  """Returns an element of `config.paper`.

  Args:
    source: where the numbers are from.
    field: the column of our rows that they are compared with.
    numbers: columns of our rows, such as `method`, a column with the numbers,
      and perhaps their `error`.
    where: further columns that our rows must have.
    ratios: pairs of methods whose ratio is a claim, for every value of the
      other columns; the value of the first one replaces '{}' in them.
    number: the column with the numbers.
    **options: further fields of the element.
  """
  where = dict(where or {})
  numbers = numbers.rename(columns=dict(zip((number, 'error'), _NUMBERS)))
  rows = results.records(numbers)
  names = [name for name in numbers if name not in ('method', *_NUMBERS)]
  lines = numbers[names].drop_duplicates().to_dict('records') if names else [{}]
  return {
    'source': source,
    'field': field,
    'rows': tuple(where | row for row in rows),
    'claims': tuple(
      (
        ', '.join([' over '.join(pair), *map(str, line.values())]),
        *(where | line | {'method': method} for method in pair),
      )
      for line in lines
      for pair in [
        [method.format(*line.values()) for method in pair] for pair in ratios
      ]
    ),
    **options,
  }


def add_numbers(rows: Sequence[Row], tables: Sequence[Any]) -> list[Row]:
  """Returns rows with the columns `paper`, `paper_error` and `paper_source`.

  The column `paper_field` names the column that a number belongs to. Rows that
  are not in the paper stay as they are.
  """
  result = results.frame(rows)
  for paper_table in tables:
    numbers = results.frame(paper_table['rows'])
    place_columns = [name for name in numbers if name not in _NUMBERS]
    if not set(place_columns) <= set(result) or numbers.empty:
      continue
    numbers['paper_field'] = paper_table['field']
    numbers['paper_source'] = paper_table['source']
    matches = (
      result[place_columns]
      .merge(numbers, 'left', place_columns)
      .set_axis(result.index)
    )
    matches = matches.drop(columns=place_columns).dropna(how='all')
    columns = dict.fromkeys([*result, *matches])
    result = result.reindex(columns=columns).astype(object)
    result.loc[matches.index, matches.columns] = matches
  return results.records(result)


def claims(rows: Sequence[Row], tables: Sequence[Any]) -> list[Row]:
  """Returns one row per claim: the paper's ratio, and ours with its error.

  Claims about rows that were not measured are left out, as are ratios to 0.
  """
  result = []
  for paper_table in tables:
    for claim, above, below, *ratio in paper_table.get('claims', ()):
      field = paper_table.get('measured', paper_table['field'])
      filters = [above] if below is None else [above, below]
      pair = [_first(rows, where) for where in filters]
      if any(row.get(field) is None for row in pair):
        continue
      if below is not None and not pair[1][field]:
        continue
      row = {'claim': claim, 'source': paper_table['source']}
      numbers = [
        _first(paper_table['rows'], where).get('paper') for where in filters
      ]
      row['paper'] = ratio[0] if ratio else numbers[0] / numbers[1]
      row['measured'], row['measured_error'] = _measured(field, *pair)
      result.append(row)
  return result


def unpaired(rows: Sequence[Row]) -> list[Row]:
  """Returns rows without `PAIRED`, as they are written to files."""
  return [
    {name: value for name, value in row.items() if name != PAIRED}
    for row in rows
  ]


def _measured(
  field: str, above: Row, below: Row | None = None
) -> tuple[float, float | None]:
  """Returns one number or the ratio of two, with its error if it is known.

  For rows on the same prompts, the variation that they share cancels.
  """
  error_name = f'{field}_error'
  if below is None:
    return above[field], above.get(error_name)
  paired = [row.get(PAIRED, {}).get(field) for row in (above, below)]
  same = all(above.get(name) == below.get(name) for name in _SAME)
  if same and None not in paired and _have_same_size(*paired):
    ratio = paired[0].over(paired[1])
    return ratio.value, ratio.error
  ratio = above[field] / below[field]
  return ratio, ratio_error(
    ratio, above.get(error_name), below.get(error_name), below[field]
  )


def ratio_error(
  ratio: float, above: float | None, below: float | None, divisor: float
) -> float | None:
  """Returns the error of a ratio by the errors of independent numbers.

  Args:
    ratio: the ratio.
    above: the error of the numerator, if it is known.
    below: the error of the denominator, if it is known.
    divisor: the denominator.
  """
  if above is None or below is None:
    return None
  return float(np.hypot(above, ratio * below) / abs(divisor))


def _have_same_size(one: metrics.Estimate, other: metrics.Estimate) -> bool:
  return len(one.deviations) == len(other.deviations)


def _first(rows: Sequence[Row], where: Mapping[str, Any]) -> Row:
  """Returns the first row with these columns, or an empty one."""
  matches = lambda row: all(row.get(k) == value for k, value in where.items())
  return next(filter(matches, rows), {})
