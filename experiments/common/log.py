"""The log of a run: what is finished is never done again.

`records.jsonl` holds a line for each unit of work, as soon as it is done, which
names all that it depends on. Whoever starts again goes on behind it.
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

# A unit of work: all that its outcome depends on, as JSON.
Unit = dict[str, Any]

FILE = 'records.jsonl'


def resume(
  workdir: workdirs.Workdir,
  units: Sequence[Unit],
  compute: Callable[[Any], dict[str, Any]],
  label: str = '',
  given: Sequence[Any] | None = None,
) -> Iterator[dict[str, Any]]:
  """Yields the outcome of each unit, logged before or computed now.

  No two units may be equal. `compute` gives the outcome of a unit, as JSON; it
  takes the unit, or what is `given` for it. With the label, progress is shown,
  and the time that is left.

  Raises:
    limits.OutOfTime: a unit is left to compute after the process's deadline.
  """
  each = functools.partial(map, compute)
  return resume_all(workdir, units, each, label, given)


def resume_all(
  workdir: workdirs.Workdir,
  units: Sequence[Unit],
  compute_all: Callable[[Sequence[Any]], Iterator[dict[str, Any]]],
  label: str = '',
  given: Sequence[Any] | None = None,
) -> Iterator[dict[str, Any]]:
  """As `resume`, where units are computed together.

  `compute_all` takes the units that are left, or what is `given` for those, and
  yields their outcomes in the same order. What is left is the same in all
  processes: a unit is done when all have logged it.
  """
  names = [name(unit) for unit in units]
  if len(set(names)) < len(names):
    twice = next(i for i, each in enumerate(names) if each in names[:i])
    raise ValueError(
      f'Two units of work are the same: {json.dumps(units[twice])}.'
    )
  with workdir:
    logged = read(workdir)
    done = dict(processes.common(logged, names))
    own = zip(names, given or units)
    left = [value for each, value in own if each not in done]
    if len(names) > len(left):
      print(f'{len(names) - len(left)} of {len(names)} are done already.')
    computed = compute_all(left)
    with tqdm.tqdm(total=len(left), desc=label, disable=not left) as progress:
      for unit, each in zip(units, names):
        if each not in done:
          limits.check()
          # The same as a later run reads it.
          outcome = json.loads(json_files.dumps(next(computed)))
          done[each] = logged.get(each, outcome)
          if each not in logged:
            _append(workdir, {'unit': each, **unit, 'outcome': outcome})
          progress.update()
        yield done[each]


def read(workdir: workdirs.Workdir) -> dict[str, dict[str, Any]]:
  """Returns the outcomes that are logged, by the names of their units."""
  path = os.path.join(str(workdir), FILE)
  rows = lines.keep_while(path)
  if any('unit' not in row for row in rows):
    raise ValueError(
      f'{path} is of an older format: use another workdir, or delete it.'
    )
  return {row['unit']: row['outcome'] for row in rows}


def name(unit: Unit) -> str:
  """Returns a short name: equal for equal units alone."""
  said = json.dumps(unit, sort_keys=True)
  return hashlib.sha256(said.encode()).hexdigest()[:16]


def _append(workdir, row):
  path = os.path.join(workdir, FILE)
  with write_errors.explain(path):
    with open(path, 'a', encoding='utf-8') as file:
      file.write(json_files.dumps(row) + '\n')
