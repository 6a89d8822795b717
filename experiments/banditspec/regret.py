"""Regret of bandits on simulated arms, beside its bounds (BanditSpec).

Also, which arms are played: how often the best one of the moment, and each.
"""

from collections.abc import Mapping
import functools
from typing import Any

import jax
import numpy as np

from experiments.banditspec import laboratory
from experiments.common import components
from experiments.common import log
from experiments.common import measure
from experiments.common import plots
from specjax import bandits
from specjax import base
from specjax import checks
from specjax import registry
from specjax.theory import regret as regret_lib

MAY_CHANGE = (
  *('environments', 'bandits', 'lengths'),
  *('trace_rounds', 'traced', 'pulls'),
)
_PLAYED = 'arms played'
# Places of the horizontal axis, where arms are counted around each.
_WINDOWS = 50
_ARM = 'arm_{}'


def run(config, workdir):
  """Returns rows of regret by tokens, and of arms that were played by round."""
  lab = _Lab(config)
  checks.check_range('lengths', config.lengths, 1)
  checks.check_range('runs', config.runs, 2)
  for name in config.traced:
    registry.lookup(lab.environments, 'environment of traced', name)
  for name in config.pulls:
    registry.lookup(dict.fromkeys(config.bandits), 'bandit of pulls', name)
  units = [
    {**case, 'tokens': tokens}
    for case in lab.cases()
    for tokens in config.lengths
  ]
  units += [
    {'part': _PLAYED, **case, 'rounds': config.trace_rounds}
    for case in lab.cases()
    if case['environment'] in config.traced and config.trace_rounds
  ]
  compute = lambda unit: (lab.played if 'part' in unit else lab.regret)(unit)
  outcomes = log.resume(workdir, units, compute, 'bandits')
  names = 'part', 'environment', 'bandit', 'tokens'
  return [
    {name: unit[name] for name in names if name in unit} | row
    for unit, outcome in zip(units, outcomes)
    for row in _shown(outcome['rows'], unit['bandit'] in config.pulls)
  ]


class _Lab:
  """The environments of a config, by name, and the bandits that play there."""

  def __init__(self, config: Any):
    self._config = config
    self._specs = {
      name: components.parse(entry, f'environments.{name}')
      for name, entry in config.environments.items()
    }
    self.environments = {
      name: self._environment(name, spec) for name, spec in self._specs.items()
    }
    for case in self.cases():  # All are tried before any is played.
      self._bandit(case)
    self._fixed = functools.cache(self._play_fixed)

  def cases(self) -> list[log.Unit]:
    """Returns all pairs, with all that their outcomes depend on."""
    config = self._config
    return [
      {
        'environment': name,
        'arms': str(spec),
        'draft_length': config.draft_length,
        'bandit': bandit,
        'runs': config.runs,
        'seed': config.seed,
      }
      for name, spec in self._specs.items()
      for bandit in config.bandits
    ]

  def regret(self, unit: log.Unit) -> dict[str, Any]:
    """Plays until so many tokens are emitted; also the rounds a second."""
    tokens, config = unit['tokens'], self._config
    play = functools.partial(
      laboratory.play,
      jax.random.key(config.seed),
      self._bandit(unit),
      self.environments[unit['environment']],
    )
    play(1, config.runs)  # Compiles.
    runs, seconds = measure.timed(lambda: play(tokens, config.runs))
    fixed = self._fixed(unit['environment'], tokens)
    mean, error = laboratory.regret(runs.rounds, fixed)
    rounds = np.asarray(runs.rounds, np.float64)
    best_rounds = float(fixed.mean(0).min())
    row = {
      'regret': mean,
      'regret_error': error,
      'bound': self._bound(unit, best_rounds),
      'rounds': float(rounds.mean()),
      'best_rounds': best_rounds,
      'rounds_per_second': float(rounds.sum() / seconds),
    }
    return {'rows': [row]}

  def played(self, unit: log.Unit) -> dict[str, Any]:
    """Counts the arms of the first rounds; the best one is of the moment."""
    environment = self.environments[unit['environment']]
    rounds = np.arange(unit['rounds'])
    arms, _ = laboratory.trace(
      jax.random.key(self._config.seed),
      self._bandit(unit),
      environment,
      len(rounds),
      self._config.runs,
    )
    arms = np.asarray(arms)
    best = np.asarray(jax.vmap(environment.means)(rounds)).argmax(1)
    rows = []
    for window in np.array_split(rounds, min(_WINDOWS, len(rounds))):
      here = arms[:, window]
      shares = [(here == i).mean() for i in range(environment.num_arms)]
      row = {
        'round': float(window.mean()),
        'best_arm': float((here == best[window]).mean()),
      }
      rows.append(
        row | {_ARM.format(i): float(each) for i, each in enumerate(shares)}
      )
    return {'rows': rows}

  def _environment(self, name, spec):
    place = f'environments.{name}'
    table = laboratory.ENVIRONMENTS
    try:
      factory = registry.lookup(table, 'environment', spec.name)
      options = components.bind(factory, spec, place)
      return factory(**options, draft_length=self._config.draft_length)
    except (TypeError, ValueError) as error:
      raise ValueError(f'{place}: {error}') from error

  def _bandit(self, case) -> base.Bandit:
    num_arms = self.environments[case['environment']].num_arms
    given = {'num_arms': lambda value: num_arms}
    return components.build(base.Bandit, case['bandit'], 'bandits', given)

  def _play_fixed(self, environment, tokens):
    key, arms = jax.random.key(self._config.seed), self.environments
    return np.asarray(
      laboratory.play_fixed(key, arms[environment], tokens, self._config.runs)
    )

  def _bound(self, unit, best_rounds):
    """The bound of the paper's two bandits, where it holds."""
    environment = self.environments[unit['environment']]
    spec = components.parse(unit['bandit'], 'bandits')
    length, tokens = environment.draft_length, unit['tokens']
    stationary = self._specs[unit['environment']].name == 'truncated_geometric'
    if spec.name == 'ucb_spec' and stationary:
      options = components.bind(bandits.BANDITS[spec.name], spec, 'bandits')
      means = np.asarray(environment.means(0))
      return regret_lib.ucb_upper_bound(means, length, tokens, **options)
    if spec.name == 'exp3_spec':
      return regret_lib.exp3_upper_bound(
        environment.num_arms, length, tokens, best_rounds
      )
    return None


def figures(rows):
  """Draws regret with its bounds, and which arms are played."""
  made = {'regret': _regret([row for row in rows if 'part' not in row])}
  played = [row for row in rows if 'part' in row]
  if played:
    made['best_arm'] = plots.lines(
      played,
      'round',
      'best_arm',
      'bandit',
      panel='environment',
      ylabel='share of runs that play the best arm',
    )
  pulls = [row for row in played if _ARM.format(0) in row]
  return made | ({'pulls': _pulls(pulls)} if pulls else {})


def _regret(rows):
  """Below 0, a bandit that follows the arms beats the best single one."""
  bounds = [
    row | {'bandit': f'bound of {row["bandit"]}', 'regret': row['bound']}
    for row in rows
    if row['bound'] is not None
  ]
  figure = plots.lines(
    [*rows, *({**row, 'regret_error': 0} for row in bounds)],
    'tokens',
    'regret',
    'bandit',
    panel='environment',
    error='regret_error',
    ylabel='regret in rounds',
  )
  for axes in figure.axes:
    axes.set_xscale('log')
    axes.set_yscale('symlog', linthresh=10)
    axes.autoscale_view()
  return figure


def _pulls(rows):
  """Shares of the arms by round, a panel for each bandit and environment."""
  cases: dict[str, list[Mapping[str, Any]]] = {}
  for row in rows:
    title = f'{row["bandit"]}, {row["environment"]}'
    cases.setdefault(title, []).append(row)
  figure, axes = plots.panels(list(cases), 'round', 'share of pulls')
  for each, own in zip(axes, cases.values()):
    names = [name for name in own[0] if name.startswith(_ARM.format(''))]
    shares = [[row[name] for row in own] for name in names]
    labels = [name.replace('_', ' ') for name in names]
    each.stackplot([row['round'] for row in own], shares, labels=labels)
    each.set_ylim(0, 1)
  plots.legend(figure, axes)
  return figure


def _shown(rows, with_pulls):
  """Rows, without the shares of the arms unless they are asked for."""
  hidden = () if with_pulls else (_ARM.format(''),)
  return [
    {name: each for name, each in row.items() if not name.startswith(hidden)}
    for row in rows
  ]
