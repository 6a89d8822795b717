"""Adds the paper's numbers to rows, and compares the ratios that it claims.

`config.paper` is a tuple of tables, each a dictionary:

    source   where the numbers are from, such as 'SpecTr, Table 4'
    field    the column of our rows that they are compared with
    rows     a tuple of (where, number) or (where, number, error)
    claims   a tuple of (claim, above, below, ratio): the paper's ratio of two
             rows, which defaults to the ratio of their numbers; or, with None
             for `below`, the paper's number for one row
    measured the column that our ratios are computed from; defaults to `field`

`where` contains columns that a row must have, such as {'method': 'small:4'}. A
row that several tables match receives the number of the last one.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from specjax import metrics

Row = dict[str, Any]

# A column that is not written to files: estimates over prompts, of type
# `specjax.metrics.Estimate`, by the name of the column that they belong to.
PAIRED = 'paired'
# Columns that are equal for rows on the same prompts.
_SAME = 'prompts', 'domain'


def grid(
  source: str,
  field: str,
  down: str,
  across: str,
  columns: Sequence[Any],
  numbers: Mapping[Any, Sequence[Any]],
  where: Mapping[str, Any],
  ratios: Sequence[tuple[str, str]] = (),
  **options: Any,
) -> dict[str, Any]:
  """Returns a table of the paper that has the layout of a grid.

  Args:
    source: where the numbers are from.
    field: the column of our rows that they are compared with.
    down: the column of our rows whose values are the rows of the grid.
    across: the column of our rows whose values are the columns of the grid.
    columns: the values of the grid's columns.
    numbers: by row, `[columns]` numbers, pairs of a number and its error, or
      None for an empty cell.
    where: further columns that our rows must have.
    ratios: pairs of `columns` whose ratio is a claim, in every row of the
      grid; the row's value replaces '{}' in them.
    **options: further fields of the table.
  """
  columns_of_row = lambda row, column: {**where, down: row, across: column}
  return {
    'source': source,
    'field': field,
    'rows': tuple(
      (
        columns_of_row(row, column),
        *(cell if isinstance(cell, tuple) else (cell,)),
      )
      for row, row_numbers in numbers.items()
      for column, cell in zip(columns, row_numbers, strict=True)
      if cell is not None
    ),
    'claims': tuple(
      (
        f'{above} over {below}, {row}',
        columns_of_row(row, above),
        columns_of_row(row, below),
      )
      for row in numbers
      for above, below in (
        [column.format(row) for column in pair] for pair in ratios
      )
    ),
    **options,
  }


def add_numbers(rows: Sequence[Row], tables: Sequence[Any]) -> list[Row]:
  """Returns rows with the columns `paper`, `paper_error` and `paper_source`.

  The column `paper_field` names the column that a number belongs to. Rows that
  are not in the paper stay as they are.
  """
  result = [dict(row) for row in rows]
  for table in tables:
    for where, number, *error in table['rows']:
      for row in result:
        if _matches(row, where):
          row['paper'] = number
          if error:
            row['paper_error'] = error[0]
          row['paper_field'] = table['field']
          row['paper_source'] = table['source']
  return result


def claims(rows: Sequence[Row], tables: Sequence[Any]) -> list[Row]:
  """Returns one row per claim: the paper's ratio, and ours with its error.

  Claims about rows that were not measured are left out, as are ratios to 0.
  """
  result = []
  for table in tables:
    for claim, above, below, *ratio in table.get('claims', ()):
      field = table.get('measured', table['field'])
      filters = [above] if below is None else [above, below]
      chosen = [
        next((row for row in rows if _matches(row, where)), {})
        for where in filters
      ]
      if any(row.get(field) is None for row in chosen):
        continue
      if below is not None and not chosen[1][field]:
        continue
      row = {'claim': claim, 'source': table['source']}
      row['paper'] = ratio[0] if ratio else _paper_ratio(table, above, below)
      row['measured'], row['measured_error'] = _measured(field, *chosen)
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
  above_error, below_error = above.get(error_name), below.get(error_name)
  if above_error is None or below_error is None:
    return ratio, None
  error = np.hypot(above_error, ratio * below_error) / abs(below[field])
  return ratio, float(error)


def _have_same_size(one: metrics.Estimate, other: metrics.Estimate) -> bool:
  return len(one.deviations) == len(other.deviations)


def _paper_ratio(
  table: Any, above: Mapping[str, Any], below: Mapping[str, Any]
) -> float:
  """Returns the ratio of two numbers of the paper."""
  numbers = [
    next(
      number for columns, number, *_ in table['rows'] if dict(columns) == where
    )
    for where in map(dict, (above, below))
  ]
  return numbers[0] / numbers[1]


def _matches(row: Row, where: Mapping[str, Any]) -> bool:
  return all(row.get(name) == value for name, value in where.items())
