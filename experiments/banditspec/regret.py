"""Regret of bandits on simulated arms, beside its bounds (BanditSpec).

Also, which arms are played: how often the best one of the moment, and each.
"""

import jax
import numpy as np

from experiments.banditspec import laboratory
from experiments.common import components
from experiments.common import log
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
# Places of the horizontal axis, where arms are counted around each.
_WINDOWS = 50


def prepare(config):
  """Returns all that is played, and the arms of each environment."""
  checks.check_range('lengths', config.lengths, 1)
  checks.check_range('runs', config.runs, 2)
  specs = {
    name: components.parse(entry, f'environments.{name}')
    for name, entry in config.environments.items()
  }
  arms = {name: _arms(config, name, spec) for name, spec in specs.items()}
  for name in config.traced:
    registry.lookup(arms, 'environment of traced', name)
  for name in config.pulls:
    registry.lookup(dict.fromkeys(config.bandits), 'bandit of pulls', name)
  units = [
    {
      'environment': name,
      'arms': str(spec),
      'bandit': bandit,
      'traced': config.trace_rounds if name in config.traced else 0,
      'pulls': bandit in config.pulls,
    }
    | {
      each: config[each] for each in ('draft_length', 'lengths', 'runs', 'seed')
    }
    for name, spec in specs.items()
    for bandit in config.bandits
  ]
  for unit in units:  # All are tried before any is played.
    _bandit(unit, arms[unit['environment']])
  return units, arms


def run(config, workdir):
  """Returns rows of regret by tokens, and of arms that were played by round."""
  units, arms = prepare(config)
  compute = lambda unit: _play(unit, arms[unit['environment']])
  outcomes = log.resume(workdir, units, compute, 'bandits')
  rows = [
    {name: unit[name] for name in ('environment', 'bandit')} | row
    for unit, outcome in zip(units, outcomes)
    for row in outcome['rows']
  ]
  return sorted(rows, key=lambda row: 'part' in row)


def _arms(config, name, spec):
  """The simulated arms of an environment."""
  place = f'environments.{name}'
  try:
    factory = registry.lookup(laboratory.ENVIRONMENTS, 'environment', spec.name)
    options = components.bind(factory, spec, place)
    return factory(**options, draft_length=config.draft_length)
  except (TypeError, ValueError) as error:
    raise ValueError(f'{place}: {error}') from error


def _bandit(unit, arms):
  given = {'num_arms': lambda value: arms.num_arms}
  return components.build(base.Bandit, unit['bandit'], 'bandits', given)


def _play(unit, arms):
  """Rows of one bandit in one environment."""
  # A round emits `L + 1` tokens at most.
  most = max(*unit['lengths'], unit['traced'] * (unit['draft_length'] + 1))
  key = jax.random.key(unit['seed'])
  runs = laboratory.play(key, _bandit(unit, arms), arms, most, unit['runs'])
  rows = [_regret(unit, arms, runs, tokens) for tokens in unit['lengths']]
  return {'rows': rows + (_played(unit, arms, runs) if unit['traced'] else [])}


def _played(unit, arms, runs):
  """Rows of the arms of the first rounds; the best one is of the moment."""
  rounds, rows = np.arange(unit['traced']), []
  best = np.asarray(jax.vmap(arms.means)(rounds)).argmax(1)
  for window in np.array_split(rounds, min(_WINDOWS, len(rounds))):
    played = runs.arms[:, window]
    row = {
      'part': 'arms played',
      'round': float(window.mean()),
      'best_arm': float((played == best[window]).mean()),
    }
    if unit['pulls']:
      each = range(arms.num_arms)
      row |= {f'arm_{i}': float((played == i).mean()) for i in each}
    rows.append(row)
  return rows


def _regret(unit, arms, runs, tokens):
  """A row of regret, beside the bound where it holds."""
  lost = runs.lost(tokens)
  best_rounds = float(runs.fixed_rounds(tokens).mean(0).min())
  return {
    'tokens': tokens,
    'regret': float(lost.mean()),
    'regret_error': float(lost.std(ddof=1) / len(lost) ** 0.5),
    'bound': _bound(unit, arms, tokens, best_rounds),
    'rounds': float(runs.rounds(tokens).mean()),
    'best_rounds': best_rounds,
  }


def _bound(unit, arms, tokens, best_rounds):
  """The bound of the paper's two bandits, where it holds."""
  spec = components.parse(unit['bandit'], 'bandits')
  length = unit['draft_length']
  stationary = unit['arms'].startswith('truncated_geometric')
  if spec.name == 'ucb_spec' and stationary:
    options = components.bind(bandits.BANDITS[spec.name], spec, 'bandits')
    means = np.asarray(arms.means(0))
    return regret_lib.ucb_upper_bound(means, length, tokens, **options)
  if spec.name == 'exp3_spec':
    return regret_lib.exp3_upper_bound(
      arms.num_arms, length, tokens, best_rounds
    )
  return None


def figures(rows):
  """Draws regret with its bounds, and which arms are played."""
  made = {'regret': _regret_figure([row for row in rows if 'part' not in row])}
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
  pulls = [row for row in played if 'arm_0' in row]
  return made | ({'pulls': _pulls(pulls)} if pulls else {})


def _regret_figure(rows):
  """Below 0, a bandit that follows the arms beats the best single one."""
  bounds = [
    row
    | {
      'bandit': f'bound of {row["bandit"]}',
      'regret': row['bound'],
      'regret_error': 0,
    }
    for row in rows
    if row['bound'] is not None
  ]
  figure = plots.lines(
    [*rows, *bounds],
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
  cases = {}
  for row in rows:
    title = f'{row["bandit"]}, {row["environment"]}'
    cases.setdefault(title, []).append(row)
  figure, axes = plots.panels(list(cases), 'round', 'share of pulls')
  for each, own in zip(axes, cases.values()):
    names = [name for name in own[0] if name.startswith('arm_')]
    shares = [[row[name] for row in own] for name in names]
    labels = [name.replace('_', ' ') for name in names]
    each.stackplot([row['round'] for row in own], shares, labels=labels)
    each.set_ylim(0, 1)
  plots.legend(figure, axes)
  return figure
