"""What every experiment leaves in its workdir."""

from collections.abc import Sequence
import json
import os
from typing import Any


def write(workdir: str, rows: Sequence[dict[str, Any]]) -> None:
  """Writes `results.json`, a list of flat rows, and prints it as a table."""
  with open(
    os.path.join(workdir, 'results.json'), 'w', encoding='utf-8'
  ) as file:
    json.dump(list(rows), file, indent=1)
    file.write('\n')
  print(table(rows))


def table(rows: Sequence[dict[str, Any]]) -> str:
  """Returns rows as an aligned text table; columns in order of appearance."""
  columns = list(dict.fromkeys(name for row in rows for name in row))
  cells = [columns] + [
    [_cell(row.get(name, '')) for name in columns] for row in rows
  ]
  widths = [max(map(len, column)) for column in zip(*cells)]
  return '\n'.join(
    '  '.join(
      cell.ljust(width) if i == 0 else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(line, widths))
    ).rstrip()
    for line in cells
  )


def _cell(value):
  return f'{value:.3f}' if isinstance(value, float) else str(value)
