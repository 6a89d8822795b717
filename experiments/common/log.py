"""Logs the finished work of a run, so that no work is done twice.

`records.jsonl` receives one line per unit of work as soon as it is done. The
line contains everything that the outcome depends on, and a run that starts
again resumes after the last line.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import hashlib
import json
import os
from typing import Any

import tqdm

from experiments.common import limits
from experiments.common import processes
from experiments.common import workdirs
from specjax import json_files
from specjax import write_errors
from specjax.data import lines

# A unit of work: everything that its outcome depends on, as JSON.
Unit = dict[str, Any]

FILE = 'records.jsonl'


def resume(
  workdir: workdirs.Workdir,
  units: Sequence[Unit],
  compute: Callable[[Any], dict[str, Any]],
  label: str = '',
  inputs: Sequence[Any] | None = None,
) -> Iterator[dict[str, Any]]:
  """Yields the outcome of each unit, from the log or computed now.

  Args:
    workdir: the folder of the log.
    units: the units of work, all different.
    compute: from an input, returns the outcome of its unit, as JSON.
    label: the label of the progress bar.
    inputs: what `compute` takes for each unit; defaults to the units.

  Raises:
    limits.OutOfTime: the deadline of the process has passed, and a unit is not
      in the log.
    ValueError: two units are equal.
  """
  compute_all = functools.partial(map, compute)
  return resume_all(workdir, units, compute_all, label, inputs)


def resume_all(
  workdir: workdirs.Workdir,
  units: Sequence[Unit],
  compute_all: Callable[[Sequence[Any]], Iterator[dict[str, Any]]],
  label: str = '',
  inputs: Sequence[Any] | None = None,
) -> Iterator[dict[str, Any]]:
  """Yields the outcome of each unit, where units are computed together.

  `compute_all` takes the inputs of the units that are not in the log, and
  yields their outcomes in the same order. With several processes, a unit is
  finished when all of them have logged it, so that all compute the same units.
  See `resume` for the other arguments and the errors.
  """
  names = [name(unit) for unit in units]
  if len(set(names)) < len(names):
    duplicate = next(i for i, key in enumerate(names) if key in names[:i])
    raise ValueError(
      f'Two units of work are the same: {json.dumps(units[duplicate])}.'
    )
  with workdir:
    logged = read(workdir)
    done = dict(processes.common(logged, names))
    pairs = zip(names, inputs or units)
    remaining = [value for key, value in pairs if key not in done]
    num_done = len(names) - len(remaining)
    if num_done:
      print(f'{num_done} of {len(names)} are done already.')
    computed = compute_all(remaining)
    # None hides the bar where the output is no terminal.
    disable = None if remaining else True
    with tqdm.tqdm(
      total=len(remaining), desc=label, disable=disable
    ) as progress:
      for unit, key in zip(units, names):
        if key not in done:
          limits.check()
          # Encoded and decoded, to equal the outcome that a later run reads.
          outcome = json.loads(json_files.dumps(next(computed)))
          done[key] = logged.get(key, outcome)
          if key not in logged:
            _append(workdir, {'unit': key, **unit, 'outcome': outcome})
          progress.update()
        yield done[key]


def read(workdir: workdirs.Workdir) -> dict[str, dict[str, Any]]:
  """Returns the outcomes in the log, by the names of their units."""
  path = os.path.join(str(workdir), FILE)
  rows = lines.keep_while(path)
  if any('unit' not in row for row in rows):
    raise ValueError(
      f'{path} has an older format: use another workdir, or delete it.'
    )
  return {row['unit']: row['outcome'] for row in rows}


def name(unit: Unit) -> str:
  """Returns a short name, a hash of the unit."""
  return digest(unit)


def digest(value: Any) -> str:
  """Returns a hash of what can be encoded as JSON."""
  encoded = json.dumps(value, sort_keys=True)
  return hashlib.sha256(encoded.encode()).hexdigest()[:16]


def _append(workdir: workdirs.Workdir, row: dict[str, Any]) -> None:
  path = os.path.join(workdir, FILE)
  with write_errors.explain(path):
    with open(path, 'a', encoding='utf-8') as file:
      file.write(json_files.dumps(row) + '\n')
