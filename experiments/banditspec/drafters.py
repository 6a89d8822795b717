"""Drafters as arms of a bandit, for prompts of all kinds (BanditSpec).

The methods are the drafters of `config.arms`, each alone, then
`config.methods`, then `config.bandits`, which choose among the arms. The oracle
follows from what the arms have decoded: it leaves each prompt to the arm that
needs the fewest rounds for a token.
"""

import numpy as np

from experiments import compare as compare_experiment
from experiments.common import choice
from experiments.common import compare
from experiments.common import plots

MAY_CHANGE = (*compare.MAY_CHANGE, 'by_domain')


prepare = choice.plan


def run(config, workdir):
  """Returns a row for each set of prompts, method and kind of prompt."""
  made = prepare(config)
  names = [method.label for method in made.methods[: len(config.arms)]]
  decoded = compare.decode(config, workdir, made)
  rows = []
  for prompts in made.prompt_sets:
    own = [each for each in decoded if each.prompts is prompts]
    own.append(choice.oracle(own[: len(names)]))
    rows += choice.rows(own, names, config.by_domain)
  parts = {True: 'all prompts', False: 'kinds of prompts'}
  return [{'part': parts[row['domain'] == 'all'], **row} for row in rows]


def figures(rows):
  """Draws what `compare` does, and what is gained by choosing, by kind."""
  return compare_experiment.figures(rows) | {'over_best_arm': _over_best(rows)}


def _over_best(rows):
  """Block efficiency over the best arm's; a single arm is an open marker."""
  kinds = list(dict.fromkeys((r['prompts'], r['domain']) for r in rows))
  rows = [row for row in rows if row['method'] != compare.REFERENCE]
  methods = list(dict.fromkeys(row['method'] for row in rows))
  size = 8, 1.2 + 0.45 * len(kinds)
  figure, (axes,) = plots.panels(
    [''], 'block efficiency over that of the best single arm', figsize=size
  )
  for i, method in enumerate(methods):
    own = [row for row in rows if row['method'] == method]
    places = [kinds.index((row['prompts'], row['domain'])) for row in own]
    open_marker = 'pulls' not in own[0] or method == choice.ORACLE
    axes.errorbar(
      [row['over_best'] for row in own],
      np.array(places) + 0.7 * i / len(methods),
      xerr=[2 * row['over_best_error'] for row in own],
      markersize=4,
      markerfacecolor='white' if open_marker else None,
      elinewidth=0.8,
      **plots.style_of(methods, method) | {'linestyle': ''},
    )
  axes.axvline(1, color='black', linewidth=0.8)
  names = [f'{prompts}: {domain}' for prompts, domain in kinds]
  axes.set_yticks(np.arange(len(kinds)) + 0.35, names, fontsize=8)
  axes.margins(y=0.02)
  axes.invert_yaxis()
  plots.legend(figure, [axes])
  return figure
