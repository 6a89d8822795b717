"""The paper's numbers beside ours.

`config.paper` is a tuple of tables, each a dictionary:

    source   what the numbers are from: 'SpecTr, Table 4'
    field    the column of our rows that they are compared with
    rows     a tuple of (where, number) or (where, number, error)
    claims   a tuple of (claim, above, below, ratio): the paper's ratio of two
             rows, by default of the numbers; or with None for `below`, the
             paper's number of one row
    measured the column of which our ratios are, by default `field`

`where` are columns that a row must have, such as {'method': 'small:4'}. A row
that several tables match has the number of the last one.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

Row = dict[str, Any]

# A column that is not written: by the name of a column, its
# `specjax.metrics.Estimate` over prompts, of rows of the same prompts.
PAIRED = 'paired'
# What rows of the same prompts have in common.
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
  """Returns a table as it is printed: a row for a value, a column for a method.

  Printed rows are values of our column `down`, and printed columns those of
  `across`. `numbers` are `[columns]` by row: a number, a pair of a number and
  its error, or None where nothing is printed. `where` are other columns that
  our rows must have. `ratios` are pairs of `columns` whose ratio is a claim, in
  each printed row, whose value stands for '{}' in them.
  """
  place = lambda row, column: {**where, down: row, across: column}
  return {
    'source': source,
    'field': field,
    'rows': tuple(
      (place(row, column), *(cell if isinstance(cell, tuple) else (cell,)))
      for row, printed in numbers.items()
      for column, cell in zip(columns, printed, strict=True)
      if cell is not None
    ),
    'claims': tuple(
      (f'{above} over {below}, {row}', place(row, above), place(row, below))
      for row in numbers
      for above, below in ([each.format(row) for each in p] for p in ratios)
    ),
    **options,
  }


def beside(rows: Sequence[Row], tables: Sequence[Any]) -> list[Row]:
  """Returns the rows with `paper`, `paper_error` and `paper_source`.

  Rows that the paper does not have are as they were. A number is of the row's
  column `paper_field`.
  """
  result = [dict(row) for row in rows]
  for table in tables:
    for where, number, *error in table['rows']:
      for row in result:
        if _is(row, where):
          row['paper'] = number
          if error:
            row['paper_error'] = error[0]
          row['paper_field'] = table['field']
          row['paper_source'] = table['source']
  return result


def claims(rows: Sequence[Row], tables: Sequence[Any]) -> list[Row]:
  """Returns a row for each claim: the paper's ratio, and ours with its error.

  A claim of rows that were not measured is left out, and so is a ratio to 0.
  """
  result = []
  for table in tables:
    for claim, above, below, *ratio in table.get('claims', ()):
      field = table.get('measured', table['field'])
      wanted = [above] if below is None else [above, below]
      chosen = [
        next((row for row in rows if _is(row, where)), {}) for where in wanted
      ]
      if any(row.get(field) is None for row in chosen):
        continue
      if below is not None and not chosen[1][field]:
        continue
      row = {'claim': claim, 'source': table['source']}
      row['paper'] = ratio[0] if ratio else _ratio_of(table, above, below)
      row['measured'], row['measured_error'] = _measured(field, *chosen)
      result.append(row)
  return result


def unpaired(rows: Sequence[Row]) -> list[Row]:
  """Returns rows as they are written."""
  return [
    {name: value for name, value in row.items() if name != PAIRED}
    for row in rows
  ]


def _measured(field, above, below=None):
  """A row's number or the ratio of two, and its error if all have one.

  Of rows of the same prompts, what these have in common cancels.
  """
  name = f'{field}_error'
  if below is None:
    return above[field], above.get(name)
  paired = [row.get(PAIRED, {}).get(field) for row in (above, below)]
  same = all(above.get(each) == below.get(each) for each in _SAME)
  if same and None not in paired and _of_as_many(*paired):
    ratio = paired[0].over(paired[1])
    return ratio.value, ratio.error
  ratio = above[field] / below[field]
  if None in (above.get(name), below.get(name)):
    return ratio, None
  error = np.hypot(above[name], ratio * below[name]) / abs(below[field])
  return ratio, float(error)


def _of_as_many(one, other):
  return len(one.deviations) == len(other.deviations)


def _ratio_of(table, above, below):
  """The ratio of two of the paper's numbers."""
  numbers = [
    next(number for each, number, *_ in table['rows'] if dict(each) == where)
    for where in map(dict, (above, below))
  ]
  return numbers[0] / numbers[1]


def _is(row, where):
  return all(row.get(name) == value for name, value in where.items())
