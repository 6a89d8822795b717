"""Computes the gain from several drafts of one token by multi-round rejection.

This reproduces Figure 3, right, of Yin et al. (2024).
"""

from collections.abc import Iterator
from typing import Any

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
  """Returns a row per pair of distributions and number of drafts."""
  del workdir  # The computation takes less than a second.
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


def _pairs(config: Any) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
  """Yields the names of each family and pair, and the draft and target."""
  bernoulli = lambda prob: np.array([1 - prob, prob])
  target_prob, size = config.bernoulli_target, config.uniform_draft
  for drafted in config.bernoulli_drafts:
    names = f'target Ber({target_prob})', f'draft Ber({drafted})'
    yield *names, bernoulli(drafted), bernoulli(target_prob)
  for num in config.uniform_targets:
    names = f'draft U({size})', f'target U({num}), ratio {size / num:g}'
    yield *names, np.full(size, 1 / size), (np.arange(size) < num) / num


def figures(rows):
  """Draws the improvement by the number of drafts, with dotted limits."""
  drawn = plots.lines(
    rows,
    'num_drafts',
    'improvement',
    'pair',
    panel='family',
    xlabel='drafts per token',
    ylabel='batch improvement (dotted: limits)',
  )
  families = dict.fromkeys(row['family'] for row in rows)
  for axes, family in zip(drawn.axes, families):
    for limit in {row['limit'] for row in rows if row['family'] == family}:
      axes.axhline(limit, color='0.5', linestyle=':', linewidth=1)
  return {'batch_improvement': drawn}
