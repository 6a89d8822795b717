"""Acceptance against the number of drafts: the optimum, rules and bounds.

SpecTr, Figures 4, 5 and 6; beside them, drafts without replacement.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from experiments.common import configs
from experiments.common import log
from experiments.common import plots
from specjax import checks
from specjax import transport

_OVER_COUNTS = {
  name: jax.jit(jax.vmap(rule, in_axes=(None, None, 0)))
  for name, rule in (
    ('optimum', transport.optimal_acceptance),
    ('otm', transport.otm_acceptance),
    ('kseq', transport.kseq_acceptance),
    ('multiround', transport.multiround_acceptance),
  )
}
# Of drafts without replacement; how many is no traced number.
_OF_DISTINCT = {
  name: jax.jit(functools.partial(rule, distinct=True), static_argnums=2)
  for name, rule in (
    ('distinct_optimum', transport.optimal_acceptance),
    ('distinct_otm', transport.otm_acceptance),
    ('distinct_kseq', transport.kseq_acceptance),
  )
}
# Curves often coincide: a broad one below all, then bounds, then outlined
# markers of growing size.
_BOUND = {'color': 'black', 'linestyle': '--', 'zorder': 1.5}
_STYLES = {
  'optimum': {'color': '0.75', 'linewidth': 6, 'zorder': 1},
  'otm': {'color': 'tab:blue', 'marker': 'o', 'markersize': 3},
  'kseq': {'color': 'tab:orange', 'marker': 's', 'markersize': 6},
  'multiround': {'color': 'tab:green', 'marker': '^', 'markersize': 9},
  'distinct_optimum': {'color': '0.5', 'linestyle': ':', 'zorder': 1.2},
  'distinct_otm': {'color': 'tab:cyan', 'marker': '.', 'linestyle': ':'},
  'distinct_kseq': {'color': 'tab:purple', 'marker': 'x', 'linestyle': ':'},
  'upper_bound': _BOUND,
  'union_bound': _BOUND,
  'lower_bound': _BOUND | {'color': 'tab:red'},
  'paper': {'color': 'black', 'marker': '+', 'linestyle': ''},
}


def run(config, workdir):
  """Returns a row for each pair of distributions and number of drafts."""
  configs.check_counts(config, ('max_drafts', 'uniform_draft', 'zipf_size'))
  for name in ('bernoulli_draft', 'bernoulli_targets'):
    checks.check_range(name, config[name], 0, 1)
  size = config.uniform_draft
  checks.check_range('uniform_targets', config.uniform_targets, 1, size)
  checks.check_range('zipf_spreads', config.zipf_spreads, 0)
  pairs = list(_pairs(config))
  probs = {name: each for _, name, *each in pairs}
  shared = {'max_drafts': config.max_drafts, 'seed': config.seed}
  units = [{'part': part, 'pair': name} | shared for part, name, *_ in pairs]
  compute = lambda unit: {'rows': _rows(unit, *probs[unit['pair']])}
  outcomes = log.resume(workdir, units, compute, 'pairs')
  return [row for outcome in outcomes for row in outcome['rows']]


def zipf_pair(vocab_size, spread, seed):
  """Returns a draft and a target, `[V]` float32 each.

  Softmax of the logits of a Zipf distribution, each with normal noise of its
  own, of standard deviation `spread`.
  """
  noise = np.random.default_rng(seed).normal(size=(2, vocab_size))
  logits = spread * noise - np.log(np.arange(vocab_size) + 1)
  draft, target = special.softmax(logits, axis=1).astype(np.float32)
  return draft, target


def _pairs(config):
  """Yields the family of each pair, its name, draft and target."""
  drafted, size = config.bernoulli_draft, config.uniform_draft
  bernoulli = lambda chance: np.array([1 - chance, chance], np.float32)
  uniform = lambda num: ((np.arange(size) < num) / num).astype(np.float32)
  for chance in config.bernoulli_targets:
    name = f'draft Ber({drafted}), target Ber({chance})'
    yield 'bernoulli', name, bernoulli(drafted), bernoulli(chance)
  for num in config.uniform_targets:
    name = f'draft U({size}), target U({num})'
    yield 'uniform', name, uniform(size), uniform(num)
  for spread in config.zipf_spreads:
    name = f'Zipf({config.zipf_size}), noise {spread}'
    yield 'zipf', name, *zipf_pair(config.zipf_size, spread, config.seed)


def _rows(unit, *pair):
  """A row for each number of drafts of a pair."""
  counts = range(1, unit['max_drafts'] + 1)
  columns = {
    name: rule(*pair, jnp.array(counts)) for name, rule in _OVER_COUNTS.items()
  }
  for name, rule in _OF_DISTINCT.items():
    columns[name] = [rule(*pair, k) for k in counts]
  if unit['part'] == 'bernoulli':  # Few enough tokens to enumerate sets.
    bounds = [transport.acceptance_bounds(*pair, k) for k in counts]
    columns['lower_bound'], columns['upper_bound'] = zip(*bounds)
  else:
    columns['union_bound'] = [transport.union_bound(*pair, k) for k in counts]
  head = {name: unit[name] for name in ('part', 'pair')}
  return [
    head | {'k': k} | {name: float(of[i]) for name, of in columns.items()}
    for i, k in enumerate(counts)
  ]


def figures(rows):
  """Draws a figure for each family of pairs."""
  parts = dict.fromkeys(row['part'] for row in rows)
  return {
    part: _figure([row for row in rows if row['part'] == part])
    for part in parts
  }


def _figure(rows):
  """A panel for each pair, a line for each rule and bound."""
  pairs = list(dict.fromkeys(row['pair'] for row in rows))
  figure, panels = plots.panels(pairs, 'drafts k', 'acceptance', sharey=True)
  for axes, pair in zip(panels, pairs):
    own = [row for row in rows if row['pair'] == pair]
    for name in filter(own[0].__contains__, _STYLES):
      axes.plot(
        [row['k'] for row in own],
        [row[name] for row in own],
        label=name.replace('_', ' '),
        markerfacecolor='none',
        **_STYLES[name],
      )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(0, 1.04)
  plots.legend(figure, panels)
  return figure
