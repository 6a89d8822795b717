"""Decodes prompts from the command line or from a JSONL file."""

from collections.abc import Callable
import functools
import time
from typing import Any

from experiments.common import compare
from experiments.common import methods
from experiments.common import prompts
from experiments.common import runner
from specjax import families
from specjax.data import examples as examples_lib
from specjax.decoding import prefill

# Fields that may differ between runs in one workdir.
MAY_CHANGE = (
  'arms',
  'bandit',
  'chat',
  'prompt',
  'prompts_file',
  'sampling',
  'system',
)

_SETTINGS = 'family', 'drafters', 'chat', 'system'


def prepare(config):
  """Returns the family and the method; `run` reads the prompts."""
  return compare.prepare_entries(config, methods.entry(config))


def run(config, workdir):
  """Prints each text; returns a row per prompt."""
  reasons: list[Any] = []  # Errors of prompts that are left out.
  examples = _examples(config, reasons.append)
  family, (method,), _ = prepare(config)
  examples, jobs = _fitting(config, family, examples, reasons)
  run = runner.Run(
    {
      **{name: config.get(name) for name in _SETTINGS},
      'method': method.settings,
      'max_new_tokens': config.max_new_tokens,
      'batch_size': config.batch_size,
    },
    functools.partial(methods.build, method, family, config.max_length),
    jobs,
    config.max_new_tokens,
    config.batch_size,
    config.seed,
  )
  began = time.perf_counter()
  records = list(runner.decode_queue(workdir, [run]))
  rows = []
  seconds = time.perf_counter() - began
  for example, record in zip(examples, records):
    text = family.tokenizer.decode(record['tokens'])
    print(f'\n{example.prompt}\n> {text}')
    row = {'domain': example.domain, 'method': method.label}
    row |= compare.summary([record]) | {'response': text}
    del row['block_efficiency_error']  # A single prompt has none.
    rows.append(row)
  num = sum(len(record['tokens']) for record in records)
  print(f'\n{num} tokens; {seconds:.1f} seconds, compilation included.\n')
  return rows


def _fitting(
  config: Any,
  family: families.Family,
  examples: dict[int, tuple[str, examples_lib.Example]],
  reasons: list[Any],
) -> tuple[list[examples_lib.Example], list[prompts.Job]]:
  """Returns examples that can be decoded, and their jobs; prints the others."""
  fitting, jobs = [], []
  for number, (location, example) in examples.items():
    try:
      prompt = family.tokenizer.encode_prompt(example.prompt)
      prefill.check_prompts(
        family.target.model,
        config.max_length,
        [prompt],
        config.max_new_tokens,
        first_number=number,
      )
    except ValueError as error:
      reasons.append(f'{location}: {error}')
    else:
      fitting.append(example)
      jobs.append(prompts.Job(example.domain, [prompt], number=number))
  if not jobs:
    first = reasons[0] if reasons else f'{config.prompts_file} has none.'
    raise ValueError(f'There is no prompt that can be decoded: {first}')
  for reason in reasons:
    print(f'Left out: {reason}')
  return fitting, jobs


def _examples(
  config: Any, reject: Callable[[Any], None]
) -> dict[int, tuple[str, examples_lib.Example]]:
  """Returns examples and their locations, by number from 0."""
  if bool(config.prompt) == bool(config.prompts_file):
    raise ValueError(
      'Set one of prompt and prompts_file, got '
      f'{config.prompt!r} and {config.prompts_file!r}.'
    )
  if config.prompts_file:
    path = config.prompts_file
    return {
      line - 1: (f'{path}, line {line}', example)
      for line, example in examples_lib.read_by_line(path, reject).items()
    }
  examples_lib.check_text('prompt', config.prompt)
  return {0: ('prompt', examples_lib.Example('prompt', config.prompt))}
