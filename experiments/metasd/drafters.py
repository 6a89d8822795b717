"""Specialised drafters, each alone, and what chooses among them (MetaSD).

The methods are the drafters of `config.arms`, each alone, then
`config.methods`, then `config.bandits`, which choose among the arms. Two
methods follow from what the arms have decoded: the oracle leaves each prompt to
the arm that needs the fewest rounds for a token, and the router, with
`config.router`, to the one that it picks by the prompt.
"""

import numpy as np

from experiments import compare as compare_experiment
from experiments.common import choice
from experiments.common import compare
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.metasd import routing
from specjax import registry

MAY_CHANGE = (
  *compare.MAY_CHANGE,
  'baseline',
  'by_domain',
  'carry_over',
  'router',
  'router_prompts',
)
_ROUTER = 'router'


def prepare(config):
  """Returns the methods and prompts; `baseline` must be one of the methods."""
  prepared = choice.plan(config)
  labels = dict.fromkeys(method.label for method in prepared.methods)
  registry.lookup(labels, 'baseline', config.baseline)
  return prepared


def run(config, workdir):
  """Returns a row for each set of prompts, method and domain."""
  made = prepare(config)
  arms = made.methods[: len(config.arms)]
  names = [method.label for method in arms]
  domains = [named_after(method.arms[0].drafter) for method in arms]
  router = _router(config, made.family, domains) if config.router else None
  decoded = compare.decode(config, workdir, made)
  rows = []
  for prompts in made.prompt_sets:
    own = [each for each in decoded if each.prompts is prompts]
    alone = own[: len(arms)]
    own.append(choice.oracle(alone))
    if config.router:
      chosen = routing.route(router, [job.turns[0] for job in prompts.jobs])
      chosen = np.tile(chosen, config.get('num_seeds', 1))
      own.append(choice.left_to(alone, chosen, _ROUTER))
    table = choice.rows(own, names, config.by_domain, config.baseline)
    for row in table:
      if row['method'] == _ROUTER:
        row |= _accuracy(own[-1].records, row['domain'], domains)
    rows += table
  return rows


def figures(rows):
  """Draws block efficiency, and by kind of prompt over that of the best arm."""
  over_best = _heat_map(compare_experiment.swept(rows))
  return compare_experiment.figures(rows) | {'over_best_arm': over_best}


def named_after(drafter):
  """Returns the name of a drafter's model or head, which may be a domain's."""
  named = dict(drafter.options)
  first = drafter.args[0] if drafter.args else None
  return named.get('model', named.get('head', first))


def _router(config, family, domains):
  """Which arm suits a prompt, learnt from those of the train files."""
  if not config.data_dir:
    raise ValueError('router needs data_dir, whose train files it learns from.')
  if {None, 'all'} & set(domains) or len(set(domains)) < len(domains):
    raise ValueError(
      f'router needs arms named after different domains, got {domains}.'
    )
  prompts, labels = prompts_lib.training(
    config, family, domains, config.router_prompts
  )
  return routing.fit(prompts, labels, len(domains), family.tokenizer.vocab_size)


def _accuracy(records, domain, domains):
  """How often the router picks the specialist, where there is one."""
  right = [
    domains[np.argmax(record['pulls'])] == record['label']
    for record in compare.of_domain(records, domain)
    if record['label'] in domains
  ]
  return {'accuracy': float(np.mean(right))} if right else {}


def _heat_map(rows):
  """Methods by kinds of prompts; numbers and colours are over the best arm."""
  kinds = list(dict.fromkeys((r['prompts'], r['domain']) for r in rows))
  methods = list(dict.fromkeys(row['method'] for row in rows))
  table = np.full((len(methods), len(kinds)), np.nan)
  for row in rows:
    place = (
      methods.index(row['method']),
      kinds.index((row['prompts'], row['domain'])),
    )
    table[place] = row['over_best']
  size = 3.4 + 0.5 * len(kinds), 2.2 + 0.25 * len(methods)
  title = 'block efficiency over that of the best arm'
  figure, (axes,) = plots.panels([title], figsize=size)
  image = axes.imshow(table, cmap='RdBu', vmin=0.4, vmax=1.6, aspect='auto')
  for (i, j), value in np.ndenumerate(table):
    colour = 'white' if abs(value - 1) > 0.4 else 'black'
    style = {'color': colour, 'ha': 'center', 'va': 'center', 'fontsize': 8}
    axes.text(j, i, f'{value:.2f}', **style)
  for j in range(1, len(kinds)):
    if kinds[j][0] != kinds[j - 1][0]:
      axes.axvline(j - 0.5, color='black')
  names = [f'{prompts}: {domain}' for prompts, domain in kinds]
  axes.set_xticks(range(len(kinds)), names, rotation=45, ha='right')
  axes.set_yticks(range(len(methods)), methods)
  axes.grid(False)
  figure.colorbar(image)
  return figure
