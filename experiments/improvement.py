"""What more drafts of one token are worth under multi-round rejection.

Yin et al. (2024), Figure 3, right.
"""

import os

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np

from experiments import results
from specjax import theory


def run(config, workdir):
  """Writes a row for each pair and each number of drafts; a plot."""
  _check(config)
  results.start(workdir)
  counts = jnp.arange(1, config.max_drafts + 1)
  rows = []
  for family, pair, draft, target, closed_form in _pairs(config):
    values = _over_counts(draft, target, counts)
    limit = 0.5 * float(np.abs(draft - target).sum())
    for num_drafts, value, expected in zip(
      counts.tolist(), values.tolist(), closed_form(counts).tolist()
    ):
      rows.append(
        {
          'family': family,
          'pair': pair,
          'num_drafts': num_drafts,
          'improvement': value,
          'closed_form': expected,
          'limit': limit,
        }
      )
      results.log(workdir, rows[-1])
  results.write(workdir, rows)
  plot(rows, os.path.join(workdir, 'batch_improvement.png'))


def plot(rows, path: str) -> None:
  """Draws it by the number of drafts: lines in closed form, dotted limits."""
  matplotlib.use('Agg')
  families = list(dict.fromkeys(row['family'] for row in rows))
  figure, panels = plt.subplots(
    1,
    len(families),
    figsize=(4.6 * len(families), 4.2),
    squeeze=False,
    layout='constrained',
  )
  for axes, family in zip(panels[0], families):
    of_family = [row for row in rows if row['family'] == family]
    for i, pair in enumerate(dict.fromkeys(row['pair'] for row in of_family)):
      own = [row for row in of_family if row['pair'] == pair]
      counts = [row['num_drafts'] for row in own]
      color = f'C{i}'
      axes.plot(counts, [row['closed_form'] for row in own], color=color)
      axes.plot(
        counts,
        [row['improvement'] for row in own],
        color=color,
        linestyle='',
        marker='o',
        markersize=4,
        label=pair,
      )
      axes.axhline(own[0]['limit'], color=color, linestyle=':', linewidth=1)
    axes.set_title(family)
    axes.set_xlabel('drafts')
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    # Below: the curves and their limits fill the panel.
    axes.legend(
      fontsize=8, ncols=2, loc='upper center', bbox_to_anchor=(0.5, -0.16)
    )
  panels[0, 0].set_ylabel('batch improvement')
  figure.savefig(path, dpi=120)
  plt.close(figure)


_over_counts = jax.jit(
  jax.vmap(theory.batch_improvement, in_axes=(None, None, 0))
)


def _pairs(config):
  """Yields family, name, draft `[V]`, target `[V]` and the closed form."""
  bernoulli = lambda chance: np.array([1 - chance, chance])
  for chance in config.bernoulli_drafts:
    yield (
      f'target Ber({config.bernoulli_target})',
      f'draft Ber({chance})',
      bernoulli(chance),
      bernoulli(config.bernoulli_target),
      lambda counts, chance=chance: theory.bernoulli_batch_improvement(
        chance, config.bernoulli_target, counts
      ),
    )
  size = config.uniform_draft
  for num in config.uniform_targets:
    yield (
      f'draft U({size})',
      f'target U({num}), ratio {size / num:g}',
      np.full(size, 1 / size),
      (np.arange(size) < num) / num,
      lambda counts, num=num: theory.uniform_batch_improvement(
        size / num, counts
      ),
    )


def _check(config):
  if config.max_drafts < 1:
    raise ValueError(f'max_drafts must be >= 1, got {config.max_drafts}.')
  if not 0 <= config.bernoulli_target <= 1:
    raise ValueError(
      f'bernoulli_target must lie in [0, 1], got {config.bernoulli_target}.'
    )
  for chance in config.bernoulli_drafts:
    # The closed form is of the token that is drafted too often.
    if not config.bernoulli_target <= chance < 1:
      raise ValueError(
        'bernoulli_drafts must lie in [bernoulli_target, 1) = '
        f'[{config.bernoulli_target}, 1), got {chance}.'
      )
  for num in config.uniform_targets:
    if not 1 <= num <= config.uniform_draft:
      raise ValueError(
        'uniform_targets must lie in [1, uniform_draft] = '
        f'[1, {config.uniform_draft}], got {num}.'
      )
  if not len(config.bernoulli_drafts) + len(config.uniform_targets):
    raise ValueError('bernoulli_drafts and uniform_targets are both empty.')
