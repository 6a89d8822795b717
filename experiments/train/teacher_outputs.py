"""Packs training text, and computes the teacher's outputs for it."""

from collections.abc import Sequence
import os
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.common import limits
from specjax import families
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.data import token_ids
from specjax.data import tokenizer as tokenizer_lib
from specjax.training import teacher


def compute(config, family: families.Family, workdir, taps=(), unused=None):
  """Computes the target's outputs for the training text.

  The text consists of `config.num_texts` examples per domain, and of responses
  from `config.domain`, which may be 'all'.

  Args:
    config: the config.
    family: the target and its tokenizer.
    workdir: the folder of the run.
    taps: layers whose hidden states are kept.
    unused: by their fields of the config, tokens that must not be in the text.

  Raises:
    limits.OutOfTime: the outputs are not complete by the deadline.
    ValueError: the text contains an unused token, or is longer than the target
      reads.
  """
  rows = _rows(config, family.tokenizer)
  longest, most = rows.positions.max() + 1, family.target.config.max_length
  if longest > most:
    raise ValueError(
      f'row_length must be at most {most}, the length of texts for which the '
      f'target was trained, got {config.row_length}.'
    )
  for field, token in (unused or {}).items():
    if (rows.tokens[rows.segments >= 0] == token).any():
      raise ValueError(
        f'{field} must not occur in the training text, got {token}.'
      )
  outputs = teacher.teach(
    family.target.model,
    family.target.params,
    rows,
    os.path.join(workdir, 'teacher'),
    taps=taps,
    batch_size=config.teacher_batch_size,
    seconds=limits.remaining_seconds(),
  )
  if outputs is None:
    raise limits.OutOfTime
  return outputs


def _rows(config: Any, tokenizer: tokenizer_lib.Tokenizer) -> Any:
  """Packs the training text."""
  examples = _chosen(config)
  if responses := read(config.responses):
    examples += examples_lib.select_domain(responses, config.domain)
  sequences = encode(examples, tokenizer)
  if config.max_tokens:
    sequences = _subset(
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
  """An example as sampled token ids."""

  domain: str
  prompt: Sequence[int]
  response: Sequence[int]


def read(paths):
  """Returns the examples in files of `data.examples` and `data.token_ids`."""
  examples = []
  for path in paths:
    if path.endswith('.npz'):
      prompts, responses = token_ids.read(path)
      examples += [
        Sampled(*prompts[response.prompt], response.tokens)
        for response in responses
      ]
    else:
      examples += examples_lib.read(path)
  return examples


def encode(examples, tokenizer):
  """Returns the tokens of each example, and the start of its response."""
  return [
    ([*example.prompt, *example.response], len(example.prompt))
    if isinstance(example, Sampled)
    else tokenizer.encode_example(example.prompt, example.response)
    for example in examples
  ]


def _subset(
  sequences: list[tuple[list[int], int]],
  max_tokens: int,
  row_length: int,
  seed: int,
) -> list[tuple[list[int], int]]:
  """Returns random sequences with at most `max_tokens` tokens together."""
  order = np.random.default_rng(seed).permutation(len(sequences))
  sizes = [min(len(sequences[i][0]), row_length) for i in order]
  num = int(np.searchsorted(np.cumsum(sizes), max_tokens, side='right'))
  return [sequences[i] for i in order[: max(num, 1)]]


def _chosen(config: Any) -> list[Any]:
  """Returns `config.num_texts` random examples per domain."""
  if not config.num_texts:
    return []
  examples = examples_lib.read_split(config.data_dir, 'train')
  rng = np.random.default_rng(config.seed)
  chosen: list[Any] = []
  for domain, num in config.num_texts.items():
    in_domain = examples_lib.select_domain(examples, domain)
    chosen += [in_domain[i] for i in rng.permutation(len(in_domain))[:num]]
  return chosen


def frequent(rows, vocab_size, num):
  """Returns the most frequent tokens to be predicted, ordered by id."""
  weights = rows.weights[:, :-1].ravel()
  counts = np.bincount(
    rows.tokens[:, 1:].ravel(), weights, minlength=vocab_size
  )
  return np.sort(np.argsort(-counts, kind='stable')[:num])
