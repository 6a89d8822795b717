"""Samples responses from a target model, to train drafters and heads on."""

import functools
import os
from typing import Any

import numpy as np

from experiments.common import limits
from experiments.common import methods
from experiments.common import prompts
from experiments.common import runner
from specjax import checks
from specjax.data import examples as examples_lib
from specjax.data import token_ids
from specjax.data import tokenizer as tokenizer_lib


def prepare(config):
  """Returns the family, the examples, and one run per temperature."""
  checks.check_range('num_parts', config.num_parts, 1)
  family = prompts.load_family(config)
  chosen = _chosen(config, family.tokenizer)
  jobs = [
    prompts.Job(example.domain, [tokens], number=number)
    for number, (example, tokens) in enumerate(chosen)
  ]
  length = config.max_prompt_tokens + config.max_new_tokens
  runs = []
  for i, temperature in enumerate(config.temperatures):
    entry = {'arm': 'none', 'sampling': {'temperature': temperature}}
    method = methods.parse(config, entry, (), f'temperatures[{i}]')
    build = functools.partial(methods.build, method, family, length)
    run = runner.Run(
      {
        'family': config.family,
        'method': method.settings,
        'max_length': length,
      },
      functools.cache(build),
      jobs,
      config.max_new_tokens,
      config.batch_size,
      config.seed + i,
    )
    runs.append(run)
  return family, chosen, runs


def run(config, workdir):
  """Writes `responses.npz`, and with `config.as_text` also `responses.jsonl`.

  Prompts are decoded by continuous batching, in `config.num_parts` equal parts,
  each at all temperatures. A run that was stopped has thus logged a random part
  of the prompts at nearly every temperature, and continues from its log. If the
  time is limited, the files contain the finished responses.
  """
  family, chosen, runs = prepare(config)
  jobs = runs[0].jobs
  queues = [
    (temperature, run._replace(jobs=[jobs[number] for number in part]))
    for part in np.array_split(np.arange(len(jobs)), config.num_parts)
    for temperature, run in zip(config.temperatures, runs)
  ]
  temperatures = [temperature for temperature, run in queues for _ in run.jobs]
  records = runner.decode_queue(workdir, [run for _, run in queues])
  responses = [
    token_ids.Response(record['job'], temperature, record['tokens'])
    for record, temperature in zip(
      limits.until_deadline(workdir, records), temperatures
    )
  ]
  decoded_prompts = [
    token_ids.Prompt(example.domain, tokens) for example, tokens in chosen
  ]
  token_ids.write(
    os.path.join(workdir, 'responses.npz'), decoded_prompts, responses
  )
  num_tokens = sum(len(response.tokens) for response in responses)
  print(f'{len(responses)} responses of {num_tokens} tokens.')
  if config.as_text:
    texts = [
      chosen[response.prompt][0]._replace(
        response=family.tokenizer.decode(response.tokens)
      )
      for response in responses
    ]
    examples_lib.write(os.path.join(workdir, 'responses.jsonl'), texts)


def _chosen(
  config: Any, tokenizer: tokenizer_lib.Tokenizer
) -> list[tuple[examples_lib.Example, list[int]]]:
  """Returns examples with their prompt tokens, in random order."""
  examples = examples_lib.read_split(config.data_dir, 'train')
  rng = np.random.default_rng(config.seed)
  chosen: list[tuple[examples_lib.Example, list[int]]] = []
  for domain, num in config.num_responses.items():
    in_domain = examples_lib.select_domain(examples, domain)
    pairs = [
      (in_domain[i], tokenizer.encode_prompt(in_domain[i].prompt))
      for i in rng.permutation(len(in_domain))
    ]
    fit = [pair for pair in pairs if len(pair[1]) <= config.max_prompt_tokens]
    chosen += fit[:num]
  return [chosen[i] for i in rng.permutation(len(chosen))]
