"""What a round of each arm takes on this device: the table behind a reward.

The reward 'throughput' is computed with it. A row has an arm as configs write
it, the batch size, the temperature, the depth of the arm's tree, the time of a
round, and that of each token which the drafter reads when it catches up.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
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
from specjax.decoding import state as state_lib

Row = dict[str, Any]

# What configs may have: how many rounds are timed together, and how often.
_DEFAULTS = {'cost_rounds': 32, 'cost_repeats': 5}


def of(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  prompts: Sequence[Sequence[int]],
) -> Callable[[ways_lib.Way], Mapping[str, Sequence[float]]]:
  """Returns what the reward of a way is computed with, as `ways.build` asks.

  Args:
    config: with `batch_size`, and `costs`, a workdir of
      configs/benchmark/costs.py; if it is empty, costs are measured now.
    workdir: of the run, whose log keeps the table: a run that goes on has the
      same one.
    family: whose models are measured.
    prompts: tokens, to measure with.
  """

  found: dict[Any, list[Row]] = {}

  def costs(way):
    key = way.arms, way.sampling, way.target
    if key not in found:
      found[key] = table(config, workdir, family, way, prompts)
    return {
      'costs': [row['round_ms'] / 1e3 for row in found[key]],
      'depths': [row['depth'] for row in found[key]],
      'catch_up_costs': [row['catch_up_ms'] / 1e3 for row in found[key]],
    }

  return costs


def table(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  way: ways_lib.Way,
  prompts: Sequence[Sequence[int]],
) -> list[Row]:
  """Returns a row for each arm of a way: logged, read or measured now.

  Arguments are as in `of`.

  Raises:
    ValueError: the table that is to be read lacks an arm, or is of another
      device.
  """
  source = config.get('costs', '')
  unit = {
    'costs': [str(arm) for arm in way.arms],
    'target': way.target,
    'from': source,
    **dataclasses.asdict(way.sampling),
    **{name: config[name] for name in ('family', 'batch_size', 'max_length')},
    **_numbers(config),
  }

  def compute(unit):
    if source:
      return {'rows': read(source, way, config.batch_size)}
    return {'rows': _measure(config, family, way, prompts)}

  (outcome,) = log.resume(workdir, [unit], compute, 'cost table')
  return outcome['rows']


def read(path: str, way: ways_lib.Way, batch_size: int) -> list[Row]:
  """Returns rows of a table that was made on this device.

  Raises:
    ValueError: there is none, it is of another device, or it lacks an arm.
  """
  found = results.read(path)
  device = measure.device()
  if found['device'] != device:
    raise ValueError(
      f'The cost table {path!r} is of {found["device"]}, not of {device}.'
    )
  columns = 'arm', 'batch_size', 'temperature'
  rows = {tuple(row[name] for name in columns): row for row in found['rows']}
  place = batch_size, way.sampling.temperature
  missing = [str(arm) for arm in way.arms if (str(arm), *place) not in rows]
  if missing:
    raise ValueError(
      f'The cost table {path!r} has no rows for {", ".join(missing)} at batch '
      f'size {batch_size} and temperature {way.sampling.temperature}.'
    )
  return [rows[str(arm), *place] for arm in way.arms]


def rounds(
  decoder: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
  num: int,
) -> measure.Prepare:
  """Returns the preparation of `num` rounds that are to be timed."""

  def prepare():
    state = _begin(decoder, prompts, max_new_tokens)
    return lambda: decoding.trace(
      decoder.round_fn, decoder.params, state, num, _nothing
    )

  return prepare


def batch(prompts: Sequence[Sequence[int]], size: int) -> list[Sequence[int]]:
  """Returns so many prompts, in turns if there are fewer."""
  return list(itertools.islice(itertools.cycle(prompts), size))


def _measure(config, family, way, prompts):
  """A row for each arm; arms take turns, and medians are taken."""
  num, repeats = _numbers(config).values()
  prompts = batch(prompts, config.batch_size)
  room = config.max_length - max(map(len, prompts))
  decoders = [
    ways_lib.build(each, family, config.max_length).decoder
    for each in ways_lib.alone(way)
  ]
  runs = [rounds(decoder, prompts, room, num) for decoder in decoders]
  readers = [_catch_up(decoder, prompts, room) for decoder in decoders]
  reads = [read for read, _ in readers if read]
  label = f'rounds of {len(decoders)} arms'
  seconds = np.median(measure.in_turns(runs + reads, repeats, label), axis=0)
  late = iter(seconds[len(runs) :])
  rows = [
    {
      'arm': str(arm),
      'batch_size': config.batch_size,
      'temperature': way.sampling.temperature,
      'depth': decoder.round_fn.arms[0].drafter.topology.depth,
      'round_ms': 1e3 * float(each / num),
      'catch_up_ms': 1e3 * float(next(late) / num_read) if read else 0.0,
    }
    for arm, decoder, each, (read, num_read) in zip(
      way.arms, decoders, seconds, readers
    )
  ]
  jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  return rows


def _begin(decoder, prompts, max_new_tokens):
  """A state whose rounds are whole: no token stops a row."""
  state = decoder.init(prompts, max_new_tokens)
  return jax.block_until_ready(state.replace(stop_tokens=jnp.array([-1])))


def _catch_up(decoder, prompts, max_new_tokens):
  """The preparation of reading so many tokens, and how many are read.

  None for a drafter that reads nothing.
  """
  (arm,) = decoder.round_fn.arms
  if arm.drafter.catch_up is None:
    return None, 0
  (params,) = decoder.params.drafters
  state = _begin(decoder, prompts, max_new_tokens)
  (late,) = state.drafters
  state = state.replace(lengths=state.limits)
  context = state_lib.context(decoder.round_fn.target, arm.drafter, state)
  rows = jnp.ones(len(prompts), bool)
  read = jax.jit(arm.drafter.catch_up.read)
  play = lambda: read(params, late, context, rows)
  _, num_read = play()
  return (lambda: play), max(int(num_read.max()), 1)


def _nothing(info):
  """Records nothing of a round, as `decoding.decode` does."""
  del info


def _numbers(config):
  return {name: config.get(name, each) for name, each in _DEFAULTS.items()}
