"""What a round of each arm costs on this device: the table behind rewards.

Rows of `costs.json`: the arm, the batch size, seconds of a round, and seconds
for each token that the drafter reads when it catches up.
"""

from collections.abc import Callable
from collections.abc import Sequence
import itertools
import json
import os
from typing import Any

import jax
import jax.numpy as jnp

from experiments import arms as arms_lib
from experiments import results
from experiments.common import calls
from specjax import base
from specjax import decoding
from specjax import families
from specjax import registry
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax.drafters import autoregression


def _nothing(info):
  """Records nothing of a round, as `decoding.decode` does."""
  del info


def rounds(
  decoder: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
  num: int,
  repeats: int,
) -> Callable[[], Any]:
  """Returns a function that plays `num` rounds, for `repeats` and a warm-up."""
  # No stop token, so that every round is a whole one.
  states = [
    decoder.init(prompts, max_new_tokens).replace(stop_tokens=jnp.array([-1]))
    for _ in range(repeats + 1)
  ]
  return lambda: jax.block_until_ready(
    decoding.trace(
      decoder.round_fn, decoder.params, states.pop(), num, _nothing
    )
  )


def measure(
  family: families.Family,
  specs: Sequence[arms_lib.Spec],
  batch_size: int,
  prompts: Sequence[Sequence[int]],
  *,
  temperature: float,
  max_length: int,
  num_rounds: int,
  repeats: int,
  datastore: str = '',
) -> list[dict[str, Any]]:
  """Returns a row for each arm; arms take turns, and medians are taken.

  Args:
    family: whose models are measured.
    specs: of each arm.
    batch_size: rows of a batch.
    prompts: the first ones are used, in turns if they are fewer.
    temperature: of target and drafts.
    max_length: slots of a row.
    num_rounds: how many rounds are timed together.
    repeats: how often.
    datastore: as in `arms.build`.
  """
  sampling = sampling_lib.Sampling(temperature)
  prompts = list(itertools.islice(itertools.cycle(prompts), batch_size))
  room = max_length - max(map(len, prompts))
  functions = []
  for arm in arms_lib.build(family, specs, sampling, datastore):
    decoder = arms_lib.decoder(
      family, [arm], 'fixed', sampling, max_length=max_length
    )
    functions.append(rounds(decoder, prompts, room, num_rounds, repeats))
  names = [spec.drafter for spec in specs if spec.drafter in family.drafters]
  names = list(dict.fromkeys(names))
  reads = [
    calls.call(
      family.drafters[name],
      autoregression.CHUNK,
      batch_size,
      max_length // 2,
      seed=0,
      result='pending',  # Nobody asks what follows.
    )
    for name in names
  ]
  label = f'rounds at batch size {batch_size}'
  seconds = results.medians(repeats, functions + reads, label)
  late = dict(zip(names, seconds[len(specs) :] / autoregression.CHUNK))
  jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  return [
    {
      **spec._asdict(),
      'batch_size': batch_size,
      'temperature': temperature,
      'seconds': float(each / num_rounds),
      'catch_up_seconds': float(late.get(spec.drafter, 0.0)),
      'device': results.device(),
    }
    for spec, each in zip(specs, seconds)
  ]


def read(path: str) -> list[dict[str, Any]]:
  """Reads a cost table that `configs/benchmark.py` has made on this device."""
  if not os.path.isfile(path):
    raise ValueError(
      f'There is no cost table {path!r}: make one with configs/benchmark.py.'
    )
  with open(path, encoding='utf-8') as file:
    rows = json.load(file)
  device = results.device()
  others = sorted({row['device'] for row in rows} - {device})
  if others:
    raise ValueError(
      f'The cost table {path!r} is of {", ".join(others)}, not of {device}.'
    )
  return rows


def reward(
  rows: Sequence[dict[str, Any]],
  specs: Sequence[arms_lib.Spec],
  batch_size: int,
  temperature: float,
) -> base.Reward:
  """Builds the reward of tokens per second from a cost table."""
  columns = (*arms_lib.Spec._fields, 'batch_size', 'temperature')
  # JSON has lists for the tuples of names that ensembles are.
  plain = lambda value: tuple(value) if isinstance(value, list) else value
  table = {tuple(plain(row[name]) for name in columns): row for row in rows}
  place = batch_size, temperature
  missing = [spec.name for spec in specs if (*spec, *place) not in table]
  if missing:
    raise ValueError(
      f'The cost table has no rows for {", ".join(missing)} at batch size '
      f'{batch_size} and temperature {temperature}.'
    )
  each = [table[*spec, *place] for spec in specs]
  return rewards.throughput(
    [row['seconds'] for row in each],
    [spec.draft_length for spec in specs],
    [row['catch_up_seconds'] for row in each],
  )


def named_reward(
  config: Any,
  name: str,
  family: families.Family,
  specs: Sequence[arms_lib.Spec],
  batch_size: int,
  prompts: Sequence[Sequence[int]],
) -> base.Reward:
  """Builds a reward by its name.

  Args:
    config: where, for 'throughput', `costs` is the file of a table, or empty to
      measure one now.
    name: of `REWARDS`.
    family: whose models are measured.
    specs: of each arm.
    batch_size: rows of a batch.
    prompts: to measure with.
  """
  if name != 'throughput':
    return registry.lookup(rewards.REWARDS, 'reward', name)()
  if config.costs:
    table = read(config.costs)
  else:
    table = measure(
      family,
      specs,
      batch_size,
      prompts,
      temperature=config.temperature,
      max_length=config.max_length,
      num_rounds=config.cost_rounds,
      repeats=config.cost_repeats,
      datastore=config.get('datastore', ''),
    )
  return reward(table, specs, batch_size, config.temperature)
