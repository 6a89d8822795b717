"""Measures, reads and logs cost tables of arms on this device.

The reward `throughput` and the bandit `goodput` are computed from a cost table.
Its rows contain the arm in a config's syntax, the batch size, the temperature,
and the costs of `specjax.measure_costs` in milliseconds.
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
from experiments.common import methods as methods_lib
from experiments.common import processes
from experiments.common import results
from experiments.common import workdirs
from specjax import families
from specjax.decoding import timing

Row = dict[str, Any]
Prompts = Sequence[Sequence[int]]

# Defaults of config fields: the rounds that are timed together, and repeats.
_DEFAULTS = {'cost_rounds': 32, 'cost_repeats': 5}


def cost_function(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  prompts: Prompts,
  answer_length: float | None = None,
) -> Callable[[methods_lib.Method], Mapping[str, Sequence[float]]]:
  """Returns the function of costs that `methods.build` takes.

  Args:
    config: has `batch_size`, `max_length`, and optionally `costs`.
    workdir: the folder whose log keeps measured tables.
    family: the models.
    prompts: token ids of typical prompts.
    answer_length: mean tokens of an answer in continuous batching, where each
      answer needs a prefill; None without continuous batching.
  """
  tables: dict[Any, list[Row]] = {}

  def costs(method: methods_lib.Method) -> dict[str, Sequence[float]]:
    key = method.arms, method.sampling, method.target
    if key not in tables:
      tables[key] = table(config, workdir, family, method, prompts)
    rows = tables[key]
    arguments = {
      'costs': [row['round_ms'] / 1e3 for row in rows],
      'depths': [row['depth'] for row in rows],
      'catch_up_costs': [row['catch_up_ms'] / 1e3 for row in rows],
    }
    if answer_length is not None:
      share = config.batch_size / answer_length / 1e3
      arguments['prefill_costs'] = [row['prompt_ms'] * share for row in rows]
    return arguments

  return costs


def table(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  method: methods_lib.Method,
  prompts: Prompts,
) -> list[Row]:
  """Returns one row per arm of a method.

  Rows come from the log if they are there, then from `config.costs`, a workdir
  of configs/benchmark/costs.py; otherwise they are measured with the prompts.
  """
  source = config.get('costs', '')
  numbers = {name: config.get(name, num) for name, num in _DEFAULTS.items()}
  unit = measure.unit(
    {
      'costs': [str(arm) for arm in method.arms],
      'target': method.target,
      'from': source,
      **dataclasses.asdict(method.sampling),
      **_setting(config, method),
      **numbers,
    }
  )

  def compute(unit):
    if source and (rows := read(source, method, config)):
      return {'rows': rows}
    return {
      'rows': _measure(config, family, method, prompts, *numbers.values())
    }

  (outcome,) = log.resume(workdir, [unit], compute, 'cost table')
  # All processes of a run must select the same arms.
  return processes.of_first(outcome['rows'])


def read(path: str, method: methods_lib.Method, config: Any) -> list[Row]:
  """Reads the rows of a cost table; none if it is from another device.

  Raises:
    ValueError: the table lacks an arm, or has it only for another family, batch
      size, temperature or `max_length`.
  """
  content = results.read(path)
  device = measure.device()
  if content['device'] != device:
    print(
      f'The cost table {path!r} was measured on {content["device"]}, not on '
      f'{device}: costs are measured now.'
    )
    return []
  setting = _setting(config, method)
  columns = 'arm', *setting
  rows = {
    tuple(row.get(name) for name in columns): row for row in content['rows']
  }
  keys = [(str(arm), *setting.values()) for arm in method.arms]
  missing = ', '.join(key[0] for key in keys if key not in rows)
  if missing:
    text = ', '.join(f'{name} {value!r}' for name, value in setting.items())
    raise ValueError(
      f'The cost table {path!r} has no rows for {missing} with {text}.'
    )
  return [rows[key] for key in keys]


def _setting(config: Any, method: methods_lib.Method) -> dict[str, Any]:
  """Returns what the costs of an arm depend on, besides the device."""
  return {
    'family': config.family,
    'batch_size': config.batch_size,
    'temperature': method.sampling.temperature,
    'max_length': config.max_length,
  }


def batch(prompts: Prompts, size: int) -> list[Sequence[int]]:
  """Returns `size` prompts, which are repeated in order if there are fewer."""
  return list(itertools.islice(itertools.cycle(prompts), size))


def _measure(
  config: Any,
  family: families.Family,
  method: methods_lib.Method,
  prompts: Prompts,
  num_rounds: int,
  repeats: int,
) -> list[Row]:
  """Measures the arms of a method on this device; returns one row per arm."""
  decoder = methods_lib.build(
    methods_lib.fix_arm(method), family, config.max_length
  ).decoder
  costs = timing.measure_costs(
    decoder,
    prompts,
    batch_size=config.batch_size,
    num_rounds=num_rounds,
    repeats=repeats,
    progress=measure.progress(f'rounds of {len(method.arms)} arms'),
  )
  jax.clear_caches()  # Many programs exceed Linux's limit of memory maps.
  return [
    {
      'arm': str(arm),
      **_setting(config, method),
      'depth': costs.depths[i],
      'round_ms': 1e3 * costs.round_seconds[i],
      'catch_up_ms': 1e3 * costs.catch_up_seconds[i],
      'prompt_ms': 1e3 * costs.prefill_seconds[i],
    }
    for i, arm in enumerate(method.arms)
  ]
