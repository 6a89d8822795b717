"""The log of a run: what is finished is never done again.

`records.jsonl` holds a line for each unit of work, as soon as it is done, which
names all that it depends on. Whoever starts again goes on behind it.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import hashlib
import json
import os
from typing import Any

import tqdm

from experiments.common import processes
from experiments.common import workdirs
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
  """
  names = [name(unit) for unit in units]
  if len(set(names)) < len(names):
    twice = next(i for i, each in enumerate(names) if each in names[:i])
    raise ValueError(f'Two points are the same: {json.dumps(units[twice])}.')
  done = processes.common(read(workdir), names)
  left = sum(each not in done for each in names)
  if len(names) > left:
    print(f'{len(names) - left} of {len(names)} are done already.')
  with tqdm.tqdm(total=left, desc=label, disable=not left) as progress:
    for unit, each, own in zip(units, names, given or units):
      if each not in done:
        # The same as a later run reads it.
        done[each] = json.loads(json.dumps(compute(own), ensure_ascii=False))
        _append(workdir, {'unit': each, **unit, 'outcome': done[each]})
        progress.update()
      yield done[each]


def read(workdir: workdirs.Workdir) -> dict[str, dict[str, Any]]:
  """Returns the outcomes that are logged, by the names of their units."""
  path = os.path.join(str(workdir), FILE)
  if not lines.keep_while(path):
    return {}
  with open(path, encoding='utf-8') as file:
    rows = [json.loads(line) for line in file]
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
  with open(path, 'a', encoding='utf-8') as file:
    file.write(json.dumps(row, ensure_ascii=False) + '\n')
