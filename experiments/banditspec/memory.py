"""Measures the memory and bandwidth of decode loops with several arms.

BanditSpec, Table 2.
"""

from collections.abc import Mapping
import itertools
from typing import Any

import jax
import numpy as np

from experiments.common import choice
from experiments.common import compare
from experiments.common import costs
from experiments.common import log
from experiments.common import methods as methods_lib
from experiments.common import paper
from experiments.common import plots
from experiments.common import workdirs
from specjax import decoding
from specjax import metrics
from specjax import registry

MAY_CHANGE = (*compare.MAY_CHANGE, 'baseline')
# Columns that are also shown relative to the baseline.
_RELATIVE = ('parameters', 'caches', 'loop', 'bytes_per_token')
_BANDWIDTH = 'relative_bandwidth'

# The memory of each loop, by the name of its method's settings.
_Loops = Mapping[str, Mapping[str, int]]


def prepare(config):
  """Returns the methods and prompts; `baseline` must be one of the methods.

  Raises:
    ValueError: the config is wrong, or there are several prompt sets, or
      prompts of several turns: the bytes are those of a loop's rounds.
  """
  setup = choice.prepare(config)
  names = list(config.prompts)
  if len(names) > 1:
    raise ValueError(f'prompts must hold a single prompt set, got {names}.')
  num_turns = max(len(job.turns) for job in setup.prompt_sets[0].jobs)
  if num_turns > 1:
    raise ValueError(f'prompts must have a single turn each, got {num_turns}.')
  labels = dict.fromkeys(method.label for method in setup.methods)
  registry.lookup(labels, 'baseline', config.baseline)
  return setup


def run(config, workdir):
  """Returns a row per method, with the columns of `_memory`.

  `bytes_per_token` are the bytes of a pass per token that a round of the batch
  emits, if all of its rows are live. For timed records, `gigabytes_per_second`
  is the measured bandwidth of `_bandwidth`. Columns `relative_` are relative to
  the baseline.
  """
  setup = prepare(config)
  decoded = compare.decode(config, workdir, setup)
  loops = _loops(config, workdir, setup)
  rows = []
  for result, row in zip(decoded, compare.rows(decoded)):
    row = {'batch_size': config.batch_size} | row | _loop(loops, result.method)
    emitted = config.batch_size * row['block_efficiency']
    rows.append(row | {'bytes_per_token': row['bytes_of_pass'] / emitted})
  baseline = next(row for row in rows if row['method'] == config.baseline)
  rows = [
    row | {f'relative_{name}': row[name] / baseline[name] for name in _RELATIVE}
    for row in rows
  ]
  if config.repeats:
    _add_bandwidths(rows, decoded, loops, config)
  return rows


def figures(rows):
  """Draws the loops' memory and bandwidth over those of the baseline."""
  sizes = [row | {'batch': f'batch size {row["batch_size"]}'} for row in rows]
  labels = {'relative_loop': 'memory', _BANDWIDTH: 'bandwidth'}
  return {
    label: plots.bars(
      sizes,
      'batch',
      column,
      'method',
      ylabel=f'{label} over that of the baseline',
      paper=True,
    )
    for column, label in labels.items()
    if column in rows[0]
  }


def num_bytes(tree):
  """Returns the bytes of a tree's arrays; shared arrays count once."""
  arrays = {id(leaf): leaf for leaf in jax.tree.leaves(tree)}
  return sum(leaf.nbytes for leaf in arrays.values())


def _add_bandwidths(
  rows: list[dict[str, Any]],
  decoded: list[compare.Decoded],
  loops: _Loops,
  config: Any,
) -> None:
  """Adds the columns of the bandwidth to the rows of timed methods.

  Clocks drift between methods, so that a ratio to the baseline is one of
  bandwidths relative to the speed of plain decoding, whose timings on the same
  prompts are interleaved with those of the method.
  """
  estimates = [
    _bandwidth(result, loops, config.batch_size) for result in decoded
  ]
  labels = [result.method.label for result in decoded]
  _, baseline = estimates[labels.index(config.baseline)]
  for row, (bandwidth, relative) in zip(rows, estimates):
    ratio = relative.over(baseline)
    row |= {
      'gigabytes_per_second': bandwidth.value,
      'gigabytes_per_second_error': bandwidth.error,
      _BANDWIDTH: ratio.value,
      f'{_BANDWIDTH}_error': ratio.error,
    }
    row[paper.PAIRED] = row[paper.PAIRED] | {_BANDWIDTH: ratio}


def _bandwidth(
  decoded: compare.Decoded, loops: _Loops, batch_size: int
) -> tuple[metrics.Estimate, metrics.Estimate]:
  """Returns the bandwidth of a method, and the same relative to plain speed.

  The bytes of a round are those of a pass through the loop that has only the
  arm of this round. Tokens that idle drafters read do not count, so that the
  bandwidth of several arms is a lower bound. The time is that of the decode
  loop. Batches are the independent items of the errors.

  Args:
    decoded: timed records of one method.
    loops: the memory of all loops.
    batch_size: rows of a batch.

  Returns:
    Gigabytes per second, and gigabytes per second over the tokens per second of
    plain decoding on the same prompts.
  """
  arms = methods_lib.single_arms(decoded.method)
  gigabytes_of_pass = [_loop(loops, arm)['bytes_of_pass'] / 1e9 for arm in arms]
  items = []
  for first in range(0, len(decoded.records), batch_size):
    batch = decoded.records[first : first + batch_size]
    # A batch takes the rounds of its longest row. Its time is divided equally
    # among the rows, and the last batch is filled up.
    longest = max(batch, key=lambda record: record['rounds'])
    items.append(
      (
        np.dot(longest['pulls'], gigabytes_of_pass),
        batch_size * longest['seconds'],
        sum(record['reference_emitted'] for record in batch),
        batch_size * longest['reference_seconds'],
      )
    )
  gigabytes, seconds, plain_tokens, plain_seconds = np.array(items).T
  bandwidth = metrics.estimate(gigabytes, seconds)
  plain_speed = metrics.estimate(plain_tokens, plain_seconds)
  return bandwidth, bandwidth.over(plain_speed)


def _loop(loops: _Loops, method: methods_lib.Method) -> Mapping[str, int]:
  """Returns the memory of a method's loop."""
  return loops[log.name(method.settings)]


def _loops(
  config: Any, workdir: workdirs.Workdir, setup: compare.Setup
) -> _Loops:
  """Returns the memory of all loops, which are compiled and logged one by one.

  For bandwidths, these include the loops of the arms of bandits.
  """
  methods = list(setup.methods)
  if config.repeats:
    methods += itertools.chain(*map(methods_lib.single_arms, setup.methods))
  by_name = {log.name(method.settings): method for method in methods}
  (prompt_set,) = setup.prompt_sets
  prompts = costs.batch(
    [job.turns[0] for job in prompt_set.jobs], config.batch_size
  )
  names = 'family', 'batch_size', 'max_length'
  shape = {name: config[name] for name in names}
  units = [{'loop': method.settings} | shape for method in by_name.values()]
  compute = lambda method: _memory(config, setup, method, prompts)
  inputs = list(by_name.values())
  outcomes = log.resume(workdir, units, compute, 'loops', inputs)
  return dict(zip(by_name, outcomes))


def _memory(
  config: Any,
  setup: compare.Setup,
  method: methods_lib.Method,
  prompts: list[list[int]],
) -> dict[str, int]:
  """Returns the memory of a method in bytes.

  `loop` is the memory of the compiled loop: parameters, state, XLA's buffers
  for intermediate values, and outputs that do not alias the state.
  `bytes_of_pass` are XLA's count of the bytes that one pass through the loop
  reads and writes: operands and results of each fused operation, whether from
  memory or from a processor's cache; of a switch, the costliest branch; of an
  inner loop, one pass. With several arms, this is an upper bound.
  """
  decoder = methods_lib.build(method, setup.family, config.max_length).decoder
  state = decoder.init(prompts, config.max_new_tokens)
  loop = decoding.decode.lower(decoder.round_fn, decoder.params, state)
  loop = loop.compile()
  memory = loop.memory_analysis()
  return {
    'parameters': num_bytes(decoder.params),
    'caches': num_bytes((state.target, state.drafters)),
    'bandit': num_bytes(state.bandit),
    # XLA counts shared parameters once per argument.
    'loop': num_bytes((decoder.params, state))
    + memory.temp_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes,
    'bytes_of_pass': int(loop.cost_analysis()['bytes accessed']),
  }
