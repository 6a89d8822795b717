"""Compares one bandit per batch with one per row: MetaSD's Table 17.

In the paper, the rows of a batch share a drafter. `config.methods` and
`config.bandits` decode homogeneous batches, with prompts from one domain, and
mixed batches, with prompts from all domains. The oracle selects each row's best
arm.
"""

from collections.abc import Sequence
import functools
from typing import Any

import ml_collections

from experiments.common import choice
from experiments.common import compare
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.common import runner
from experiments.common import workdirs
from specjax import checks
from specjax import families

MAY_CHANGE = compare.MAY_CHANGE
_KINDS = 'homogeneous', 'mixed'
_SHOWN = {
  'block_efficiency': 'emitted tokens per target call',
  'speed_up': 'tokens per second over plain decoding',
}
_ORACLE = {'bandit': 'fixed', 'per_row': True, 'label': choice.ORACLE}


def prepare(config):
  """Returns the methods, and prompts in the order of both kinds of batches."""
  setup, sizes = compare.prepare(config), config.batch_sizes
  checks.check_range('batch_sizes', sizes, 1)
  if any(max(sizes) % size for size in sizes):
    raise ValueError(f'batch_sizes must divide the largest, got {sizes}.')
  prompt_sets = [
    _in_order(setup.prompt_sets, kind, max(sizes)) for kind in _KINDS
  ]
  return setup._replace(prompt_sets=prompt_sets)


def run(config, workdir):
  """Returns a row per batch size, method and kind of batch."""
  setup, sizes = prepare(config), config.batch_sizes
  prompt_sets = setup.prompt_sets
  oracle = methods_lib.parse(
    config, _ORACLE, list(setup.family.drafters), 'oracle'
  )
  best_arms = _best_arms(
    config, workdir, setup.family, oracle, prompt_sets, max(sizes)
  )
  cases = [
    (
      size,
      method,
      prompts,
      best_arms[prompts.label] if method is oracle else None,
    )
    for size in sizes
    for method in (*setup.methods, oracle)
    for prompts in prompt_sets
  ]
  decoded = _decode(config, workdir, setup.family, cases)
  return [
    {'batch_size': size} | row
    for (size, *_), row in zip(cases, compare.rows(decoded))
  ]


def order(domains, kind, largest):
  """Returns equally many prompts per domain, in the order of their batches.

  For any batch size that divides `largest`, all batches are full, and all
  prompts of a homogeneous batch are from one domain; mixed batches alternate
  between domains.

  Args:
    domains: the prompts of each domain.
    kind: 'homogeneous' or 'mixed'.
    largest: the largest batch size.

  Raises:
    ValueError: a domain has too few prompts.
  """
  fewest = min(map(len, domains.values()))
  count = fewest - fewest % largest
  if not count:
    raise ValueError(
      f'Every domain needs {largest} prompts for the largest of batch_sizes, '
      f'got {fewest}.'
    )
  equal = [prompts[:count] for prompts in domains.values()]
  groups = equal if kind == 'homogeneous' else zip(*equal)
  return [prompt for group in groups for prompt in group]


def figures(rows):
  """Draws block efficiency, and measured speed-ups, by batch size."""

  def adjust(axes):
    axes.set_xticks(sorted({row['batch_size'] for row in rows}))
    axes.set_ylim(bottom=0)

  return {
    field: plots.lines(
      rows,
      'batch_size',
      field,
      'method',
      panel='prompts',
      error=f'{field}_error',
      ylabel=label,
      paper=True,
      adjust=adjust,
    )
    for field, label in _SHOWN.items()
    if field in rows[0]
  }


def _in_order(
  prompt_sets: list[prompts_lib.PromptSet], kind: str, largest: int
) -> prompts_lib.PromptSet:
  """Returns the prompts of all prompt sets, in batches of one kind."""
  domains: dict[str, list[prompts_lib.Job]] = {}
  for job in (job for prompts in prompt_sets for job in prompts.jobs):
    domains.setdefault(job.label, []).append(job)
  settings = {
    'prompt_sets': [prompts.settings for prompts in prompt_sets],
    'largest': largest,
  }
  jobs = order(domains, kind, largest)
  return prompts_lib.PromptSet(kind, jobs, settings | {'kind': kind})


def _best_arms(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  oracle: methods_lib.Method,
  prompt_sets: list[prompts_lib.PromptSet],
  size: int,
) -> dict[str, list[int]]:
  """Returns the arms with the most tokens per round, by prompt set."""
  untimed = ml_collections.ConfigDict({**config, 'repeats': 0})
  arms = methods_lib.single_arms(oracle)
  cases = [
    (size, arm, prompts, None) for prompts in prompt_sets for arm in arms
  ]
  decoded = iter(_decode(untimed, workdir, family, cases))
  return {
    prompts.label: choice.best_arms([next(decoded) for _ in arms]).tolist()
    for prompts in prompt_sets
  }


def _decode(
  config: Any,
  workdir: workdirs.Workdir,
  family: families.Family,
  cases: list[
    tuple[int, methods_lib.Method, prompts_lib.PromptSet, Sequence[int] | None]
  ],
) -> list[compare.Decoded]:
  """Decodes cases: batch size, method, prompts and the rows' bandit states."""
  runs = [
    runner.Run(
      compare.run_settings(config, method, prompts)
      | {'batch_size': size, 'bandit_states': states},
      functools.partial(methods_lib.build, method, family, config.max_length),
      prompts.jobs,
      config.max_new_tokens,
      size,
      config.seed,
      bandit_states=states,
    )
    for size, method, prompts, states in cases
  ]
  options = runner.Options(**compare.clocks(config, family))
  return [
    compare.Decoded(method, prompts, records)
    for (_, method, prompts, _), records in zip(
      cases, runner.decode(workdir, runs, options)
    )
  ]
