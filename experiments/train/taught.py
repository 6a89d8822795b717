"""Texts that a teacher has read, for whoever learns from it."""

from collections.abc import Sequence
import os
from typing import NamedTuple

import numpy as np

from experiments.common import limits
from specjax import families
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.data import token_ids
from specjax.training import teacher


def teach(config, family: families.Family, workdir, taps=()):
  """Lets the target read `config.num_texts` of each domain, and responses.

  The responses are those of `config.domain`, or of 'all'.

  Raises:
    limits.OutOfTime: the target has not read all of it by the deadline.
  """
  taught = teacher.teach(
    family.target.model,
    family.target.params,
    _rows(config, family.tokenizer),
    os.path.join(workdir, 'teacher'),
    taps=taps,
    batch_size=config.teacher_batch_size,
    seconds=limits.seconds_left(),
  )
  if taught is None:
    raise limits.OutOfTime
  return taught


def _rows(config, tokenizer):
  """Packs the text that is learnt."""
  examples = _chosen(config)
  if responses := read(config.responses):
    examples += examples_lib.select_domain(responses, config.domain)
  sequences = encode(examples, tokenizer)
  if config.max_tokens:
    sequences = _some(
      sequences, config.max_tokens, config.row_length, config.seed
    )
  rows = packing.pack(
    sequences, config.row_length, config.seed, before=config.prompt_weight
  )
  print(
    f'{len(sequences)} of {len(examples)} examples in {len(rows.tokens)} rows.'
  )
  return rows


class Sampled(NamedTuple):
  """An example whose tokens are those that were sampled."""

  domain: str
  prompt: Sequence[int]
  response: Sequence[int]


def read(paths):
  """Returns the examples of files of `data.examples` and `data.token_ids`."""
  examples = []
  for path in paths:
    if path.endswith('.npz'):
      prompts, responses = token_ids.read(path)
      examples += [
        Sampled(*prompts[each.prompt], each.tokens) for each in responses
      ]
    else:
      examples += examples_lib.read(path)
  return examples


def encode(examples, tokenizer):
  """Returns the tokens of examples, and where each response starts."""
  return [
    ([*each.prompt, *each.response], len(each.prompt))
    if isinstance(each, Sampled)
    else tokenizer.encode_example(each.prompt, each.response)
    for each in examples
  ]


def _some(sequences, max_tokens, row_length, seed):
  """Some of the sequences, in random order, of so many tokens at most."""
  order = np.random.default_rng(seed).permutation(len(sequences))
  sizes = [min(len(sequences[i][0]), row_length) for i in order]
  num = int(np.searchsorted(np.cumsum(sizes), max_tokens, side='right'))
  return [sequences[i] for i in order[: max(num, 1)]]


def _chosen(config):
  """Some of the training text, `config.num_texts` of each domain."""
  if not config.num_texts:
    return []
  examples = examples_lib.read_split(config.data_dir, 'train')
  rng = np.random.default_rng(config.seed)
  chosen = []
  for domain, num in config.num_texts.items():
    own = examples_lib.select_domain(examples, domain)
    chosen += [own[i] for i in rng.permutation(len(own))[:num]]
  return chosen


def frequent(rows, vocab_size, num):
  """The tokens that are to be predicted most often, in the order of ids."""
  weights = rows.weights[:, :-1].ravel()
  counts = np.bincount(
    rows.tokens[:, 1:].ravel(), weights, minlength=vocab_size
  )
  return np.sort(np.argsort(-counts, kind='stable')[:num])
