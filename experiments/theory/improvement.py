"""What more drafts of one token are worth under multi-round rejection.

Yin et al. (2024), Figure 3, right.
"""

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import configs
from experiments.common import plots
from specjax import checks
from specjax import theory


def run(config, workdir):
  """Returns a row for each pair and each number of drafts."""
  del workdir  # All is computed in a moment.
  _check(config)
  counts = jnp.arange(1, config.max_drafts + 1)
  rows = []
  for names, draft, target, closed_form in _pairs(config):
    improvements = _over_counts(draft, target, counts)
    columns = counts.tolist(), improvements.tolist(), closed_form.tolist()
    limit = 0.5 * float(np.abs(draft - target).sum())
    for num_drafts, improvement, expected in zip(*columns):
      rows.append(
        names
        | {
          'num_drafts': num_drafts,
          'improvement': improvement,
          'closed_form': expected,
          'limit': limit,
        }
      )
  return rows


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


_over_counts = jax.jit(
  jax.vmap(theory.batch_improvement, in_axes=(None, None, 0))
)


def _pairs(config):
  """Yields names, draft `[V]`, target `[V]` and the closed form `[K]`."""
  counts = np.arange(1, config.max_drafts + 1)
  bernoulli = lambda chance: np.array([1 - chance, chance])
  chance = config.bernoulli_target
  for drafted in config.bernoulli_drafts:
    yield (
      {'family': f'target Ber({chance})', 'pair': f'draft Ber({drafted})'},
      bernoulli(drafted),
      bernoulli(chance),
      theory.bernoulli_batch_improvement(drafted, chance, counts),
    )
  size = config.uniform_draft
  for num in config.uniform_targets:
    name = f'target U({num}), ratio {size / num:g}'
    yield (
      {'family': f'draft U({size})', 'pair': name},
      np.full(size, 1 / size),
      (np.arange(size) < num) / num,
      theory.uniform_batch_improvement(size / num, counts),
    )


def _check(config):
  configs.check_counts(config, ('max_drafts',))
  checks.check_range('bernoulli_target', config.bernoulli_target, 0, 1)
  # The closed form is of the token that is drafted too often.
  low = config.bernoulli_target
  checks.check_range('bernoulli_drafts', config.bernoulli_drafts, low, 1)
  size = config.uniform_draft
  checks.check_range('uniform_targets', config.uniform_targets, 1, size)
  if not len(config.bernoulli_drafts) + len(config.uniform_targets):
    raise ValueError('bernoulli_drafts and uniform_targets are both empty.')
