"""Compares bandits over drafters on prompts from many domains (BanditSpec).

The methods are the single arms of `config.arms`, then `config.methods`, then
`config.bandits`, which select among the arms. The oracle is computed from the
records of the single arms: it decodes each prompt with the arm that needs the
fewest rounds per token.
"""

from typing import Any

from matplotlib import figure as figure_lib
import numpy as np

from experiments import compare as compare_experiment
from experiments.common import choice
from experiments.common import compare
from experiments.common import plots

MAY_CHANGE = (*compare.MAY_CHANGE, 'by_domain')


prepare = choice.prepare


def run(config, workdir):
  """Returns a row per prompt set, method and domain."""
  setup = prepare(config)
  names = [method.label for method in setup.methods[: len(config.arms)]]
  decoded = compare.decode(config, workdir, setup)
  rows = []
  for prompts in setup.prompt_sets:
    on_set = [result for result in decoded if result.prompts is prompts]
    on_set.append(choice.oracle(on_set[: len(names)]))
    rows += choice.rows(on_set, names, config.by_domain)
  parts = {True: 'all prompts', False: 'domains'}
  return [{'part': parts[row['domain'] == 'all'], **row} for row in rows]


def figures(rows):
  """Draws the figures of `compare`, and gains over the best arm by domain."""
  return compare_experiment.figures(rows) | {'over_best_arm': _over_best(rows)}


def _over_best(rows: list[dict[str, Any]]) -> figure_lib.Figure:
  """Draws block efficiency over the best arm's, by method and domain."""
  domains = list(dict.fromkeys((r['prompts'], r['domain']) for r in rows))
  rows = [row for row in rows if row['method'] != compare.REFERENCE]
  methods = list(dict.fromkeys(row['method'] for row in rows))
  size = 8, 1.2 + 0.45 * len(domains)
  figure, (axes,) = plots.panels(
    [''], 'block efficiency over that of the best single arm', figsize=size
  )
  for i, method in enumerate(methods):
    of_method = [row for row in rows if row['method'] == method]
    positions = [
      domains.index((row['prompts'], row['domain'])) for row in of_method
    ]
    open_marker = 'pulls' not in of_method[0] or method == choice.ORACLE
    axes.errorbar(
      [row['over_best'] for row in of_method],
      np.array(positions) + 0.7 * i / len(methods),
      xerr=[2 * row['over_best_error'] for row in of_method],
      markersize=4,
      markerfacecolor='white' if open_marker else None,
      elinewidth=0.8,
      **plots.line_style(methods, method) | {'linestyle': ''},
    )
  axes.axvline(1, color='black', linewidth=0.8)
  names = [f'{prompts}: {domain}' for prompts, domain in domains]
  axes.set_yticks(np.arange(len(domains)) + 0.35, names, fontsize=8)
  axes.margins(y=0.02)
  axes.invert_yaxis()
  plots.legend(figure, [axes])
  return figure
