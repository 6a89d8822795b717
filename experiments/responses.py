"""Samples a target's own responses, to distil drafters on them."""

import json
import os

import numpy as np

from experiments import batches
from specjax import decoding
from specjax import families
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib
from specjax.data import lines
from specjax.data import tokenizer as tokenizer_lib

MAY_CHANGE = ('batch_size',)  # No response depends on it.


def run(config, workdir):
  """Appends to `responses.jsonl`, batch by batch; goes on where it stopped."""
  tokenizer = tokenizer_lib.load(config.tokenizer)
  target = families.load_model(config.target)
  jobs = _jobs(config, tokenizer)
  decoders = [
    decoding.speculative(
      target.functions,
      target.params,
      None,
      sampling=sampling_lib.Sampling(temperature),
      stop_tokens=[tokenizer.end_id],
      max_length=config.max_prompt_tokens + config.max_new_tokens,
    )
    for temperature in config.temperatures
  ]
  path = os.path.join(workdir, 'responses.jsonl')
  written = lines.keep_while(path)
  for i, decoder in enumerate(decoders):
    first = max(written - i * len(jobs), 0)
    responses = batches.decode(
      decoder,
      [tokens for _, tokens in jobs],
      config.max_new_tokens,
      config.batch_size,
      seed=config.seed + i,
      first=first,
    )
    with open(path, 'a', encoding='utf-8', buffering=1) as file:
      for (example, _), response in zip(jobs[first:], responses):
        text = tokenizer.decode(response.tokens)
        row = example._replace(response=text)._asdict()
        file.write(json.dumps(row, ensure_ascii=False) + '\n')


def _jobs(config, tokenizer):
  """Chosen examples with their prompt tokens, shortest first."""
  examples = examples_lib.read_split(config.data_dir, 'train')
  rng = np.random.default_rng(config.seed)
  chosen = []
  for domain, num in config.num_responses.items():
    own = examples_lib.of_domain(examples, domain)
    jobs = [
      (own[i], tokenizer.encode_prompt(own[i].prompt))
      for i in rng.permutation(len(own))
    ]
    fit = [job for job in jobs if len(job[1]) <= config.max_prompt_tokens]
    chosen += fit[:num]
  return sorted(chosen, key=lambda job: len(job[1]))
