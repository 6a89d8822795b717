"""Compares specialized drafters, and bandits and a router over them (MetaSD).

The methods are the single arms of `config.arms`, then `config.methods`, then
`config.bandits`, which select among the arms. Two methods are computed from the
records of the single arms: the oracle decodes each prompt with the arm that
needs the fewest rounds per token, and with `config.router`, the router with the
arm that it predicts from the prompt.
"""

from typing import Any

from matplotlib import figure as figure_lib
import numpy as np

from experiments import compare as compare_experiment
from experiments.common import choice
from experiments.common import compare
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.common import runner
from experiments.metasd import routing
from specjax import families
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
  setup = choice.prepare(config)
  labels = dict.fromkeys(method.label for method in setup.methods)
  registry.lookup(labels, 'baseline', config.baseline)
  return setup


def run(config, workdir):
  """Returns a row per prompt set, method and domain."""
  setup = prepare(config)
  arms = setup.methods[: len(config.arms)]
  names = [method.label for method in arms]
  domains = [model_name(method.arms[0].drafter) for method in arms]
  router = _router(config, setup.family, domains) if config.router else None
  decoded = compare.decode(config, workdir, setup)
  rows = []
  for prompts in setup.prompt_sets:
    on_set = [result for result in decoded if result.prompts is prompts]
    single_arms = on_set[: len(arms)]
    on_set.append(choice.oracle(single_arms))
    if config.router:
      routed = routing.route(router, [job.turns[0] for job in prompts.jobs])
      routed = np.tile(routed, config.get('num_seeds', 1))
      on_set.append(choice.assign(single_arms, routed, _ROUTER))
    table = choice.rows(on_set, names, config.by_domain, config.baseline)
    for row in table:
      if row['method'] == _ROUTER:
        row |= _accuracy(on_set[-1].records, row['domain'], domains)
    rows += table
  return rows


def figures(rows):
  """Draws block efficiency, and its ratio to the best arm's by domain."""
  over_best = _heat_map(compare_experiment.label_sweeps(rows))
  return compare_experiment.figures(rows) | {'over_best_arm': over_best}


def model_name(drafter):
  """Returns the name of a drafter's model or head, which may be a domain."""
  options = dict(drafter.options)
  first = drafter.args[0] if drafter.args else None
  return options.get('model', options.get('head', first))


def _router(
  config: Any, family: families.Family, domains: list[str]
) -> routing.Router:
  """Trains a router on the prompts of the train files."""
  if not config.data_dir:
    raise ValueError(
      'router needs data_dir, as it is trained on the train files.'
    )
  if {None, 'all'} & set(domains) or len(set(domains)) < len(domains):
    raise ValueError(
      f'router needs arms whose models have names of different domains, got '
      f'{domains}.'
    )
  prompts, labels = prompts_lib.training(
    config, family, domains, config.router_prompts
  )
  return routing.fit(prompts, labels, len(domains), family.tokenizer.vocab_size)


def _accuracy(
  records: list[runner.Record], domain: str, domains: list[str]
) -> dict[str, float]:
  """Returns how often the router selects the specialist, where there is one."""
  right = [
    domains[np.argmax(record['pulls'])] == record['label']
    for record in compare.select_domain(records, domain)
    if record['label'] in domains
  ]
  return {'accuracy': float(np.mean(right))} if right else {}


def _heat_map(rows: list[dict[str, Any]]) -> figure_lib.Figure:
  """Draws block efficiency over the best arm's, by method and domain."""
  domains = list(dict.fromkeys((r['prompts'], r['domain']) for r in rows))
  methods = list(dict.fromkeys(row['method'] for row in rows))
  table = np.full((len(methods), len(domains)), np.nan)
  for row in rows:
    column = domains.index((row['prompts'], row['domain']))
    table[methods.index(row['method']), column] = row['over_best']
  size = 3.4 + 0.5 * len(domains), 2.2 + 0.25 * len(methods)
  title = 'block efficiency over that of the best arm'
  figure, (axes,) = plots.panels([title], figsize=size)
  image = axes.imshow(table, cmap='RdBu', vmin=0.4, vmax=1.6, aspect='auto')
  for (i, j), value in np.ndenumerate(table):
    color = 'white' if abs(value - 1) > 0.4 else 'black'
    style = {'color': color, 'ha': 'center', 'va': 'center', 'fontsize': 8}
    axes.text(j, i, f'{value:.2f}', **style)
  for j in range(1, len(domains)):
    if domains[j][0] != domains[j - 1][0]:
      axes.axvline(j - 0.5, color='black')
  names = [f'{prompts}: {domain}' for prompts, domain in domains]
  axes.set_xticks(range(len(domains)), names, rotation=45, ha='right')
  axes.set_yticks(range(len(methods)), methods)
  axes.grid(False)
  figure.colorbar(image)
  return figure
