"""What every experiment leaves in its workdir."""

from collections.abc import Callable
from collections.abc import Sequence
import json
import os
import platform
import time
from typing import Any

import jax
import numpy as np
import tqdm

from experiments import workdirs
from specjax.data import lines


def write(workdir: workdirs.Workdir, rows: Sequence[dict[str, Any]]) -> None:
  """Writes `results.json`, a list of flat rows, and prints it as a table."""
  save(os.path.join(workdir, 'results.json'), rows)
  print(table(rows))


def save(path: str, rows: Sequence[dict[str, Any]]) -> None:
  """Writes a list of flat rows as JSON."""
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(list(rows), file, indent=1, ensure_ascii=False)
    file.write('\n')


def log(workdir: workdirs.Workdir, row: dict[str, Any]) -> None:
  """Appends a row to `metrics.jsonl`, as soon as it is known."""
  path = os.path.join(workdir, 'metrics.jsonl')
  with open(path, 'a', encoding='utf-8') as file:
    file.write(json.dumps(row, ensure_ascii=False) + '\n')


def done(
  workdir: workdirs.Workdir, settings: Sequence[str]
) -> dict[tuple[Any, ...], dict[str, Any]]:
  """Returns rows that an earlier run has logged, by the named settings."""
  path = os.path.join(str(workdir), 'metrics.jsonl')
  if not lines.keep_while(path):
    return {}
  with open(path, encoding='utf-8') as file:
    rows = [json.loads(line) for line in file]
  return {tuple(row[name] for name in settings): row for row in rows}


def fingerprint(config: Any, without: Sequence[str]) -> str:
  """Returns all fields of a config as one string, but for the named ones.

  As a setting of rows, it shows which were made by another config.
  """
  fields = {k: v for k, v in config.items() if k not in without}
  return json.dumps(fields, sort_keys=True, default=str)


def start(workdir: workdirs.Workdir) -> None:
  """Has `metrics.jsonl` begin anew, for an experiment that does not resume."""
  workdir.start_anew()


def table(rows: Sequence[dict[str, Any]]) -> str:
  """Returns rows as an aligned text table; columns in order of appearance."""
  columns = list(dict.fromkeys(name for row in rows for name in row))
  cells = [columns] + [
    [_cell(row.get(name, '')) for name in columns] for row in rows
  ]
  widths = [max(map(len, column)) for column in zip(*cells)]
  texts = [
    '  '.join(
      cell.ljust(width) if i == 0 else cell.rjust(width)
      for i, (cell, width) in enumerate(zip(line, widths))
    )
    for line in cells
  ]
  return '\n'.join(text.rstrip() for text in texts)


def timed(function, *args, **kwargs) -> tuple[Any, float]:
  """Returns what a call returns, and the seconds that it took."""
  began = time.perf_counter()
  value = function(*args, **kwargs)
  return value, time.perf_counter() - began


def seconds(
  repeats: int, functions: Sequence[Callable[[], Any]], label: str
) -> np.ndarray:
  """Returns `[repeats, F]` seconds; functions take turns, after a warm-up."""
  table = np.zeros((repeats, len(functions)))
  for function in functions:
    function()
  for row in tqdm.tqdm(table, desc=label):
    for i, function in enumerate(functions):
      row[i] = timed(function)[1]
  return table


def medians(
  repeats: int, functions: Sequence[Callable[[], Any]], label: str
) -> np.ndarray:
  """Returns `[F]` median seconds; functions take turns, after a warm-up."""
  return np.median(seconds(repeats, functions, label), axis=0)


def device() -> str:
  """Returns the name of the device that JAX computes on."""
  kind = jax.devices()[0].device_kind
  if kind == 'cpu':
    return f'{platform.machine()} {kind}, {jax.device_count()} device'
  return kind


def _cell(value):
  return f'{value:.3f}' if isinstance(value, float) else str(value)
