"""Measures the decode loop's memory with one and several arms (BanditSpec)."""

from collections.abc import Iterator
from typing import Any

import jax

from experiments.common import choice
from experiments.common import compare
from experiments.common import log
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import workdirs
from specjax import decoding
from specjax import registry

MAY_CHANGE = (*compare.MAY_CHANGE, 'baseline')
# Columns that are also shown relative to the baseline.
_RELATIVE = ('parameters', 'caches', 'loop', 'bytes_per_token')


def prepare(config):
  """Returns the methods and prompts; `baseline` must be one of the methods."""
  setup = choice.prepare(config)
  labels = dict.fromkeys(method.label for method in setup.methods)
  registry.lookup(labels, 'baseline', config.baseline)
  return setup


def run(config, workdir):
  """Returns a row per method, with the columns of `_memory`.

  `bytes_per_token` are the bytes of a pass per token that a round of the batch
  emits, if all of its rows are live. Columns `relative_` are relative to the
  baseline.
  """
  setup = prepare(config)
  decoded = compare.decode(config, workdir, setup)
  labels = [method.label for method in setup.methods]
  memory = dict(zip(labels, _loops(config, workdir, setup)))
  rows = []
  for row in compare.rows(decoded):
    row = {'batch_size': config.batch_size} | row | memory[row['method']]
    emitted = config.batch_size * row['block_efficiency']
    rows.append(row | {'bytes_per_token': row['bytes_of_pass'] / emitted})
  baseline = next(row for row in rows if row['method'] == config.baseline)
  return [
    row | {f'relative_{name}': row[name] / baseline[name] for name in _RELATIVE}
    for row in rows
  ]


def figures(rows):
  """Draws the loops' memory over that of the baseline."""
  sizes = [row | {'batch': f'batch size {row["batch_size"]}'} for row in rows]
  return {
    'memory': plots.bars(
      sizes,
      'batch',
      'relative_loop',
      'method',
      ylabel='memory over that of the baseline',
      paper=True,
    )
  }


def num_bytes(tree):
  """Returns the bytes of a tree's arrays; shared arrays count once."""
  arrays = {id(leaf): leaf for leaf in jax.tree.leaves(tree)}
  return sum(leaf.nbytes for leaf in arrays.values())


def _loops(
  config: Any, workdir: workdirs.Workdir, setup: compare.Setup
) -> Iterator[dict[str, int]]:
  """Yields the memory of each method; compiled loops are logged one by one."""
  prompts = [job.turns[0] for job in setup.prompt_sets[0].jobs][
    : config.batch_size
  ]
  names = 'family', 'batch_size', 'max_length'
  shape = {name: config[name] for name in names}
  units = [{'loop': method.settings} | shape for method in setup.methods]
  compute = lambda method: _memory(config, setup, method, prompts)
  return log.resume(workdir, units, compute, 'loops', setup.methods)


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
