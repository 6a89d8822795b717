"""Computes acceptance by the number of drafts: the optimum, rules and bounds.

This reproduces Figures 4, 5 and 6 of SpecTr, and adds drafts without
replacement.
"""

from collections.abc import Iterator
import functools
from typing import Any

import jax
import jax.numpy as jnp
from matplotlib import figure as figure_lib
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
# For drafts without replacement, whose number is static.
_DISTINCT = {
  name: jax.jit(functools.partial(rule, distinct=True), static_argnums=2)
  for name, rule in (
    ('distinct_optimum', transport.optimal_acceptance),
    ('distinct_otm', transport.otm_acceptance),
    ('distinct_kseq', transport.kseq_acceptance),
  )
}
# Curves often coincide: a broad one is drawn first, then bounds, then outlined
# markers with growing sizes.
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
  """Returns a row per pair of distributions and number of drafts."""
  configs.check_counts(config, ('max_drafts', 'uniform_draft', 'zipf_size'))
  for name in ('bernoulli_draft', 'bernoulli_targets'):
    checks.check_range(name, config[name], 0, 1)
  size = config.uniform_draft
  checks.check_range('uniform_targets', config.uniform_targets, 1, size)
  checks.check_range('zipf_spreads', config.zipf_spreads, 0)
  pairs = list(_pairs(config))
  probs = {name: pair for _, name, *pair in pairs}
  shared = {'max_drafts': config.max_drafts, 'seed': config.seed}
  units = [{'part': part, 'pair': name} | shared for part, name, *_ in pairs]
  compute = lambda unit: {'rows': _rows(unit, *probs[unit['pair']])}
  outcomes = log.resume(workdir, units, compute, 'pairs')
  return [row for outcome in outcomes for row in outcome['rows']]


def zipf_pair(vocab_size, spread, seed):
  """Returns a draft and a target, `[V]` float32 each.

  Each is the softmax of a Zipf distribution's logits plus independent normal
  noise with standard deviation `spread`.
  """
  noise = np.random.default_rng(seed).normal(size=(2, vocab_size))
  logits = spread * noise - np.log(np.arange(vocab_size) + 1)
  draft, target = special.softmax(logits, axis=1).astype(np.float32)
  return draft, target


def _pairs(config: Any) -> Iterator[tuple[str, str, np.ndarray, np.ndarray]]:
  """Yields the family of each pair, its name, draft and target."""
  drafted, size = config.bernoulli_draft, config.uniform_draft
  bernoulli = lambda prob: np.array([1 - prob, prob], np.float32)
  uniform = lambda num: ((np.arange(size) < num) / num).astype(np.float32)
  for prob in config.bernoulli_targets:
    name = f'draft Ber({drafted}), target Ber({prob})'
    yield 'bernoulli', name, bernoulli(drafted), bernoulli(prob)
  for num in config.uniform_targets:
    name = f'draft U({size}), target U({num})'
    yield 'uniform', name, uniform(size), uniform(num)
  for spread in config.zipf_spreads:
    name = f'Zipf({config.zipf_size}), noise {spread}'
    draft, target = zipf_pair(config.zipf_size, spread, config.seed)
    yield 'zipf', name, draft, target


def _rows(unit: dict[str, Any], *pair: np.ndarray) -> list[dict[str, Any]]:
  """Returns a row per number of drafts, for one pair of distributions."""
  counts = range(1, unit['max_drafts'] + 1)
  columns = {
    name: rule(*pair, jnp.array(counts)) for name, rule in _OVER_COUNTS.items()
  }
  for name, rule in _DISTINCT.items():
    columns[name] = [rule(*pair, k) for k in counts]
  if unit['part'] == 'bernoulli':  # All sets of tokens can be enumerated.
    bounds = [transport.acceptance_bounds(*pair, k) for k in counts]
    columns['lower_bound'], columns['upper_bound'] = zip(*bounds)
  else:
    columns['union_bound'] = [transport.union_bound(*pair, k) for k in counts]
  head = {name: unit[name] for name in ('part', 'pair')}
  return [
    head
    | {'k': k}
    | {name: float(values[i]) for name, values in columns.items()}
    for i, k in enumerate(counts)
  ]


def figures(rows):
  """Draws a figure per family of pairs."""
  parts = dict.fromkeys(row['part'] for row in rows)
  return {
    part: _figure([row for row in rows if row['part'] == part])
    for part in parts
  }


def _figure(rows: list[dict[str, Any]]) -> figure_lib.Figure:
  """Draws a panel per pair, with a line per rule and bound."""
  pairs = list(dict.fromkeys(row['pair'] for row in rows))
  figure, panels = plots.panels(
    pairs, 'number of drafts k', 'acceptance', sharey=True
  )
  for axes, pair in zip(panels, pairs):
    pair_rows = [row for row in rows if row['pair'] == pair]
    for name in filter(pair_rows[0].__contains__, _STYLES):
      axes.plot(
        [row['k'] for row in pair_rows],
        [row[name] for row in pair_rows],
        label=name.replace('_', ' '),
        markerfacecolor='none',
        **_STYLES[name],
      )
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.set_ylim(0, 1.04)
  plots.legend(figure, panels)
  return figure
