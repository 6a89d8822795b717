"""Incremental decoding of tokens to text."""

from collections.abc import Callable
from collections.abc import Iterable

# Decoders emit it for bytes that do not form a character.
_INCOMPLETE = '\N{REPLACEMENT CHARACTER}'


class TextStream:
  """Decodes tokens one by one, in constant time per token."""

  def __init__(self, decode: Callable[[Iterable[int]], str]):
    """Begins a text.

    Args:
      decode: converts tokens to text, such as `Tokenizer.decode`.
    """
    self._decode = decode
    # Tokens that are decoded again with each new one: the last complete piece,
    # since decoders may treat the first token of a text differently, and tokens
    # of an incomplete character.
    self._tokens: list[int] = []
    self._num_complete = 0
    # The part of their text that has been returned.
    self._shown = ''

  def add(self, token: int) -> str:
    """Returns the text that a token adds.

    A character whose bytes are spread over several tokens is added by the last.
    """
    self._tokens.append(int(token))
    text = self._decode(self._tokens)
    complete = text.rstrip(_INCOMPLETE)
    piece = complete[len(self._shown) :]
    self._shown += piece
    if piece and complete == text:
      self._tokens = self._tokens[self._num_complete :]
      self._num_complete = len(self._tokens)
      self._shown = self._decode(self._tokens)
    return piece

  def flush(self) -> str:
    """Returns the text of an incomplete character at the end."""
    return self._decode(self._tokens)[len(self._shown) :]
