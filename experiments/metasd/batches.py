"""One bandit for a batch or one for each row: batches of one kind and of many.

MetaSD's Table 17, whose batches share a drafter. `config.ways` and
`config.bandits` are decoded in batches of prompts of one domain, and of all
domains in turns. The oracle plays each row's best arm.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import Any

from experiments.common import choice
from experiments.common import compare
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.common import runner
from experiments.common import ways as ways_lib
from specjax import checks

MAY_CHANGE = compare.MAY_CHANGE
_KINDS = 'homogeneous', 'mixed'
_ORACLE = {'bandit': 'fixed', 'per_row': True, 'label': 'oracle'}


def run(config, workdir):
  """Returns a row for each batch size, way and kind of batch."""
  made = compare.plan(config)
  largest = _largest(config.batch_sizes)
  sets = [_in_order(made.sets, kind, largest) for kind in _KINDS]
  chosen = _best_arms(config, workdir, made, sets, largest)
  oracle = _parse(config, made, _ORACLE, 'oracle')
  points, decoded = [], []
  for size in config.batch_sizes:
    for way in (*made.ways, oracle):
      for prompts in sets:
        starts = chosen[prompts.label] if way is oracle else None
        points.append(_point(config, made, way, prompts, size, starts))
        decoded.append((size, way, prompts))
  options = runner.Options(**compare.clocks(config, made.family))
  return [
    {'batch_size': size, **row}
    for (size, *each), records in zip(
      decoded, runner.decode(workdir, points, options)
    )
    for row in compare.rows([compare.Decoded(*each, records)])
  ]


def order(
  domains: Mapping[str, Sequence[Any]], kind: str, largest: int
) -> list[Any]:
  """Returns as many prompts of each domain, in the order of their batches.

  Any batch size that divides `largest` has whole batches, and all prompts of a
  homogeneous one are of one domain.

  Args:
    domains: prompts of each.
    kind: 'homogeneous', domain by domain, or 'mixed', domains in turns.
    largest: batch size.

  Raises:
    ValueError: a domain has too few prompts.
  """
  fewest = min(map(len, domains.values()))
  count = fewest - fewest % largest
  if not count:
    raise ValueError(
      f'Every domain needs {largest} prompts for the largest of batch_sizes, '
      f'got {fewest}.'
    )
  kept = [prompts[:count] for prompts in domains.values()]
  groups = kept if kind == 'homogeneous' else zip(*kept)
  return [prompt for group in groups for prompt in group]


def figures(rows):
  """Draws what each way has by batch size; with clocks, speed-ups, too."""
  fields = {
    'block_efficiency': 'emitted tokens per target call',
    'speed_up': 'tokens per second over plain decoding',
  }
  made = {
    field: plots.lines(
      rows,
      'batch_size',
      field,
      'way',
      panel='prompts',
      error=f'{field}_error',
      ylabel=label,
      paper=True,
    )
    for field, label in fields.items()
    if field in rows[0]
  }
  for figure in made.values():
    highest = max(axes.get_ylim()[1] for axes in figure.axes)
    for axes in figure.axes:
      axes.set_xticks(sorted({row['batch_size'] for row in rows}))
      axes.set_ylim(0, highest)
  return made


def _largest(sizes):
  checks.check_range('batch_sizes', sizes, 1)
  if any(max(sizes) % size for size in sizes):
    raise ValueError(f'batch_sizes must divide the largest, got {sizes}.')
  return max(sizes)


def _in_order(sets, kind, largest):
  """The prompts of all sets, in batches of one kind."""
  domains: dict[str, list[prompts_lib.Job]] = {}
  for job in (job for prompts in sets for job in prompts.jobs):
    domains.setdefault(job.label, []).append(job)
  settings = {'sets': [each.settings for each in sets], 'largest': largest}
  jobs = order(domains, kind, largest)
  return prompts_lib.Set(kind, jobs, settings | {'kind': kind})


def _best_arms(config, workdir, made, sets, largest):
  """For each set, the arm of the most tokens a round of each prompt."""
  arms = [
    _parse(config, made, arm, f'arms[{i}]') for i, arm in enumerate(config.arms)
  ]
  where = [(way, prompts) for prompts in sets for way in arms]
  points = [_point(config, made, *each, largest, None) for each in where]
  points = [
    point._replace(settings=point.settings | {'repeats': 0}) for point in points
  ]
  records = runner.decode(workdir, points)
  decoded = [compare.Decoded(*w, each) for w, each in zip(where, records)]
  return {
    prompts.label: choice.best_of_each(
      [each for each in decoded if each.prompts is prompts]
    ).tolist()
    for prompts in sets
  }


def _parse(config, made, entry, place):
  return ways_lib.parse(config, entry, list(made.family.drafters), place)


def _point(config, made, way, prompts, batch_size, starts):
  """A way on a set; what its rows begin with is a setting, too."""
  settings = compare.point_settings(config, way, prompts)
  return runner.Point(
    settings | {'batch_size': batch_size, 'starts': starts},
    functools.partial(ways_lib.build, way, made.family, config.max_length),
    prompts.jobs,
    config.max_new_tokens,
    batch_size,
    config.seed,
    starts=starts,
  )
