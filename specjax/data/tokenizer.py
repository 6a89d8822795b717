"""Byte-level BPE with the `tokenizers` library."""

from collections.abc import Iterable
import os

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import trainers

PAD, BEGIN, RESPONSE, END = '<|pad|>', '<|begin|>', '<|response|>', '<|end|>'
_SPECIAL = (PAD, BEGIN, RESPONSE, END)


class Tokenizer:
  """Text to token ids and back.

  A sequence is `<|begin|> prompt <|response|> response <|end|>`. The markers
  are never made from text, even if it spells them.

  Attributes:
    vocab_size: `V`.
    response_id: id of the token that ends a prompt.
    end_id: id of the token that ends a response.
  """

  def __init__(self, core: tokenizers.Tokenizer):
    """Wraps a tokenizer that has the four markers."""
    missing = _missing(core)
    if missing:
      raise ValueError(f'The tokenizer lacks {", ".join(missing)}.')
    core.encode_special_tokens = True
    self._core = core
    self._begin = core.token_to_id(BEGIN)
    self.response_id = core.token_to_id(RESPONSE)
    self.end_id = core.token_to_id(END)
    self.vocab_size = core.get_vocab_size()

  def encode_prompt(self, prompt: str) -> list[int]:
    """Returns the tokens after which a response begins.

    Raises:
      ValueError: the prompt is empty.
    """
    if not prompt:
      raise ValueError('prompt must not be empty.')
    return [self._begin, *self._encode(prompt), self.response_id]

  def encode_response(self, response: str) -> list[int]:
    """Returns the tokens of a response, `<|end|>` included."""
    return [*self._encode(response), self.end_id]

  def encode_example(self, prompt: str, response: str) -> tuple[list[int], int]:
    """Returns the tokens of both, and the index where the response starts."""
    start = self.encode_prompt(prompt)
    return start + self.encode_response(response), len(start)

  def decode(self, tokens: Iterable[int]) -> str:
    """Returns the text of tokens, without markers."""
    return self._core.decode([int(token) for token in tokens])

  def pieces(self, tokens: Iterable[int]) -> list[str]:
    """Returns one string a token that join to `decode(tokens)`.

    A character whose bytes are spread over tokens goes to the last of them.
    """
    pieces, done, tokens = [], '', list(tokens)
    for end in range(1, len(tokens) + 1):
      text = self.decode(tokens[:end])
      text = (
        text.rstrip('\N{REPLACEMENT CHARACTER}') if end < len(tokens) else text
      )
      pieces.append(text[len(done) :])
      done = text if len(text) > len(done) else done
    return pieces

  def save(self, path: str | os.PathLike[str]) -> None:
    """Writes the tokenizer as JSON."""
    self._core.save(str(path))

  def _encode(self, text):
    return self._core.encode(text, add_special_tokens=False).ids


def load(path: str | os.PathLike[str]) -> Tokenizer:
  """Reads what `Tokenizer.save` wrote.

  Raises:
    ValueError: there is no such file, it is no tokenizer, or one without the
      four markers, as HuggingFace's are.
  """
  if not os.path.isfile(path):
    raise ValueError(f'There is no tokenizer at {path}.')
  try:
    core = tokenizers.Tokenizer.from_file(str(path))
  except Exception as error:  # The library raises bare Exceptions.
    raise ValueError(f'Cannot read the tokenizer at {path}: {error}') from error
  missing = _missing(core)
  if missing:
    raise ValueError(
      f'The tokenizer at {path} is not one of specjax: it lacks the markers '
      f'{", ".join(missing)}, between which a prompt and its response stand. A '
      'tokenizer.json of HuggingFace has others.'
    )
  return Tokenizer(core)


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
  """Learns byte-level BPE merges; digits always stand alone.

  Args:
    texts: the corpus.
    vocab_size: `V`, at least 260: the bytes and four markers.

  Returns:
    The tokenizer.
  """
  if vocab_size < 256 + len(_SPECIAL):
    raise ValueError(
      f'vocab_size must be >= {256 + len(_SPECIAL)}, got {vocab_size}.'
    )
  core = tokenizers.Tokenizer(models.BPE())
  core.pre_tokenizer = pre_tokenizers.Sequence(
    [
      pre_tokenizers.Digits(individual_digits=True),
      pre_tokenizers.ByteLevel(add_prefix_space=False),
    ]
  )
  core.decoder = decoders.ByteLevel()
  core.train_from_iterator(
    texts,
    trainers.BpeTrainer(
      vocab_size=vocab_size,
      special_tokens=list(_SPECIAL),
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      show_progress=False,
    ),
  )
  return Tokenizer(core)


def _missing(core):
  """The markers that a tokenizer does not have."""
  return [name for name in _SPECIAL if core.token_to_id(name) is None]
