"""A task whose references are the target's own texts at temperature 0.

It needs no data other than a family's prompts. Its scores measure how much of
the target's text a lossy method keeps, not how good that text is.
"""

from collections.abc import Sequence
import itertools
from typing import Any

import datasets
import ml_collections

from experiments.common import methods
from experiments.common import prompts

_NUM_TOKENS = 32
_MAX_LENGTH = 512


def build(
  family: str = 'mini',
  chat: bool | None = False,
  dtype: str = '',
  system: str = '',
  **options: Any,
) -> dict[str, datasets.Dataset]:
  """Returns a family's prompts, with the target's texts as responses.

  Args:
    family: as in `families.load`.
    chat: as in `prompts.load_family`.
    dtype: as in `prompts.load_family`.
    system: as in `prompts.load_family`.
    **options: further arguments of the harness's model, which are not used.
  """
  del options
  config = ml_collections.ConfigDict(
    {
      'family': family,
      'chat': chat,
      'dtype': dtype,
      'system': system,
      'sampling': {'temperature': 0.0},
    }
  )
  loaded = prompts.load_family(config)
  plain = methods.parse(config, 'none', (), 'reference')
  decoder = methods.build(plain, loaded, _MAX_LENGTH).decoder
  texts = [example.prompt for example in loaded.prompts]
  encoded = list(map(loaded.tokenizer.encode_prompt, texts))
  results = decoder.decode_many(encoded, _NUM_TOKENS, batch_size=32)
  responses = [loaded.tokenizer.decode(result.tokens) for result in results]
  columns = {'prompt': texts, 'response': responses}
  return {'test': datasets.Dataset.from_dict(columns)}


def score(doc: dict[str, str], results: Sequence[str]) -> dict[str, float]:
  """Returns whether a text equals its reference, and how long it does.

  `common_prefix` is the share of the reference's words before the first one
  that differs, where the end of a text counts as a word.

  Args:
    doc: a row of `build`.
    results: the text of a method.
  """
  (text,) = results
  words, expected = ([*t.split(), None] for t in (text, doc['response']))
  equal = itertools.takewhile(
    lambda pair: pair[0] == pair[1], zip(words, expected)
  )
  return {
    'common_prefix': len(list(equal)) / len(expected),
    'exact_match': float(text == doc['response']),
  }
