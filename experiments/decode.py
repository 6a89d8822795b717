"""Decodes prompts of your own: from the command line or from a JSONL file."""

import functools
import time

from experiments.common import compare
from experiments.common import prompts
from experiments.common import runner
from experiments.common import ways
from specjax.data import examples as examples_lib

# One workdir will do for all that is asked.
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
  """Returns the family and the way; prompts are read by `run`."""
  return compare.of_entries(config, ways.entry(config))


def run(config, workdir):
  """Prints each text; returns a row for every prompt."""
  family, (way,), _ = prepare(config)
  examples, jobs = _fitting(config, family, _examples(config))
  point = runner.Point(
    {
      **{name: config.get(name) for name in _SETTINGS},
      'way': way.settings,
      'max_new_tokens': config.max_new_tokens,
      'batch_size': config.batch_size,
    },
    functools.partial(ways.build, way, family, config.max_length),
    jobs,
    config.max_new_tokens,
    config.batch_size,
    config.seed,
  )
  began = time.perf_counter()
  records = runner.decode_queue(workdir, point)
  rows = []
  seconds = time.perf_counter() - began
  for example, record in zip(examples, records):
    text = family.tokenizer.decode(record['tokens'])
    print(f'\n{example.prompt}\n> {text}')
    row = {'domain': example.domain, 'way': way.label}
    rows.append(row | compare.summary([record]) | {'response': text})
  num = sum(len(record['tokens']) for record in records)
  print(f'\n{num} tokens; {seconds:.1f} seconds, compilation included.\n')
  return rows


def _fitting(config, family, examples):
  """Those that there is room for, and their jobs; it says which are not."""
  fitting, jobs = [], []
  for number, each in enumerate(examples):
    prompt = family.tokenizer.encode_prompt(each.prompt)
    if len(prompt) + config.max_new_tokens > config.max_length:
      print(
        f'Prompt {number} is left out: it has {len(prompt)} tokens; with '
        f'max_new_tokens={config.max_new_tokens} it exceeds max_length='
        f'{config.max_length}.'
      )
    else:
      fitting.append(each)
      jobs.append(prompts.Job(each.domain, [prompt], number=number))
  if not jobs:
    raise ValueError(f'max_length={config.max_length} is too small for all.')
  return fitting, jobs


def _examples(config):
  if bool(config.prompt) == bool(config.prompts_file):
    raise ValueError(
      'Set one of prompt and prompts_file, got '
      f'{config.prompt!r} and {config.prompts_file!r}.'
    )
  if config.prompts_file:
    return examples_lib.read(config.prompts_file)
  return [examples_lib.Example('prompt', config.prompt)]
