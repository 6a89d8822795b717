"""Memory of the decode loop with one arm and with several (BanditSpec)."""

import jax

from experiments.common import choice
from experiments.common import compare
from experiments.common import log
from experiments.common import methods as methods_lib
from experiments.common import plots
from specjax import decoding
from specjax import registry

MAY_CHANGE = (*compare.MAY_CHANGE, 'baseline')
# Columns that are also given over the baseline's.
_RELATIVE = ('parameters', 'caches', 'loop', 'bytes_per_token')


def prepare(config):
  """Returns the methods and prompts; `baseline` must be one of the methods."""
  prepared = choice.plan(config)
  labels = dict.fromkeys(method.label for method in prepared.methods)
  registry.lookup(labels, 'baseline', config.baseline)
  return prepared


def run(config, workdir):
  """Returns a row for each method; see `_held`.

  `bytes_per_token` are those of a pass over the tokens that a round of the
  batch emits, if all of its rows are live. `relative_` are over the baseline's.
  """
  made = prepare(config)
  decoded = compare.decode(config, workdir, made)
  held = dict(
    zip(
      (method.label for method in made.methods), _loops(config, workdir, made)
    )
  )
  rows = []
  for row in compare.rows(decoded):
    row = {'batch_size': config.batch_size} | row | held[row['method']]
    emitted = config.batch_size * row['block_efficiency']
    rows.append(row | {'bytes_per_token': row['bytes_of_pass'] / emitted})
  baseline = next(row for row in rows if row['method'] == config.baseline)
  return [
    row | {f'relative_{name}': row[name] / baseline[name] for name in _RELATIVE}
    for row in rows
  ]


def figures(rows):
  """Draws what the loops hold, over what the baseline's does."""
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
  """Returns the bytes of a tree's arrays; those of two arms count once."""
  arrays = {id(leaf): leaf for leaf in jax.tree.leaves(tree)}
  return sum(leaf.nbytes for leaf in arrays.values())


def _loops(config, workdir, made):
  """What each method needs; compiled loops are logged as they come."""
  prompts = [job.turns[0] for job in made.prompt_sets[0].jobs][
    : config.batch_size
  ]
  names = 'family', 'batch_size', 'max_length'
  shape = {name: config[name] for name in names}
  units = [{'loop': method.settings} | shape for method in made.methods]
  held = lambda method: _held(config, made, method, prompts)
  return log.resume(workdir, units, held, 'loops', made.methods)


def _held(config, made, method, prompts):
  """What a method needs, in bytes.

  `loop` is all that the compiled loop has at once: parameters, state, what XLA
  sets aside for intermediate values, and outputs that do not take the place of
  the state. `bytes_of_pass` are read and written by one pass through it, as XLA
  counts in advance: operands and results of each fused operation, from memory
  or from a processor's cache; of a switch, its costliest branch; of an inner
  loop, one pass. With several arms, that is above what the played ones need.
  """
  decoder = methods_lib.build(method, made.family, config.max_length).decoder
  state = decoder.init(prompts, config.max_new_tokens)
  loop = decoding.decode.lower(decoder.round_fn, decoder.params, state)
  loop = loop.compile()
  memory = loop.memory_analysis()
  return {
    'parameters': num_bytes(decoder.params),
    'caches': num_bytes((state.target, state.drafters)),
    'bandit': num_bytes(state.bandit),
    # XLA's own count of arguments has shared parameters several times.
    'loop': num_bytes((decoder.params, state))
    + memory.temp_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes,
    'bytes_of_pass': int(loop.cost_analysis()['bytes accessed']),
  }
