"""Draft lengths of a pool of drafters, and a bandit among them (MetaSD)."""

import os

import matplotlib
import matplotlib.pyplot as plt
import ml_collections

from experiments import bandits
from experiments import results

MAY_CHANGE = ('drafters', 'draft_lengths', *bandits.MAY_CHANGE)


def run(config, workdir):
  """Writes the rows of `bandits` for every draft length, and draws them."""
  rows = []
  for length in config.draft_lengths:
    arms = tuple((drafter, length) for drafter in config.drafters)
    for row in bandits.table(_with_arms(config, arms), workdir):
      rows.append({'draft_length': length} | row)
  results.write(workdir, rows)
  path = os.path.join(workdir, 'draft_lengths.png')
  plot_lengths(rows, config, path)
  print(f'\nBlock efficiency and speed-up by draft length: {path}')


def plot_lengths(rows: list[dict], config, path: str):
  """Draws the best drafter of each length and the bandits, over all prompts.

  Args:
    rows: of all lengths, ways and domains.
    config: with `bandits`.
    path: of the image.
  """
  matplotlib.use('Agg')
  rows = [row for row in rows if row['domain'] == 'all']
  plain = {
    row['draft_length']: row['tokens_per_second']
    for row in rows
    if row['way'] == 'none'
  }
  lines = {
    'best drafter': [row for row in rows if row['way'] == row['best_arm']]
  }
  lines |= {
    name: [row for row in rows if row['way'] == name] for name in config.bandits
  }
  figure, (left, right) = plt.subplots(
    1, 2, figsize=(9, 3.5), layout='constrained'
  )
  for name, line in lines.items():
    lengths = [row['draft_length'] for row in line]
    left.errorbar(
      lengths,
      [row['block_efficiency'] for row in line],
      yerr=[2 * row['standard_error'] for row in line],
      marker='o',
      label=name,
    )
    speed_ups = [
      row['tokens_per_second'] / plain[row['draft_length']] for row in line
    ]
    right.plot(lengths, speed_ups, marker='o', label=name)
  left.set_ylabel('block efficiency')
  right.set_ylabel('tokens per second over plain decoding')
  right.axhline(1, color='black', linewidth=0.8)
  for axis in (left, right):
    axis.set_xlabel('draft length')
    axis.grid(alpha=0.3)
  left.legend(fontsize=7, loc='upper left')
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _with_arms(config, arms):
  fields = config.to_dict()
  del fields['drafters'], fields['draft_lengths']
  return ml_collections.ConfigDict(fields | {'arms': arms})
