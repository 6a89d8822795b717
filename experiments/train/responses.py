"""Samples a target's own responses, to distil drafters on them."""

import functools
import os

import numpy as np

from experiments.common import prompts
from experiments.common import runner
from experiments.common import ways
from specjax.data import examples as examples_lib


def run(config, workdir):
  """Writes `responses.jsonl`; goes on where it stopped."""
  family = prompts.load_family(config)
  chosen = _chosen(config, family.tokenizer)
  jobs = [prompts.Job(example.domain, [tokens]) for example, tokens in chosen]
  length = config.max_prompt_tokens + config.max_new_tokens
  points = []
  for i, temperature in enumerate(config.temperatures):
    entry = {'arm': 'none', 'sampling': {'temperature': temperature}}
    way = ways.parse(config, entry, (), f'temperatures[{i}]')
    point = runner.Point(
      {'family': config.family, 'way': way.settings, 'max_length': length},
      functools.partial(ways.build, way, family, length),
      jobs,
      config.max_new_tokens,
      config.batch_size,
      config.seed + i,
    )
    points.append(point)
  records = runner.decode(workdir, points, runner.Options(tokens=True))
  responses = (
    example._replace(response=family.tokenizer.decode(record['tokens']))
    for each in records
    for (example, _), record in zip(chosen, each)
  )
  examples_lib.write(os.path.join(workdir, 'responses.jsonl'), responses)


def _chosen(config, tokenizer):
  """Examples with their prompt tokens, shortest first."""
  examples = examples_lib.read_split(config.data_dir, 'train')
  rng = np.random.default_rng(config.seed)
  chosen = []
  for domain, num in config.num_responses.items():
    own = examples_lib.of_domain(examples, domain)
    pairs = [
      (own[i], tokenizer.encode_prompt(own[i].prompt))
      for i in rng.permutation(len(own))
    ]
    fit = [pair for pair in pairs if len(pair[1]) <= config.max_prompt_tokens]
    chosen += fit[:num]
  return sorted(chosen, key=lambda pair: len(pair[1]))
