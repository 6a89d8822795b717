"""Memory of the decode loop with one arm and with several (BanditSpec)."""

from typing import Any

import jax
import numpy as np
import tqdm

from experiments import arms as arms_lib
from experiments import evaluate
from experiments import looped
from experiments import results
from specjax import decoding
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib

# Columns that are also given over the baseline's.
_RELATIVE = ('parameters', 'caches', 'loop', 'bytes_per_token')


def run(config, workdir):
  """Writes a row for each batch size and way to decode; see `_measure`."""
  specs = [
    spec
    for spec in arms_lib.specs(config.arms)
    if spec.drafter != 'retrieval' or config.datastore
  ]
  _check(config, specs)
  results.start(workdir)
  family = families.load(config.family)
  prompts = _prompts(config, family)
  ways = _ways(config, family, specs)
  device, rows = results.device(), []
  for batch_size in config.batch_sizes:
    found = {
      way: _measure(config, family, arms, bandit, prompts, batch_size)
      for way, (arms, bandit) in tqdm.tqdm(
        ways.items(), desc=f'batches of {batch_size}'
      )
    }
    baseline = found[config.baseline]
    for way, row in found.items():
      relative = {
        f'relative_{name}': row[name] / baseline[name] for name in _RELATIVE
      }
      rows.append(
        {'batch_size': batch_size, 'way': way}
        | row
        | relative
        | {'device': device}
      )
      results.log(workdir, rows[-1])
  results.write(workdir, rows)


def num_bytes(tree: Any) -> int:
  """Returns the bytes of a tree's arrays; one that is there twice counts once.

  So that arms with one drafter have its parameters once.
  """
  arrays = {id(leaf): leaf for leaf in jax.tree.leaves(tree)}
  return sum(leaf.nbytes for leaf in arrays.values())


def _ways(config, family, specs):
  """Arms and bandit of every way to decode, by name."""
  sampling = sampling_lib.Sampling(config.temperature)
  arms = arms_lib.build(family, specs, sampling, config.datastore)
  plain = arms_lib.build(family, [('none', 0)], sampling)
  lengths = arms_lib.build(
    family, arms_lib.lengths(config.drafter, config.draft_lengths), sampling
  )
  ways = {'none': (plain, 'fixed')}
  ways |= {spec.name: ([arm], 'fixed') for spec, arm in zip(specs, arms)}
  for label, several in (('drafters', arms), ('lengths', lengths)):
    ways |= {
      f'{bandit}, {label}': (several, bandit) for bandit in config.bandits
    }
  return ways


def _prompts(config, family):
  """Chosen at random, and short enough."""
  jobs = evaluate.chosen_prompts(config, family)
  rng = np.random.default_rng(config.seed)
  chosen = rng.choice(len(jobs), config.num_prompts)
  return [jobs[i][1] for i in chosen]


def _measure(config, family, arms, bandit, prompts, batch_size):
  """What a way to decode needs, in bytes.

  Returns:
    parameters: of target and drafters.
    caches: of target and drafters, as long as the buffer.
    bandit: the bandit's state.
    loop: all that the compiled loop has at once: the parameters, the state,
      what XLA sets aside for intermediate values, and outputs that do not take
      the place of the state. Prompts are read before, and do not count.
    block_efficiency: emitted tokens of a row's round, over all prompts.
    round: read and written by one pass through the loop, as XLA counts it in
      advance: operands and results of each fused operation, whether they come
      from memory or from a processor's cache; of a switch, its costliest
      branch; of an inner loop, one pass. With several arms, that is above what
      the arms that are played really need.
    bytes_per_token: `round` over the tokens that a round of the batch emits,
      if all of its rows are live.
  """
  decoder = arms_lib.decoder(
    family,
    arms,
    bandit,
    sampling_lib.Sampling(config.temperature),
    max_length=config.max_length,
  )
  state = decoder.init(prompts[:batch_size], config.max_new_tokens)
  # The calls below find it compiled.
  loop = decoding.decode.lower(decoder.round_fn, decoder.params, state)
  loop = loop.compile()
  memory = loop.memory_analysis()
  accessed = loop.cost_analysis()['bytes accessed']
  outputs, bandit_state = [], None
  for start in range(0, len(prompts), batch_size):
    each, bandit_state, _ = looped.decode(
      decoder,
      prompts[start : start + batch_size],
      config.max_new_tokens,
      bandit_state,
      seed=config.seed,
      request_ids=range(start, start + batch_size),
    )
    outputs += each
  efficiency, _ = metrics.block_efficiency(outputs)
  return {
    'parameters': num_bytes(decoder.params),
    'caches': num_bytes((state.target, state.drafters)),
    'bandit': num_bytes(state.bandit),
    # XLA's own count of arguments has shared parameters several times.
    'loop': num_bytes((decoder.params, state))
    + memory.temp_size_in_bytes
    + memory.output_size_in_bytes
    - memory.alias_size_in_bytes,
    'block_efficiency': efficiency,
    'round': int(accessed),
    'bytes_per_token': accessed / (batch_size * efficiency),
  }


def _check(config, specs):
  names = [spec.name for spec in specs]
  if config.baseline not in names:
    raise ValueError(
      f'baseline must be one of {", ".join(names)}, got {config.baseline!r}.'
    )
  for size in config.batch_sizes:
    if size < 1 or config.num_prompts % size:
      raise ValueError(
        f'batch_sizes must divide num_prompts={config.num_prompts}, got {size}.'
      )
