"""Cost tables of arms on this device, as configs and logs have them.

The reward 'throughput' and the bandit 'goodput' are computed from a table. Its
rows have the arm as configs write it, the batch size, the temperature, and the
costs of `specjax.measure_costs` in milliseconds.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import itertools
from typing import Any

import jax

from experiments.common import log
from experiments.common import measure
from experiments.common import results
from experiments.common import ways as ways_lib
from experiments.common import workdirs
from specjax import families
from specjax.decoding import timing

Row = dict[str, Any]
Prompts = Sequence[Sequence[int]]

# What configs may have: how many rounds are timed together, and how often.
_DEFAULTS = {'cost_rounds': 32, 'cost_repeats': 5}


def of(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  prompts: Prompts,
  answer: float | None = None,
) -> Callable[[ways_lib.Way], Mapping[str, Sequence[float]]]:
  """Returns the function of costs that `ways.build` takes.

  Args:
    config: has `batch_size`, `max_length`, and optionally `costs`.
    workdir: whose log keeps measured tables.
    family: the models.
    prompts: token ids of typical prompts.
    answer: mean tokens of an answer in continuous batching, where each answer
      needs a prefill; None without.
  """
  tables: dict[Any, list[Row]] = {}

  def costs(way: ways_lib.Way) -> dict[str, Sequence[float]]:
    key = way.arms, way.sampling, way.target
    if key not in tables:
      tables[key] = table(config, workdir, family, way, prompts)
    rows = tables[key]
    arguments = {
      'costs': [row['round_ms'] / 1e3 for row in rows],
      'depths': [row['depth'] for row in rows],
      'catch_up_costs': [row['catch_up_ms'] / 1e3 for row in rows],
    }
    if answer is not None:
      share = config.batch_size / answer / 1e3
      arguments['reading_costs'] = [row['prompt_ms'] * share for row in rows]
    return arguments

  return costs


def table(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  way: ways_lib.Way,
  prompts: Prompts,
) -> list[Row]:
  """Returns a row for each arm of a way.

  They come from the log; otherwise from `config.costs`, a workdir of
  configs/benchmark/costs.py; otherwise they are measured with these prompts.
  """
  source = config.get('costs', '')
  numbers = {name: config.get(name, num) for name, num in _DEFAULTS.items()}
  unit = {
    'costs': [str(arm) for arm in way.arms],
    'target': way.target,
    'from': source,
    **dataclasses.asdict(way.sampling),
    **{name: config[name] for name in ('family', 'batch_size', 'max_length')},
    **numbers,
  }

  def compute(unit):
    if source and (rows := read(source, way, config.batch_size)):
      return {'rows': rows}
    return {'rows': _measure(config, family, way, prompts, *numbers.values())}

  (outcome,) = log.resume(workdir, [unit], compute, 'cost table')
  return outcome['rows']


def read(path: str, way: ways_lib.Way, batch_size: int) -> list[Row]:
  """Returns rows of a kept table; none, with a message, from another device.

  Raises:
    ValueError: the table lacks an arm at this batch size and temperature.
  """
  kept = results.read(path)
  device = measure.device()
  if kept['device'] != device:
    print(
      f'The cost table {path!r} was measured on {kept["device"]}, not on '
      f'{device}: costs are measured now.'
    )
    return []
  columns = 'arm', 'batch_size', 'temperature'
  rows = {tuple(row[name] for name in columns): row for row in kept['rows']}
  place = batch_size, way.sampling.temperature
  keys = [(str(arm), *place) for arm in way.arms]
  missing = ', '.join(key[0] for key in keys if key not in rows)
  if missing:
    raise ValueError(
      f'The cost table {path!r} has no rows for {missing} at batch size '
      f'{place[0]} and temperature {place[1]}.'
    )
  return [rows[key] for key in keys]


def batch(prompts: Prompts, size: int) -> list[Sequence[int]]:
  """Returns `size` prompts, repeated in their order if there are fewer."""
  return list(itertools.islice(itertools.cycle(prompts), size))


def _measure(
  config: Any,
  family: families.Family,
  way: ways_lib.Way,
  prompts: Prompts,
  num_rounds: int,
  repeats: int,
) -> list[Row]:
  """Returns a row for each arm of a way, measured on this device."""
  decoder = ways_lib.build(
    ways_lib.fixed(way), family, config.max_length
  ).decoder
  costs = timing.measure_costs(
    decoder,
    prompts,
    batch_size=config.batch_size,
    num_rounds=num_rounds,
    repeats=repeats,
    progress=measure.progress(f'rounds of {len(way.arms)} arms'),
  )
  jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  return [
    {
      'arm': str(arm),
      'batch_size': costs.batch_size,
      'temperature': way.sampling.temperature,
      'depth': costs.depths[i],
      'round_ms': 1e3 * costs.round_seconds[i],
      'catch_up_ms': 1e3 * costs.catch_up_seconds[i],
      'prompt_ms': 1e3 * costs.prefill_seconds[i],
    }
    for i, arm in enumerate(way.arms)
  ]
