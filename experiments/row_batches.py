"""One bandit for a batch or one for each row: batches of one kind and of many.

MetaSD's Table 17, whose batches share a drafter.
"""

import functools

import jax
import numpy as np
import tqdm

from experiments import arms as arms_lib
from experiments import batches
from experiments import looped
from experiments import prompt_sets
from experiments import results
from specjax import checks
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib

# What identifies a row.
_SETTINGS = ('batch_size', 'prompts', 'way', 'choice', 'config')
# Fields of the config that `config` leaves out: settings of their own. The
# largest of batch_sizes is none: it sets how many prompts there are.
_OWN = ('others', 'bandits')
MAY_CHANGE = _OWN
_PROMPTS = ('homogeneous', 'mixed')


def run(config, workdir):
  """Writes a row for each batch size, kind of batch and way to decode."""
  ways = _ways(config)
  family = families.load(config.family)
  domains = _by_domain(config, prompt_sets.build(config, family))
  largest = max(config.batch_sizes)
  orders = {kind: order(domains, kind, largest) for kind in _PROMPTS}

  @functools.cache
  def chosen(kind):
    return best_arms(config, family, orders[kind])

  done = results.done(workdir, _SETTINGS)
  rows = []
  for size in config.batch_sizes:
    for way, choice in tqdm.tqdm(ways, desc=f'ways at batch size {size}'):
      decoder = _decoder(config, family, way, choice)
      for kind, prompts in orders.items():
        settings = _settings(config, size, kind, way, choice)
        row = done.get(tuple(settings.values()))
        if row is None:
          arms = chosen(kind) if way == 'oracle' else None
          row = settings | measure(config, decoder, prompts, size, arms)
          results.log(workdir, row)
        rows.append({k: v for k, v in row.items() if k != 'config'})
    jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  results.write(workdir, rows)


def order(
  domains: dict[str, list[list[int]]], kind: str, largest: int
) -> list[list[int]]:
  """Returns as many prompts of each domain, in the order of their batches.

  Any batch size that divides `largest` has whole batches, and all prompts of a
  homogeneous one are of one domain.

  Args:
    domains: prompts of each.
    kind: 'homogeneous', domain by domain, or 'mixed', domains in turns.
    largest: batch size.
  """
  fewest = min(map(len, domains.values()))
  count = fewest - fewest % largest
  if not count:
    raise ValueError(
      f'Every domain needs {largest} prompts for the largest of batch_sizes, '
      f'got {fewest}.'
    )
  kept = [prompts[:count] for prompts in domains.values()]
  groups = kept if kind == 'homogeneous' else zip(*kept)
  return [prompt for group in groups for prompt in group]


def best_arms(config, family, prompts: list[list[int]]) -> np.ndarray:
  """Returns `[P]` int32: each prompt's arm of most tokens a round, alone."""
  outputs = [
    list(
      batches.decode(
        _decoder(config, family, name, 'alone'),
        prompts,
        config.max_new_tokens,
        max(config.batch_sizes),
        seed=config.seed,
      )
    )
    for name in _arms(config)
  ]
  efficiency = [
    [len(output.tokens) / output.rounds for output in each] for each in outputs
  ]
  return np.argmax(efficiency, axis=0).astype(np.int32)


def measure(config, decoder, prompts, batch_size: int, chosen=None) -> dict:
  """Decodes batch by batch, each with new bandits.

  Args:
    config: of the experiment.
    decoder: of the way.
    prompts: token ids of each, in whole batches.
    batch_size: rows of a batch.
    chosen: `[P]` the arm that each prompt is left to, for the oracle.
  """
  outputs, seconds = [], 0.0
  looped.warm_up(decoder, prompts[:batch_size], config.max_new_tokens)
  for start in range(0, len(prompts), batch_size):
    rows = slice(start, start + batch_size)
    each, _, took = looped.decode(
      decoder,
      prompts[rows],
      config.max_new_tokens,
      None if chosen is None else chosen[rows],
      seed=config.seed,
      request_ids=range(len(prompts))[rows],
    )
    outputs += each
    seconds += took
  efficiency, error = metrics.block_efficiency(outputs)
  return {
    'decoded': len(prompts),
    'block_efficiency': efficiency,
    'standard_error': error,
    'tokens_per_second': sum(len(out.tokens) for out in outputs) / seconds,
    'num_catch_up_tokens': sum(
      output.num_catch_up_tokens for output in outputs
    ),
  }


def _ways(config):
  """Each way, and who chooses: nobody, the batch or every row."""
  for entry in config.bandits:
    arms_lib.parse(entry)
  checks.check_range('batch_sizes', config.batch_sizes, 1)
  largest = max(config.batch_sizes)
  if any(largest % size for size in config.batch_sizes):
    raise ValueError(
      f'batch_sizes must divide the largest, got {config.batch_sizes}.'
    )
  return [
    *((name, 'alone') for name in _arms(config, config.others)),
    *((name, choice) for name in config.bandits for choice in ('batch', 'row')),
    ('oracle', 'row'),
  ]


def _by_domain(config, sets):
  """Prompts of all sets by their domain."""
  domains = {}
  for job in (job for jobs in sets.values() for job in jobs):
    if len(job.turns) > 1:
      raise ValueError(f'turns of sets must be 1, got {len(job.turns)}.')
    domains.setdefault(job.label, []).append(job.turns[0])
  return domains


def _arms(config, entries=None):
  """Entries by name, those of the arms by default."""
  entries = config.arms if entries is None else entries
  return dict(zip([spec.name for spec in arms_lib.specs(entries)], entries))


def _settings(config, size, kind, way, choice):
  fingerprint = results.fingerprint(config, _OWN)
  values = size, kind, way, choice, fingerprint
  return dict(zip(_SETTINGS, values, strict=True))


def _decoder(config, family, way, choice):
  sampling = sampling_lib.Sampling(config.temperature)
  entries, bandit, catch_up = config.arms, way, 'lazy'
  if choice == 'alone':
    entries = [(_arms(config) | _arms(config, config.others))[way]]
  if choice == 'alone' or way == 'oracle':
    bandit = 'fixed'  # To the arms that are given as the bandits' state.
  else:
    catch_up = arms_lib.parse(way).catch_up
  arms = arms_lib.build(
    family, entries, sampling, config.datastore, catch_up=catch_up
  )
  return arms_lib.decoder(
    family,
    arms,
    bandit,
    sampling,
    max_length=config.max_length,
    per_row=choice == 'row',
  )
