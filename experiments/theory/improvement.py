"""What more drafts of one token are worth under multi-round rejection.

Yin et al. (2024), Figure 3, right.
"""

import jax
import numpy as np

from experiments.common import configs
from experiments.common import plots
from specjax import checks
from specjax import theory

_over_counts = jax.jit(
  jax.vmap(theory.batch_improvement, in_axes=(None, None, 0))
)


def run(config, workdir):
  """Returns a row for each pair and each number of drafts."""
  del workdir  # All is computed in a moment.
  configs.check_counts(config, ('max_drafts',))
  for name in ('bernoulli_target', 'bernoulli_drafts'):
    checks.check_range(name, config[name], 0, 1)
  size = config.uniform_draft
  checks.check_range('uniform_targets', config.uniform_targets, 1, size)
  counts = np.arange(1, config.max_drafts + 1)
  return [
    {
      'family': family,
      'pair': pair,
      'num_drafts': num_drafts,
      'improvement': improvement,
      'limit': 0.5 * float(np.abs(draft - target).sum()),
    }
    for family, pair, draft, target in _pairs(config)
    for num_drafts, improvement in zip(
      counts.tolist(), _over_counts(draft, target, counts).tolist()
    )
  ]


def _pairs(config):
  """Yields the name of each family and pair, draft and target."""
  bernoulli = lambda chance: np.array([1 - chance, chance])
  chance, size = config.bernoulli_target, config.uniform_draft
  for drafted in config.bernoulli_drafts:
    names = f'target Ber({chance})', f'draft Ber({drafted})'
    yield *names, bernoulli(drafted), bernoulli(chance)
  for num in config.uniform_targets:
    names = f'draft U({size})', f'target U({num}), ratio {size / num:g}'
    yield *names, np.full(size, 1 / size), (np.arange(size) < num) / num


def figures(rows):
  """Draws it by the number of drafts, with dotted limits."""
  drawn = plots.lines(
    rows,
    'num_drafts',
    'improvement',
    'pair',
    panel='family',
    xlabel='drafts of a token',
    ylabel='batch improvement (dotted: limits)',
  )
  families = dict.fromkeys(row['family'] for row in rows)
  for axes, family in zip(drawn.axes, families):
    for limit in {row['limit'] for row in rows if row['family'] == family}:
      axes.axhline(limit, color='0.5', linestyle=':', linewidth=1)
  return {'batch_improvement': drawn}
