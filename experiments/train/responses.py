"""Samples a target model's own responses, to distill drafters and heads on."""

import functools
import os

import numpy as np

from experiments.common import prompts
from experiments.common import runner
from experiments.common import ways
from specjax import checks
from specjax.data import examples as examples_lib


def prepare(config):
  """Returns the family, the examples, and the points of each temperature."""
  checks.check_range('num_parts', config.num_parts, 1)
  family = prompts.load_family(config)
  chosen = _chosen(config, family.tokenizer)
  jobs = [
    prompts.Job(example.domain, [tokens], number=number)
    for number, (example, tokens) in enumerate(chosen)
  ]
  length = config.max_prompt_tokens + config.max_new_tokens
  points = []
  for i, temperature in enumerate(config.temperatures):
    entry = {'arm': 'none', 'sampling': {'temperature': temperature}}
    way = ways.parse(config, entry, (), f'temperatures[{i}]')
    build = functools.partial(ways.build, way, family, length)
    point = runner.Point(
      {'family': config.family, 'way': way.settings, 'max_length': length},
      functools.cache(build),
      jobs,
      config.max_new_tokens,
      config.batch_size,
      config.seed + i,
    )
    points.append(point)
  return family, chosen, points


def run(config, workdir):
  """Writes `responses.jsonl`; a run that was stopped continues from its log.

  Prompts are decoded by continuous batching, `config.num_parts` equal parts of
  them one after the other, each at all temperatures. So a run that was stopped
  has logged a random part of the prompts at nearly every temperature.
  """
  family, chosen, points = prepare(config)
  jobs = points[0].jobs
  responses = []
  for part in np.array_split(np.arange(len(jobs)), config.num_parts):
    for point in points:
      point = point._replace(jobs=[jobs[number] for number in part])
      for number, record in zip(part, runner.decode_queue(workdir, point)):
        text = family.tokenizer.decode(record['tokens'])
        responses.append(chosen[number][0]._replace(response=text))
  examples_lib.write(os.path.join(workdir, 'responses.jsonl'), responses)


def _chosen(config, tokenizer):
  """Returns examples with their prompt tokens, in random order."""
  examples = examples_lib.read_split(config.data_dir, 'train')
  rng = np.random.default_rng(config.seed)
  chosen = []
  for domain, num in config.num_responses.items():
    in_domain = examples_lib.of_domain(examples, domain)
    pairs = [
      (in_domain[i], tokenizer.encode_prompt(in_domain[i].prompt))
      for i in rng.permutation(len(in_domain))
    ]
    fit = [pair for pair in pairs if len(pair[1]) <= config.max_prompt_tokens]
    chosen += fit[:num]
  return [chosen[i] for i in rng.permutation(len(chosen))]
