"""Regret of every bandit on simulated arms, beside its bound (BanditSpec)."""

import os

import jax
import numpy as np
import tqdm

from experiments.banditspec import laboratory
from experiments import plots
from experiments import results
from specjax import bandits
from specjax import base
from specjax import checks
from specjax import registry
from specjax.theory import regret as regret_lib

# What identifies a row.
_SETTINGS = ('environment', 'arms', 'bandit', 'options', 'tokens', 'runs')
MAY_CHANGE = ('bandits', 'lengths', 'trace_rounds', 'traced', 'pulls')


def run(config, workdir):
  """Writes a row for each environment, bandit and length; three plots."""
  environments = make_environments(config)
  makers = make_bandits(config)
  _check(config, environments, makers)
  done = results.done(workdir, _SETTINGS)
  cases = [(e, b) for e in environments for b in makers]
  rows, fixed = [], {}
  for environment, bandit in tqdm.tqdm(cases, desc='bandits'):
    play = None
    for tokens in config.lengths:
      settings = _settings(config, environment, bandit, tokens)
      row = done.get(tuple(settings.values()))
      if row is None:
        arms = environments[environment]
        key = jax.random.key(config.seed)
        if (environment, tokens) not in fixed:
          fixed[environment, tokens] = np.asarray(
            laboratory.play_fixed(key, arms, tokens, config.runs)
          )
        play = play or _compiled(key, makers[bandit], arms, config.runs)
        row = settings | measure(play, fixed[environment, tokens], tokens)
        row['bound'] = bound(config, environment, bandit, arms, row)
        results.log(workdir, row)
      rows.append(row)
  results.write(workdir, rows)
  plots.plot_regret(rows, os.path.join(workdir, 'regret.png'))
  _plot_traces(config, environments, makers, workdir)


def make_environments(config) -> dict[str, laboratory.Environment]:
  """Returns the environments of a config, by name."""
  length, period = config.draft_length, config.period
  return {
    'stationary': laboratory.truncated_geometric(config.acceptances, length),
    'drifting': laboratory.drifting(config.drift, length, period),
    'adversarial': laboratory.adversarial(
      trap(len(config.acceptances), length), length
    ),
  }


def trap(num_arms: int, draft_length: int) -> np.ndarray:
  """Returns tokens `[T, A]` of rounds: the most, but of one arm after another.

  Rules without chance that start in turns get one token a round for ever, while
  each arm alone emits almost the most.
  """
  return np.where(np.eye(num_arms), 1, draft_length + 1)


def make_bandits(config) -> dict[str, base.Bandit]:
  """Returns the bandits of a config, by name."""
  return {
    name: registry.lookup(bandits.BANDITS, 'bandit', name)(
      len(config.acceptances), **options
    )
    for name, options in config.bandits.items()
  }


def measure(play, fixed, tokens) -> dict[str, float]:
  """Plays, and returns regret, rounds and speed."""
  runs, seconds = results.timed(lambda: jax.block_until_ready(play(tokens)))
  mean, error = laboratory.regret(runs.rounds, fixed)
  rounds = np.asarray(runs.rounds, np.float64)
  return {
    'regret': mean,
    'standard_error': error,
    'rounds': rounds.mean(),
    'best_rounds': fixed.mean(0).min(),
    'rounds_per_second': rounds.sum() / seconds,
  }


def bound(config, environment, bandit, arms, row) -> float | None:
  """Returns the bound of the paper's two bandits where it holds."""
  if bandit == 'ucb_spec' and environment == 'stationary':
    return regret_lib.ucb_upper_bound(
      np.asarray(arms.means(0)),
      arms.draft_length,
      row['tokens'],
      config.bandits.ucb_spec.get('delta', 0.5),
    )
  if bandit == 'exp3_spec':
    return regret_lib.exp3_upper_bound(
      arms.num_arms, arms.draft_length, row['tokens'], row['best_rounds']
    )
  return None


def _check(config, environments, makers):
  checks.check_range('lengths', config.lengths, 1)
  checks.check_range('runs', config.runs, 2)
  if len({each.num_arms for each in environments.values()}) > 1:
    raise ValueError(
      f'drift must have as many arms as acceptances, got {config.drift}.'
    )
  for name in config.traced:
    registry.lookup(environments, 'environment', name)
  for name in config.pulls:
    registry.lookup(makers, 'bandit', name)


def _compiled(key, bandit, environment, num_runs):
  """`(tokens) -> Runs`; the first call, of one token, compiles."""
  play = lambda tokens: laboratory.play(
    key, bandit, environment, tokens, num_runs
  )
  play(1)
  return play


def _settings(config, environment, bandit, tokens):
  arms = {
    'stationary': config.acceptances,
    'drifting': (*config.drift, config.period),
    'adversarial': (len(config.acceptances),),
  }[environment]
  options = dict(config.bandits[bandit])
  values = (
    environment,
    f'{arms}, L = {config.draft_length}, seed {config.seed}',
    bandit,
    ', '.join(f'{name}={value}' for name, value in options.items()),
    tokens,
    config.runs,
  )
  return dict(zip(_SETTINGS, values, strict=True))


def _plot_traces(config, environments, makers, workdir):
  """Draws which arms were played; the best arm is that of the moment."""
  if not config.trace_rounds:
    return
  key = jax.random.key(config.seed)
  rounds = np.arange(config.trace_rounds)
  ratios, pulls = {}, {}
  for name in config.traced:
    arms = environments[name]
    best = np.asarray(jax.vmap(arms.means)(rounds)).argmax(1)
    ratios[name] = {}
    for bandit, maker in tqdm.tqdm(makers.items(), desc=f'traces, {name}'):
      played, _ = laboratory.trace(
        key, maker, arms, config.trace_rounds, config.runs
      )
      ratios[name][bandit] = (np.asarray(played) == best).mean(0)
      if bandit in config.pulls:
        pulls[f'{bandit}, {name}'] = played
  plots.plot_best_arm(ratios, os.path.join(workdir, 'best_arm.png'))
  if pulls:
    path = os.path.join(workdir, 'pulls.png')
    plots.plot_pulls(pulls, len(config.acceptances), path)
