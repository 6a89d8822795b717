"""Compares rejections in theory, in simulation and in the decode loop.

In Figures 2 and 5 of Yin et al. (2024), drafts extend to the horizon, so that
there is no bonus token, and a round ends at a rejection or at the horizon.
"""

import functools
import itertools
import math
import types
from typing import Any

import jax
import numpy as np

from experiments.common import configs
from experiments.common import log
from experiments.common import methods
from experiments.common import plots
from experiments.common import prompts
from experiments.common import runner
from specjax import families
from specjax import models
from specjax import theory

_GRIDS = 'horizons', 'simulated_drafts', 'decoded_horizons', 'decoded_drafts'
_COUNTS = 'num_drafts', 'runs_per_chunk', 'batch_size'
MAY_CHANGE = (*_GRIDS, 'num_drafts', 'means_at')
_LIMIT = 'limit of infinitely many drafts'


def run(config, workdir):
  """Returns a row per source, horizon, number of drafts and number of runs."""
  configs.check_counts(config, (*_GRIDS, *_COUNTS))
  configs.check_counts(config, ('vocab_size', 'simulated_runs'), 2)
  configs.check_counts(config, ('decoded_runs',), 2)
  expected = lambda horizon, num_drafts: theory.batch_expected_rejections(
    *tables(config.vocab_size, horizon, config.seed), horizon, num_drafts
  )
  rows = []
  for horizon in config.horizons:
    for num_drafts in config.num_drafts:
      mean = expected(horizon, num_drafts)
      row = _row('theory', horizon, num_drafts, mean)
      rows.append(row | {'acceleration': horizon / mean})
    limit = expected(horizon, math.inf)
    rows.append(_row(_LIMIT, horizon, None, limit))
  counts = simulated(config, workdir) | decoded(config, workdir)
  for (source, *case), run_counts in counts.items():
    for num in sorted({*config.means_at, len(run_counts)}):
      if 2 <= num <= len(run_counts):
        columns = statistics(run_counts[:num], expected(*case))
        rows.append(_row(source, *case, **columns))
  return rows


def _row(
  source: str,
  horizon: int,
  num_drafts: int | None,
  rejections: float,
  **columns: float,
) -> dict[str, Any]:
  names = 'source', 'horizon', 'num_drafts', 'rejections'
  return dict(zip(names, (source, horizon, num_drafts, rejections))) | columns


def tables(vocab_size, horizon, seed):
  """Returns a target's and a draft's table, `[horizon, V, V]` float32 each.

  The paper states the seed, 10, but not how its tables are drawn. They are
  probably uniform random numbers, first the draft's and then the target's, with
  normalized rows. At horizon 50, this gives 16.405 expected rejections, where
  the paper has 16.41; other seeds give 16.31 ± 0.29.
  """
  shape = 2, horizon, vocab_size, vocab_size
  numbers = np.random.RandomState(seed).rand(*shape)
  numbers /= numbers.sum(-1, keepdims=True)
  draft, target = numbers.astype(np.float32)
  return target, draft


def simulated(config, workdir):
  """Returns each run's rejections, by source, horizon and number of drafts."""
  names = 'horizon', 'num_drafts', 'first'
  firsts = range(0, config.simulated_runs, config.runs_per_chunk)
  units = [
    {
      **dict(zip(names, case)),
      'num_runs': min(config.runs_per_chunk, config.simulated_runs - case[-1]),
      'vocab_size': config.vocab_size,
      'seed': config.seed,
    }
    for case in itertools.product(
      config.horizons, config.simulated_drafts, firsts
    )
  ]

  def compute(unit):
    key = jax.random.key(config.seed)
    for name in names:
      key = jax.random.fold_in(key, unit[name])
    horizon, num_drafts = unit['horizon'], unit['num_drafts']
    pair = tables(config.vocab_size, horizon, config.seed)
    runs = theory.simulate(key, *pair, horizon, num_drafts, unit['num_runs'])
    return {'rejections': runs.rejected.sum(axis=1).tolist()}

  counts = {}
  outcomes = log.resume(workdir, units, compute, 'simulation')
  for unit, outcome in zip(units, outcomes):
    case = 'simulation', unit['horizon'], unit['num_drafts']
    counts.setdefault(case, []).extend(outcome['rejections'])
  return counts


def decoded(config, workdir):
  """Returns the decode loop's rejections, each run after one random token."""
  tokens = np.random.default_rng(config.seed).integers(
    config.vocab_size, size=config.decoded_runs
  )
  jobs = [prompts.Job('', [[token]]) for token in tokens.tolist()]
  cases = list(
    itertools.product(config.decoded_horizons, config.decoded_drafts)
  )
  runs = [_run(config, jobs, *case) for case in cases]
  return {
    # Drafts extend to the horizon, so that no emitted token is a bonus.
    ('decoder', *case): [
      case[0] - sum(record['accepted']) for record in records
    ]
    for case, records in zip(cases, runner.decode(workdir, runs))
  }


def _run(
  config: Any, jobs: list[prompts.Job], horizon: int, num_drafts: int
) -> runner.Run:
  """Returns a run with batch verification of chains up to the horizon."""
  arm = f'draft:{num_drafts}x{horizon}/batch'
  method = methods.parse(config, arm, ['draft'], 'decoded_drafts')
  family = _family(*tables(config.vocab_size, horizon, config.seed))
  names = 'vocab_size', 'decoded_runs', 'batch_size'
  return runner.Run(
    {'method': method.settings} | {name: config[name] for name in names},
    functools.partial(methods.build, method, family, horizon + 1),
    jobs,
    horizon,
    min(config.batch_size, config.decoded_runs),
    config.seed,
  )


def _family(target: np.ndarray, draft: np.ndarray) -> families.Family:
  """Returns a family of two Markov models, without text or stop tokens."""
  model = models.Markov(target.shape[-1])
  return families.Family(
    tokenizer=types.SimpleNamespace(stop_tokens=()),
    target=families.Model(None, model, target),
    drafters={'draft': families.Model(None, model, draft)},
    prompts=[],
  )


def statistics(counts, expected):
  """Returns the mean of `[runs]` rejections, and its excess over theory."""
  mean = float(np.mean(counts))
  return {
    'rejections': mean,
    'rejections_error': float(np.std(counts, ddof=1) / len(counts) ** 0.5),
    'excess': mean - expected,
    'runs': len(counts),
  }


def figures(rows):
  """Draws rejections by drafts, Figure 2 (c), and by runs, Figure 2 (a, b)."""
  names = 'source', 'horizon', 'num_drafts'
  # The row with all runs is the last one.
  most = {tuple(row[name] for name in names): row for row in rows}
  by_drafts = plots.lines(
    list(most.values()),
    'num_drafts',
    'rejections',
    'source',
    panel=('horizon',),
    error='rejections_error',
    xlabel='drafts per round',
    ylabel='rejections per run',
    paper=True,
    level=lambda row: row['source'] == _LIMIT,
    points=lambda row: 'runs' in row,
  )
  by_runs = plots.lines(
    [row for row in rows if 'runs' in row],
    'runs',
    'excess',
    ('num_drafts',),
    panel=('source', 'horizon'),
    error='rejections_error',
    ylabel='mean minus expected rejections',
  )
  for axes in by_runs.axes:
    axes.set_xscale('log')
    axes.axhline(0, color='0.5', linewidth=0.8)
  return {'num_drafts': by_drafts, 'running_mean': by_runs}
