"""Acceptance against the number of drafts: the optimum, rules and bounds."""

import os

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
from scipy import special
import tqdm

from experiments import results
from specjax import transport as transport_lib

_RULES = {
  'optimum': transport_lib.optimal_acceptance,
  'otm': transport_lib.otm_acceptance,
  'kseq': transport_lib.kseq_acceptance,
  'multiround': transport_lib.multiround_acceptance,
}
_BOUNDS = ('upper_bound', 'union_bound', 'lower_bound')
# Curves often coincide: a broad one below, outlined markers of growing size.
_STYLES = {
  'optimum': {'color': '0.75', 'linewidth': 6},
  'otm': {'color': 'tab:blue', 'marker': 'o', 'markersize': 3},
  'kseq': {'color': 'tab:orange', 'marker': 's', 'markersize': 6},
  'multiround': {'color': 'tab:green', 'marker': '^', 'markersize': 9},
  'upper_bound': {'color': 'black', 'linestyle': '--'},
  'union_bound': {'color': 'black', 'linestyle': '--'},
  'lower_bound': {'color': 'tab:red', 'linestyle': '--'},
}


def run(config, workdir):
  """Writes a row for each pair, number of drafts and rule, and three plots."""
  families = _families(config)
  results.start(workdir)
  rows = []
  for family, pairs in families.items():
    own = []
    for pair, both in tqdm.tqdm(pairs.items(), desc=family):
      for row in _rows(*both, config.max_drafts, family == 'bernoulli'):
        own.append({'pair': pair} | row)
        results.log(workdir, own[-1])
    rows += own
    plot(own, os.path.join(workdir, f'{family}.png'))
  results.write(workdir, rows)


def zipf_pair(vocab_size: int, spread: float, seed: int):
  """Returns a draft and a target, `[V]` float32 each.

  Softmax of the logits of a Zipf distribution, each with normal noise of its
  own.

  Args:
    vocab_size: `V`.
    spread: standard deviation of the noise; 0 makes both the same.
    seed: of the noise.
  """
  noise = np.random.default_rng(seed).normal(size=(2, vocab_size))
  logits = spread * noise - np.log(np.arange(vocab_size) + 1)
  return tuple(special.softmax(logits, axis=1).astype(np.float32))


def plot(rows, path: str) -> None:
  """Draws acceptance by number of drafts: a panel a pair, a line a rule."""
  matplotlib.use('Agg')
  pairs = list(dict.fromkeys(row['pair'] for row in rows))
  figure, panels = plt.subplots(
    1,
    len(pairs),
    figsize=(2.8 * len(pairs) + 1.6, 3.4),
    layout='constrained',
    sharey=True,
    squeeze=False,
  )
  for axes, pair in zip(panels[0], pairs):
    for rule, style in _STYLES.items():
      own = [r for r in rows if (r['pair'], r['rule']) == (pair, rule)]
      if own:
        axes.plot(
          [row['k'] for row in own],
          [row['acceptance'] for row in own],
          label=rule.replace('_', ' '),
          markerfacecolor='none',
          **style,
        )
    axes.set_title(pair, fontsize='small')
    axes.set_xlabel('drafts k')
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(0, 1.04)
    axes.grid(alpha=0.3)
  panels[0, 0].set_ylabel('acceptance')
  handles, labels = panels[0, 0].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside right center')
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _rows(draft, target, max_drafts, enumerable):
  """Acceptance by number of drafts and rule; the bounds come last."""
  counts = range(1, max_drafts + 1)
  columns = {
    name: _over_counts[name](draft, target, jnp.array(counts))
    for name in _RULES
  }
  if enumerable:
    bounds = [transport_lib.acceptance_bounds(draft, target, k) for k in counts]
    columns['lower_bound'], columns['upper_bound'] = zip(*bounds)
  else:
    columns['union_bound'] = [
      transport_lib.union_bound(draft, target, k) for k in counts
    ]
  for i, k in enumerate(counts):
    for rule, values in columns.items():
      yield {'k': k, 'rule': rule, 'acceptance': float(values[i])}


_over_counts = {
  name: jax.jit(jax.vmap(rule, in_axes=(None, None, 0)))
  for name, rule in _RULES.items()
}


def _families(config):
  """Probabilities of draft and target, by family and pair."""
  if config.max_drafts < 1:
    raise ValueError(f'max_drafts must be >= 1, got {config.max_drafts}.')
  for chance in (config.bernoulli_draft, *config.bernoulli_targets):
    if not 0 <= chance <= 1:
      raise ValueError(f'Bernoulli chances must lie in [0, 1], got {chance}.')
  size = config.uniform_draft
  for divisor in config.uniform_targets:
    if divisor < 1 or size % divisor:
      raise ValueError(
        f'uniform_targets must divide uniform_draft={size}, got {divisor}.'
      )
  if config.zipf_size < 1 or min(config.zipf_spreads, default=0) < 0:
    raise ValueError(
      'zipf_size must be >= 1 and zipf_spreads >= 0, got '
      f'{config.zipf_size} and {config.zipf_spreads}.'
    )
  bernoulli = lambda chance: np.array([1 - chance, chance], np.float32)
  uniform = lambda num: (np.arange(size) < num).astype(np.float32) / num
  return {
    'bernoulli': {
      f'draft Ber({config.bernoulli_draft}), target Ber({chance})': (
        bernoulli(config.bernoulli_draft),
        bernoulli(chance),
      )
      for chance in config.bernoulli_targets
    },
    'uniform': {
      f'draft U({size}), target U({num})': (uniform(size), uniform(num))
      for num in config.uniform_targets
    },
    'zipf': {
      f'Zipf({config.zipf_size}), noise {spread}': zipf_pair(
        config.zipf_size, spread, config.seed
      )
      for spread in config.zipf_spreads
    },
  }
