"""Scores methods on tasks of lm-evaluation-harness, with rejection rates."""

import importlib
import operator
import types
from typing import Any

from experiments.common import compare
from experiments.common import log
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import runner
from specjax import checks
from specjax import optional

MAY_CHANGE = ('methods', 'tasks')
# Fields on which the texts of a task may depend.
_OPTIONS = 'family', 'chat', 'dtype', 'system'


def prepare(config):
  """Returns the methods of a config; the prompts are those of its tasks."""
  checks.check_range('limit', config.limit, 0)
  entries = {f'methods[{i}]': entry for i, entry in enumerate(config.methods)}
  return compare.prepare_entries(config, entries)


def run(config, workdir):
  """Returns a row per task, method and metric.

  `score` is the harness's, with its standard error; the columns after it are
  those of `compare.summary`. At temperature 0, `same_outputs` counts the
  requests whose tokens equal those of plain decoding, if that is a method.

  Raises:
    ValueError: the config is wrong, or the harness is not installed.
  """
  harness = _harness()
  setup = prepare(config)
  options = {name: config[name] for name in _OPTIONS if name in config}
  tasks = harness.load_tasks(config.tasks, config.task_folder, options)
  pairs = [(name, method) for name in tasks for method in setup.methods]
  names = 'family', 'task_folder', 'limit', 'max_new_tokens', 'max_length'
  shared = {name: config[name] for name in (*names, 'batch_size', 'seed')}
  units = [
    {'task': name, 'method': method.settings, **shared}
    for name, method in pairs
  ]

  def compute(pair: tuple[str, methods_lib.Method]) -> dict[str, Any]:
    name, method = pair
    lm = harness.MethodLM(
      method,
      setup.family,
      max_length=config.max_length,
      max_new_tokens=config.max_new_tokens,
      batch_size=config.batch_size,
      seed=config.seed,
    )
    scores = harness.score(lm, tasks[name], method.sampling, config.limit)
    records = [
      runner.counts(result) | {'job': i, 'tokens': list(result.tokens)}
      for i, result in enumerate(lm.results)
    ]
    return {'scores': scores, 'records': records}

  outcomes = log.resume(workdir, units, compute, 'tasks', pairs)
  return _rows(config, pairs, list(outcomes))


def figures(rows):
  """Draws scores against rejection rates, with that of plain decoding."""
  columns = 'sampling.temperature', 'task', 'metric'
  panel = [name for name in columns if len({row.get(name) for row in rows}) > 1]
  return {
    'score': plots.lines(
      rows,
      'rejection_rate',
      'score',
      'method',
      panel=panel,
      error='score_error',
      xlabel='share of rejected draft tokens',
      level=lambda row: row['rejection_rate'] is None,
    )
  }


def _harness() -> types.ModuleType:
  """Imports `experiments.harness`, which needs an extra."""
  optional.load('lm_eval', 'lm-eval', 'The harness')
  return importlib.import_module('experiments.harness')


def _rows(
  config: Any,
  pairs: list[tuple[str, methods_lib.Method]],
  outcomes: list[dict[str, Any]],
) -> list[dict[str, Any]]:
  """Returns the rows of `run`, from an outcome per task and method."""
  plain = compare.reference(config)
  plain_tokens = {
    name: _tokens(outcome)
    for (name, method), outcome in zip(pairs, outcomes)
    if method.settings == plain.settings and plain.sampling.is_greedy
  }
  rows = []
  for (name, method), outcome in zip(pairs, outcomes):
    counts = compare.summary(outcome['records'])
    is_comparable = (method.sampling, method.target) == (
      plain.sampling,
      plain.target,
    )
    if is_comparable and name in plain_tokens:
      same = map(operator.eq, _tokens(outcome), plain_tokens[name])
      counts['same_outputs'] = sum(same)
    for metric, (score, error) in outcome['scores'].items():
      row = {'task': name, 'method': method.label, **method.columns}
      row |= {'metric': metric, 'score': score, 'score_error': error}
      rows.append(row | counts)
  return rows


def _tokens(outcome: dict[str, Any]) -> list[list[int]]:
  """Returns the tokens of each request."""
  return [record['tokens'] for record in outcome['records']]
