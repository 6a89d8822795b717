"""Texts that a teacher has read, for whoever learns from it."""

import os

import numpy as np

from specjax import families
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.training import teacher


def teach(config, family: families.Family, workdir, taps=()):
  """Lets the target read `config.num_texts` of each domain, and responses.

  The responses are those of `config.domain`, or of 'all'.
  """
  return teacher.teach(
    family.target.functions,
    family.target.params,
    _rows(config, family.tokenizer),
    os.path.join(workdir, 'teacher'),
    taps=taps,
  )


def _rows(config, tokenizer):
  """Packs the text that is learnt."""
  examples = _chosen(config)
  responses = [e for path in config.responses for e in examples_lib.read(path)]
  if responses:
    examples += examples_lib.of_domain(responses, config.domain)
  sequences = [tokenizer.encode_example(e.prompt, e.response) for e in examples]
  rows = packing.pack(
    sequences, config.row_length, config.seed, before=config.prompt_weight
  )
  print(f'{len(examples)} examples in {len(rows.tokens)} rows.')
  return rows


def _chosen(config):
  """Some of the training text, `config.num_texts` of each domain."""
  if not config.num_texts:
    return []
  examples = examples_lib.read_split(config.data_dir, 'train')
  rng = np.random.default_rng(config.seed)
  chosen = []
  for domain, num in config.num_texts.items():
    own = examples_lib.of_domain(examples, domain)
    chosen += [own[i] for i in rng.permutation(len(own))[:num]]
  return chosen


def frequent(rows, vocab_size, num):
  """The tokens that are to be predicted most often, in the order of ids."""
  weights = rows.weights[:, :-1].ravel()
  counts = np.bincount(
    rows.tokens[:, 1:].ravel(), weights, minlength=vocab_size
  )
  return np.sort(np.argsort(-counts, kind='stable')[:num])
