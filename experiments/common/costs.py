"""What a round of each arm takes on this device: the table behind a reward.

The reward 'throughput' is computed with it. A row has an arm as configs write
it, the batch size, the temperature, the depth of the arm's tree, the time of a
round, that of each token which the drafter reads when it catches up, and that
of reading a prompt of middle length, by target and drafter.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import log
from experiments.common import measure
from experiments.common import results
from experiments.common import ways as ways_lib
from experiments.common import workdirs
from specjax import decoding
from specjax import families
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib

Row = dict[str, Any]
Prompts = Sequence[Sequence[int]]

# What configs may have: how many rounds are timed together, and how often.
_DEFAULTS = {'cost_rounds': 32, 'cost_repeats': 5}
# Of a prompt, that are timed together: one is as short as what the host does.
_READINGS = 8


def of(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  prompts: Prompts,
  answer: float | None = None,
) -> Callable[[ways_lib.Way], Mapping[str, Sequence[float]]]:
  """Returns what the reward of a way is computed with, as `ways.build` asks.

  Where rows are refilled, with a new prompt for every `answer` tokens, its
  reading is one of the costs.
  """
  found: dict[Any, list[Row]] = {}

  def costs(way):
    key = way.arms, way.sampling, way.target
    if key not in found:
      found[key] = table(config, workdir, family, way, prompts)
    rows = found[key]
    told = {
      'costs': [row['round_ms'] / 1e3 for row in rows],
      'depths': [row['depth'] for row in rows],
      'catch_up_costs': [row['catch_up_ms'] / 1e3 for row in rows],
    }
    if answer is not None:
      share = config.batch_size / answer / 1e3
      told['reading_costs'] = [row['prompt_ms'] * share for row in rows]
    return told

  return costs


def table(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  way: ways_lib.Way,
  prompts: Prompts,
) -> list[Row]:
  """Returns a row for each arm of a way, as the log has it.

  Otherwise, as it is read from `config.costs`, a workdir of
  configs/benchmark/costs.py, or measured now with these prompts.
  """
  source = config.get('costs', '')
  numbers = {name: config.get(name, each) for name, each in _DEFAULTS.items()}
  unit = {
    'costs': [str(arm) for arm in way.arms],
    'target': way.target,
    'from': source,
    **dataclasses.asdict(way.sampling),
    **{name: config[name] for name in ('family', 'batch_size', 'max_length')},
    **numbers,
  }

  def compute(unit):
    if source and (found := read(source, way, config.batch_size)):
      return {'rows': found}
    return {'rows': _measure(config, family, way, prompts, *numbers.values())}

  (outcome,) = log.resume(workdir, [unit], compute, 'cost table')
  return outcome['rows']


def read(path: str, way: ways_lib.Way, batch_size: int) -> list[Row]:
  """Returns rows of a table, which must have all arms; none of another device.

  It says so, then: what rounds take is to be measured here.
  """
  found = results.read(path)
  device = measure.device()
  if found['device'] != device:
    print(
      f'The cost table {path!r} is of {found["device"]}, not of {device}: what '
      'rounds take is measured now.'
    )
    return []
  columns = 'arm', 'batch_size', 'temperature'
  rows = {tuple(row[name] for name in columns): row for row in found['rows']}
  place = batch_size, way.sampling.temperature
  keys = [(str(arm), *place) for arm in way.arms]
  missing = ', '.join(key[0] for key in keys if key not in rows)
  if missing:
    raise ValueError(
      f'The cost table {path!r} has no rows for {missing} at batch size '
      f'{place[0]} and temperature {place[1]}.'
    )
  return [rows[key] for key in keys]


def rounds(
  decoder: decoding.Decoder, prompts: Prompts, max_new_tokens: int, num: int
) -> measure.Prepare:
  """Returns the preparation of `num` rounds that are to be timed."""

  def prepare():
    state = begin(decoder, prompts, max_new_tokens)
    return functools.partial(
      decoding.trace, decoder.round_fn, decoder.params, state, num, _nothing
    )

  return prepare


def _nothing(info):
  """Records nothing of a round, as `decoding.decode` does."""
  del info


def begin(
  decoder: decoding.Decoder, prompts: Prompts, max_new_tokens: int
) -> decoding.DecodeState:
  """Returns a state whose rounds are whole: no token stops a row.

  Whoever reads prompts has read them, also if only once it is played.
  """
  state = decoder.init(prompts, max_new_tokens)
  state = state.replace(stop_tokens=jnp.array([-1]))
  return jax.block_until_ready(_read(decoder.round_fn, decoder.params, state))


@functools.partial(jax.jit, static_argnums=0, donate_argnums=2)
def _read(plan, params, state):
  """What a round does before it drafts."""
  state, choice = round_lib.select(plan, state)
  return round_lib.catch_up(plan, params, state, choice)[0]


def batch(prompts: Prompts, size: int) -> list[Sequence[int]]:
  """Returns so many prompts, in turns if there are fewer."""
  return list(itertools.islice(itertools.cycle(prompts), size))


def _measure(config, family, way, prompts, num, repeats):
  """A row for each arm; arms take turns, and medians are taken."""
  middle = sorted(prompts, key=len)[len(prompts) // 2]
  prompts = batch(prompts, config.batch_size)
  room = config.max_length - max(map(len, prompts))
  decoders = [
    ways_lib.build(each, family, config.max_length).decoder
    for each in ways_lib.alone(way)
  ]
  reads, num_read = zip(*(_catch_up(each, prompts, room) for each in decoders))
  runs = [rounds(each, prompts, room, num) for each in decoders]
  alone = [_reading(each, middle) for each in decoders]
  label = f'rounds of {len(decoders)} arms'
  seconds = measure.in_turns([*runs, *reads, *alone], repeats, label)
  whole, late, first = 1e3 * np.median(seconds, axis=0).reshape(3, -1)
  jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  return [
    {
      'arm': str(arm),
      'batch_size': config.batch_size,
      'temperature': way.sampling.temperature,
      'depth': decoder.round_fn.arms[0].drafter.topology.depth,
      'round_ms': float(whole[i] / num),
      'catch_up_ms': float(late[i] / num_read[i]) if num_read[i] else 0.0,
      'prompt_ms': float(first[i] / _READINGS),
    }
    for i, (arm, decoder) in enumerate(zip(way.arms, decoders))
  ]


def _reading(decoder, prompt):
  """The preparation of reading a prompt, alone, `_READINGS` times."""
  read = functools.partial(begin, decoder, [prompt], 1)
  return lambda: lambda: [read() for _ in range(_READINGS)][-1]


def _catch_up(decoder, prompts, max_new_tokens):
  """The preparation of reading so many tokens, and how many are read."""
  (arm,) = decoder.round_fn.arms
  if arm.drafter.catch_up is None:
    return (lambda: lambda: None), 0
  (params,) = decoder.params.drafters
  state = begin(decoder, prompts, max_new_tokens)
  (late,) = state.drafters
  state = state.replace(lengths=state.limits)
  context = state_lib.context(decoder.round_fn.target, arm.drafter, state)
  rows = jnp.ones(len(prompts), bool)
  read = jax.jit(arm.drafter.catch_up.read)
  play = lambda: read(params, late, context, rows)
  _, num_read = play()
  return (lambda: play), max(int(num_read.max()), 1)
