"""Compares bandits over arms with each of the arms, and with the best one.

It adds columns to the rows of `compare`, and two methods that are computed from
the records of the single arms: the oracle decodes each prompt with the arm that
needs the fewest rounds per token, and with `config.router`, the router decodes
it with the arm that it predicts from the prompt. With `config.oracle` of
'seconds', the oracle minimizes the seconds per token of timed records, which
also selects what was fast by accident. The methods are the single
arms of `config.arms`, then `config.methods`, then `config.bandits`, which
select among the arms.

Without `config.pivot`, rows over all prompts and rows of domains are separate
tables. With `config.baseline`, all methods are compared with this method.
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
  'oracle',
  'router',
  'router_prompts',
)
_ROUTER = 'router'
# What the oracle may minimize per token.
_COSTS = dict.fromkeys(('rounds', 'seconds'))


def prepare(config):
  """Returns the methods and prompts; `baseline` must be one of the methods."""
  setup = choice.prepare(config)
  compare.check_labels_differ(setup)
  if config.get('baseline'):
    labels = dict.fromkeys(method.label for method in setup.methods)
    registry.lookup(labels, 'baseline', config.baseline)
  registry.lookup(_COSTS, 'oracle', config.get('oracle', 'rounds'))
  if config.get('oracle') == 'seconds' and not config.get('repeats', 0):
    raise ValueError("oracle 'seconds' needs timed methods: repeats >= 1.")
  return setup


def run(config, workdir):
  """Returns a row per prompt set, method and domain."""
  setup = prepare(config)
  arms = setup.methods[: len(config.arms)]
  names = [method.label for method in arms]
  domains = [model_name(method.arms[0].drafter) for method in arms]
  has_router = config.get('router', False)
  router = _router(config, setup.family, domains) if has_router else None
  decoded = compare.decode(config, workdir, setup)
  rows = []
  for prompts in setup.prompt_sets:
    on_set = [result for result in decoded if result.prompts is prompts]
    single_arms = on_set[: len(arms)]
    on_set.append(choice.oracle(single_arms, config.get('oracle', 'rounds')))
    if has_router:
      routed = routing.route(router, [job.turns[0] for job in prompts.jobs])
      routed = np.tile(routed, config.get('num_seeds', 1))
      on_set.append(choice.assign(single_arms, routed, _ROUTER))
    table = choice.rows(
      on_set, names, config.by_domain, config.get('baseline', '')
    )
    for row in table:
      if row['method'] == _ROUTER:
        row |= _accuracy(on_set[-1].records, row['domain'], domains)
    rows += table
  return rows if 'pivot' in config else list(map(_with_part, rows))


def _with_part(row: dict[str, Any]) -> dict[str, Any]:
  """Returns a row with the table that it belongs to."""
  part = 'all prompts' if row['domain'] == 'all' else 'domains'
  return {'part': part, **row}


def figures(rows):
  """Draws the figures of `compare`, and gains over the best arm by domain."""
  if 'part' in rows[0]:
    over_best = _over_best(rows)
  else:
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


def _over_best(rows: list[dict[str, Any]]) -> figure_lib.Figure:
  """Draws block efficiency over the best arm's, with errors."""
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
      xerr=plots.error_bars(of_method, 'over_best_error'),
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


def _heat_map(rows: list[dict[str, Any]]) -> figure_lib.Figure:
  """Draws block efficiency over the best arm's as a matrix of numbers."""
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
