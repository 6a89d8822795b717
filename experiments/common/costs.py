"""What a round of each arm takes on this device: the table behind a reward.

The reward 'throughput' and the bandit 'goodput' are computed with it. A row has
an arm as configs write it, the batch size, the temperature, the depth of the
arm's tree, the time of a round in a program that has all arms, that of each
token which the drafter reads when it catches up, and that of its reading a
prompt of middle length, alone.
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
from specjax.decoding import reading as reading_lib
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
  reading by the drafter is one of the costs.
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
  """Returns the preparation of `num` rounds to be timed; see `begin`."""
  return lambda: _play(decoder, begin(decoder, prompts, max_new_tokens), num)


def _play(decoder, state, num):
  return functools.partial(
    decoding.trace, decoder.round_fn, decoder.params, state, num, _nothing
  )


def _nothing(info):
  """Records nothing of a round, as `decoding.decode` does."""
  del info


def begin(
  decoder: decoding.Decoder, prompts: Prompts, max_new_tokens: int
) -> decoding.DecodeState:
  """Returns a state whose rounds are whole: no token stops a row.

  Whoever reads prompts has read them, also if only once it is played.

  Args:
    decoder: of one arm, or of a bandit.
    prompts: of a batch.
    max_new_tokens: as of `Decoder.init`.
  """
  return _read_all(decoder, _start(decoder, prompts, max_new_tokens))


def _start(decoder, prompts, max_new_tokens, **options):
  state = decoder.init(prompts, max_new_tokens, **options)
  return state.replace(stop_tokens=jnp.array([-1]))


def _read_all(decoder, state):
  read = _read(decoder.round_fn, decoder.params, state)
  return jax.block_until_ready(read)


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
  # What a bandit plays is compiled with all arms: one program times them all.
  decoder = ways_lib.build(
    ways_lib.fixed(way), family, config.max_length
  ).decoder
  slots = decoder.round_fn.slots
  # The target reads the prompts once, and not for each arm and time.
  start = _start(decoder, prompts, room, bandit_state=jnp.int32(0))
  whole = [
    lambda i=i: _play(decoder, _of_arm(decoder, start, i), num)
    for i in range(len(way.arms))
  ]
  # Arms that share what they have read take as long to read it.
  late, num_read = zip(
    *(_catch_up(decoder, start, owner) for owner in slots.owners)
  )
  first = [
    _reading(decoder, middle, config.max_length, owner)
    for owner in slots.owners
  ]
  label = f'rounds of {len(way.arms)} arms'
  seconds = measure.in_turns([*whole, *late, *first], repeats, label)
  medians = 1e3 * np.median(seconds, axis=0)
  jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  round_ms, late_ms, first_ms = np.split(
    medians, [len(whole), len(whole) + len(late)]
  )
  late_ms = np.where(num_read, late_ms / np.maximum(num_read, 1), 0.0)
  first_ms = np.where(num_read, first_ms / _READINGS, 0.0)
  return [
    {
      'arm': str(arm),
      'batch_size': config.batch_size,
      'temperature': way.sampling.temperature,
      'depth': decoder.round_fn.arms[i].drafter.topology.depth,
      'round_ms': float(round_ms[i] / num),
      'catch_up_ms': float(late_ms[slot]),
      'prompt_ms': float(first_ms[slot]),
    }
    for i, (arm, slot) in enumerate(zip(way.arms, slots.of_arms))
  ]


def _of_arm(decoder, start, arm):
  """A state of its own, in which that arm is played by the bandit `fixed`."""
  own = jax.tree.map(jnp.copy, start)
  return _read_all(decoder, own.replace(bandit=jnp.int32(arm)))


def _nothing_to_do():
  return lambda: None


def _reading(decoder, prompt, max_length, arm):
  """The preparation of a drafter's reading of a prompt, `_READINGS` times."""
  drafter = decoder.round_fn.arms[arm].drafter
  if drafter.catch_up is None:
    return _nothing_to_do
  params = decoder.params.drafters[arm]
  state = decoder.init([prompt], 1)
  context = state_lib.context(decoder.round_fn.target, drafter, state)
  width = reading_lib.width(len(prompt), max_length)

  @jax.jit
  def read(params, context):
    own = drafter.init(params, context.first(width), max_length)
    # Where this was put off, now.
    return drafter.catch_up.read(params, own, context, jnp.ones(1, bool))

  return lambda: lambda: [read(params, context) for _ in range(_READINGS)]


def _catch_up(decoder, start, arm):
  """The preparation of reading so many tokens, and how many are read."""
  plan = decoder.round_fn
  drafter = plan.arms[arm].drafter
  if drafter.catch_up is None:
    return _nothing_to_do, 0
  params = decoder.params.drafters[arm]
  state = _of_arm(decoder, start, arm)
  late = state.drafters[plan.slots.of_arms[arm]]
  state = state.replace(lengths=state.limits)
  context = state_lib.context(plan.target, drafter, state)
  rows = jnp.ones(len(state.lengths), bool)
  read = jax.jit(drafter.catch_up.read)
  play = lambda: read(params, late, context, rows)
  _, num_read = play()
  return (lambda: play), max(int(num_read.max()), 1)
