"""Block efficiency and speed of several drafts a round, by rule (SpecTr)."""

import os
import time

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import tqdm

from experiments import batches
from experiments import evaluate
from experiments import results
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib

# What identifies a row.
_SETTINGS = (
  'drafter',
  'draft_length',
  'num_drafts',
  'verifier',
  'prompts',
  'seeds',
  'batch_size',
  'max_new_tokens',
  'temperature',
)
MAY_CHANGE = (
  'drafters',
  'draft_lengths',
  'chain_verifiers',
  'num_drafts',
  'verifiers',
)


def run(config, workdir):
  """Writes a row for each way to decode; goes on where it stopped."""
  if config.num_seeds < 1:
    raise ValueError(f'num_seeds must be >= 1, got {config.num_seeds}.')
  family = families.load(config.family)
  jobs = evaluate.chosen_prompts(config, family)
  prompts = sorted((tokens for _, tokens in jobs), key=len)
  done = results.done(workdir, _SETTINGS)
  rows, plain = [], None
  for way in tqdm.tqdm(_ways(config, family), desc='ways to decode'):
    settings = _settings(config, prompts, *way)
    row = done.get(tuple(settings.values()))
    # Plain decoding is timed anew, so that ratios are of one process.
    if row is None or plain is None:
      row = settings | _measure(config, family, prompts, settings)
      plain = plain or row['tokens_per_second']
      row['speed_up'] = row['tokens_per_second'] / plain
      results.log(workdir, row)
    rows.append(row)
  results.write(workdir, rows)
  path = os.path.join(workdir, 'block_efficiency.png')
  plot_block_efficiency(rows, path)
  print(f'\nBlock efficiency by number of drafts: {path}')


def plot_block_efficiency(rows: list[dict], path: str) -> None:
  """Draws it against the number of drafts, a panel for each drafter.

  Rules of one chain are points at one draft, the others lines, with bars of
  two standard errors; solid for the longest drafts, dotted for the shortest.
  """
  matplotlib.use('Agg')
  drafters = list(dict.fromkeys(row['drafter'] for row in rows[1:]))
  lines_of = {}
  for row in rows[1:]:
    name = row['drafter'], row['draft_length'], row['verifier']
    lines_of.setdefault(name, []).append(row)
  lengths = sorted({row['draft_length'] for row in rows[1:]})
  verifiers = list(dict.fromkeys(row['verifier'] for row in rows[1:]))
  figure, panels = plt.subplots(
    1,
    len(drafters),
    figsize=(3.6 * len(drafters), 3.6),
    sharey=True,
    squeeze=False,
    layout='constrained',
  )
  for (drafter, length, verifier), each in lines_of.items():
    style = (0, (1 + 4 * lengths.index(length), 1))
    panels[0, drafters.index(drafter)].errorbar(
      [row['num_drafts'] for row in each],
      [row['block_efficiency'] for row in each],
      [2 * row['standard_error'] for row in each],
      marker='o',
      markersize=4,
      linestyle=style if length != lengths[-1] else '-',
      color=f'C{verifiers.index(verifier)}',
      label=f'{verifier}, {length} drafted',
    )
  for axes, drafter in zip(panels[0], drafters):
    axes.set_title(drafter)
    axes.set_xlabel('drafts a round')
    axes.set_xscale('log', base=2)
    axes.xaxis.set_major_formatter('{x:.0f}')
    axes.grid(alpha=0.3)
  panels[0, 0].set_ylabel('block efficiency')
  panels[0, -1].legend(fontsize=8)
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _ways(config, family):
  """Drafter, draft length, number of drafts and verifier of each row."""
  ways = [('none', 0, 0, 'none')]
  for drafter in config.drafters or family.drafters:
    for length in config.draft_lengths:
      ways += [(drafter, length, 1, name) for name in config.chain_verifiers]
      ways += [
        (drafter, length, num_drafts, name)
        for num_drafts in config.num_drafts
        for name in config.verifiers
      ]
  return ways


def _settings(config, prompts, *way):
  values = (
    *way,
    len(prompts),
    config.num_seeds,
    config.batch_size,
    config.max_new_tokens,
    config.temperature,
  )
  return dict(zip(_SETTINGS, values, strict=True))


def _measure(config, family, prompts, settings):
  """Decodes all prompts with every seed; a first pass compiles, untimed."""
  plain = settings['drafter'] == 'none'
  decoder = families.decoder(
    family,
    None if plain else settings['drafter'],
    draft_length=settings['draft_length'] or 1,
    num_drafts=settings['num_drafts'] or 1,
    verifier=None if plain else settings['verifier'],
    sampling=sampling_lib.Sampling(config.temperature),
    max_length=config.max_length,
  )

  def decode_all(seed, max_new_tokens):
    return list(
      batches.decode(
        decoder,
        prompts,
        max_new_tokens,
        config.batch_size,
        seed=seed,
        progress=False,
      )
    )

  decode_all(0, 1)
  began = time.perf_counter()
  by_seed = [
    decode_all(config.seed + i, config.max_new_tokens)
    for i in range(config.num_seeds)
  ]
  seconds = time.perf_counter() - began
  outputs = [output for each in by_seed for output in each]
  efficiency, error = metrics.block_efficiency(outputs)
  of_seeds = [metrics.block_efficiency(each)[0] for each in by_seed]
  return {
    'block_efficiency': efficiency,
    'standard_error': error,
    'deviation_over_seeds': float(np.std(of_seeds)),
    'tokens_per_second': sum(len(o.tokens) for o in outputs) / seconds,
  }
