"""Decodes prompts of your own: from the command line or from a JSONL file."""

import functools

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


def run(config, workdir):
  """Prints each text; returns a row for every prompt."""
  family = prompts.load_family(config)
  way = ways.parse(config, ways.entry(config), list(family.drafters), 'config')
  examples = _examples(config)
  encode = family.tokenizer.encode_prompt
  jobs = [prompts.Job(each.domain, [encode(each.prompt)]) for each in examples]
  point = runner.Point(
    {
      **{name: config.get(name) for name in ('family', 'chat', 'system')},
      'way': way.settings,
      'prompts': [each.prompt for each in examples],
      'max_new_tokens': config.max_new_tokens,
      'batch_size': config.batch_size,
    },
    functools.partial(ways.build, way, family, config.max_length),
    jobs,
    config.max_new_tokens,
    config.batch_size,
    config.seed,
  )
  (records,) = runner.decode(workdir, [point], runner.Options(tokens=True))
  rows = []
  for example, record in zip(examples, records):
    text = family.tokenizer.decode(record['tokens'])
    print(f'\n{example.prompt}\n> {text}')
    row = {'domain': example.domain, 'way': way.label}
    rows.append(row | compare.summary([record]) | {'response': text})
  print()
  return rows


def _examples(config):
  if bool(config.prompt) == bool(config.prompts_file):
    raise ValueError(
      'Set one of prompt and prompts_file, got '
      f'{config.prompt!r} and {config.prompts_file!r}.'
    )
  if config.prompts_file:
    return examples_lib.read(config.prompts_file)
  return [examples_lib.Example('prompt', config.prompt)]
