"""One bandit for a batch or one for each row: batches of one kind and of many.

MetaSD's Table 17, whose batches share a drafter. `config.methods` and
`config.bandits` are decoded in batches of prompts of one domain, and of all
domains in turns. The oracle plays each row's best arm.
"""

import functools

import ml_collections

from experiments.common import choice
from experiments.common import compare
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.common import runner
from specjax import checks

MAY_CHANGE = compare.MAY_CHANGE
_KINDS = 'homogeneous', 'mixed'
_SHOWN = {
  'block_efficiency': 'emitted tokens per target call',
  'speed_up': 'tokens per second over plain decoding',
}
_ORACLE = {'bandit': 'fixed', 'per_row': True, 'label': choice.ORACLE}


def prepare(config):
  """Returns the methods, and prompts in the order of each kind of batch."""
  prepared, sizes = compare.plan(config), config.batch_sizes
  checks.check_range('batch_sizes', sizes, 1)
  if any(max(sizes) % size for size in sizes):
    raise ValueError(f'batch_sizes must divide the largest, got {sizes}.')
  prompt_sets = [
    _in_order(prepared.prompt_sets, kind, max(sizes)) for kind in _KINDS
  ]
  return prepared._replace(prompt_sets=prompt_sets)


def run(config, workdir):
  """Returns a row for each batch size, method and kind of batch."""
  made, sizes = prepare(config), config.batch_sizes
  prompt_sets = made.prompt_sets
  oracle = methods_lib.parse(
    config, _ORACLE, list(made.family.drafters), 'oracle'
  )
  chosen = _best_arms(
    config, workdir, made.family, oracle, prompt_sets, max(sizes)
  )
  cases = [
    (size, method, prompts, chosen[prompts.label] if method is oracle else None)
    for size in sizes
    for method in (*made.methods, oracle)
    for prompts in prompt_sets
  ]
  decoded = _decode(config, workdir, made.family, cases)
  return [
    {'batch_size': size} | row
    for (size, *_), row in zip(cases, compare.rows(decoded))
  ]


def order(domains, kind, largest):
  """Returns as many prompts of each domain, in the order of their batches.

  Any batch size that divides `largest` has whole batches, and all prompts of a
  homogeneous one are of one domain; mixed ones have domains in turns. Raises a
  `ValueError` if a domain has too few prompts.
  """
  fewest = min(map(len, domains.values()))
  count = fewest - fewest % largest
  if not count:
    raise ValueError(
      f'Every domain needs {largest} prompts for the largest of batch_sizes, '
      f'got {fewest}.'
    )
  kept = [prompts[:count] for prompts in domains.values()]
  groups = kept if kind == 'homogeneous' else zip(*kept)
  return [prompt for group in groups for prompt in group]


def figures(rows):
  """Draws what each method has by batch size; with clocks, speed-ups, too."""
  made = {
    field: plots.lines(
      rows,
      'batch_size',
      field,
      'method',
      panel='prompts',
      error=f'{field}_error',
      ylabel=label,
      paper=True,
    )
    for field, label in _SHOWN.items()
    if field in rows[0]
  }
  for figure in made.values():
    highest = max(axes.get_ylim()[1] for axes in figure.axes)
    for axes in figure.axes:
      axes.set_xticks(sorted({row['batch_size'] for row in rows}))
      axes.set_ylim(0, highest)
  return made


def _in_order(prompt_sets, kind, largest):
  """The prompts of all sets, in batches of one kind."""
  domains: dict[str, list[prompts_lib.Job]] = {}
  for job in (job for prompts in prompt_sets for job in prompts.jobs):
    domains.setdefault(job.label, []).append(job)
  settings = {
    'prompt_sets': [each.settings for each in prompt_sets],
    'largest': largest,
  }
  jobs = order(domains, kind, largest)
  return prompts_lib.PromptSet(kind, jobs, settings | {'kind': kind})


def _best_arms(config, workdir, family, oracle, prompt_sets, size):
  """For each set, the arm of the most tokens a round of each prompt."""
  untimed = ml_collections.ConfigDict({**config, 'repeats': 0})
  arms = methods_lib.alone(oracle)
  cases = [
    (size, arm, prompts, None) for prompts in prompt_sets for arm in arms
  ]
  alone = iter(_decode(untimed, workdir, family, cases))
  return {
    prompts.label: choice.best_of_each([next(alone) for _ in arms]).tolist()
    for prompts in prompt_sets
  }


def _decode(config, workdir, family, cases):
  """Decodes methods on prompt sets in batches, with rows' initial states."""
  runs = [
    runner.Run(
      compare.run_settings(config, method, prompts)
      | {'batch_size': size, 'starts': starts},
      functools.partial(methods_lib.build, method, family, config.max_length),
      prompts.jobs,
      config.max_new_tokens,
      size,
      config.seed,
      starts=starts,
    )
    for size, method, prompts, starts in cases
  ]
  options = runner.Options(**compare.clocks(config, family))
  return [
    compare.Decoded(method, prompts, records)
    for (_, method, prompts, _), records in zip(
      cases, runner.decode(workdir, runs, options)
    )
  ]
