"""Acceptance against the number of drafts: the optimum, rules and bounds."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from experiments.common import configs
from experiments.common import log
from experiments.common import plots
from specjax import checks
from specjax import transport

_RULES = {
  'optimum': transport.optimal_acceptance,
  'otm': transport.otm_acceptance,
  'kseq': transport.kseq_acceptance,
  'multiround': transport.multiround_acceptance,
}
_OVER_COUNTS = {
  name: jax.jit(jax.vmap(rule, in_axes=(None, None, 0)))
  for name, rule in _RULES.items()
}
# Curves often coincide: a broad one below all, then bounds, then outlined
# markers of growing size.
_STYLES = {
  'optimum': {'color': '0.75', 'linewidth': 6, 'zorder': 1},
  'otm': {'color': 'tab:blue', 'marker': 'o', 'markersize': 3},
  'kseq': {'color': 'tab:orange', 'marker': 's', 'markersize': 6},
  'multiround': {'color': 'tab:green', 'marker': '^', 'markersize': 9},
  'upper_bound': {'color': 'black', 'linestyle': '--', 'zorder': 1.5},
  'union_bound': {'color': 'black', 'linestyle': '--', 'zorder': 1.5},
  'lower_bound': {'color': 'tab:red', 'linestyle': '--', 'zorder': 1.5},
  'paper': {'color': 'black', 'marker': '+', 'linestyle': ''},
}


def run(config, workdir):
  """Returns a row for each pair of distributions and number of drafts."""
  outcomes = log.resume(workdir, _units(config), _compute, 'pairs')
  return [row for outcome in outcomes for row in outcome['rows']]


def figures(rows):
  """Draws a figure for each family of pairs."""
  parts = dict.fromkeys(row['part'] for row in rows)
  return {
    part: _figure([row for row in rows if row['part'] == part])
    for part in parts
  }


def zipf_pair(
  vocab_size: int, spread: float, seed: int
) -> tuple[np.ndarray, np.ndarray]:
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
  draft, target = special.softmax(logits, axis=1).astype(np.float32)
  return draft, target


def _bernoulli(draft, target):
  chances = np.array([draft, target])
  return np.stack([1 - chances, chances], axis=1).astype(np.float32)


def _uniform(draft, target):
  sizes = np.array([[draft], [target]])
  return ((np.arange(draft) < sizes) / sizes).astype(np.float32)


# By family, how the options of a pair are shown, and what makes it of them.
_PAIRS = {
  'bernoulli': ('draft Ber({draft}), target Ber({target})', _bernoulli),
  'uniform': ('draft U({draft}), target U({target})', _uniform),
  'zipf': ('Zipf({vocab_size}), noise {spread}', zipf_pair),
}


def _units(config):
  """Family and options of each pair; what is wrong is refused here."""
  configs.check_counts(config, ('max_drafts', 'uniform_draft', 'zipf_size'))
  for name in ('bernoulli_draft', 'bernoulli_targets'):
    checks.check_range(name, config[name], 0, 1)
  checks.check_range('zipf_spreads', config.zipf_spreads, 0)
  size = config.uniform_draft
  for num in config.uniform_targets:
    if num < 1 or size % num:
      raise ValueError(
        f'uniform_targets must divide uniform_draft={size}, got {num}.'
      )
  zipf = {'vocab_size': config.zipf_size, 'seed': config.seed}
  pairs = [
    *(
      ('bernoulli', {'draft': config.bernoulli_draft, 'target': chance})
      for chance in config.bernoulli_targets
    ),
    *(
      ('uniform', {'draft': size, 'target': num})
      for num in config.uniform_targets
    ),
    *(('zipf', zipf | {'spread': spread}) for spread in config.zipf_spreads),
  ]
  return [
    {'part': family, 'options': options, 'max_drafts': config.max_drafts}
    for family, options in pairs
  ]


def _compute(unit):
  """The rows of a pair."""
  title, make = _PAIRS[unit['part']]
  pair = make(**unit['options'])
  counts = range(1, unit['max_drafts'] + 1)
  columns = {
    name: rule(*pair, jnp.array(counts)) for name, rule in _OVER_COUNTS.items()
  }
  if unit['part'] == 'bernoulli':  # Few enough tokens to enumerate sets.
    bounds = [transport.acceptance_bounds(*pair, k) for k in counts]
    columns['lower_bound'], columns['upper_bound'] = zip(*bounds)
  else:
    columns['union_bound'] = [transport.union_bound(*pair, k) for k in counts]
  head = {'part': unit['part'], 'pair': title.format(**unit['options'])}
  return {
    'rows': [
      head | {'k': k} | {name: float(of[i]) for name, of in columns.items()}
      for i, k in enumerate(counts)
    ]
  }


def _figure(rows):
  """A panel for each pair, a line for each rule and bound."""
  pairs = list(dict.fromkeys(row['pair'] for row in rows))
  figure, panels = plots.panels(pairs, 'drafts k', 'acceptance', sharey=True)
  for axes, pair in zip(panels, pairs):
    own = [row for row in rows if row['pair'] == pair]
    for name, style in _STYLES.items():
      if name in own[0]:
        axes.plot(
          [row['k'] for row in own],
          [row[name] for row in own],
          label=name.replace('_', ' '),
          markerfacecolor='none',
          **style,
        )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(0, 1.04)
  plots.legend(figure, panels)
  return figure
