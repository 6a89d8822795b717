"""The text of tokens as they come."""

from collections.abc import Callable
from collections.abc import Iterable

_INCOMPLETE = '\N{REPLACEMENT CHARACTER}'  # stands for bytes of no character


class TextStream:
  """Gives the text of each token in a time that no earlier token adds to."""

  def __init__(self, decode: Callable[[Iterable[int]], str]):
    """Begins a text.

    Args:
      decode: such as `Tokenizer.decode`.
    """
    self._decode = decode
    # Decoded again with every new token: what ended last, since a decoder may
    # treat the first token of a text differently, and what has not ended yet.
    self._tokens: list[int] = []
    self._num_ended = 0
    self._shown = ''  # of the text of these tokens

  def add(self, token: int) -> str:
    """Returns what a token adds to the text.

    A character whose bytes are spread over tokens comes with the last of them.
    """
    self._tokens.append(int(token))
    text = self._decode(self._tokens)
    whole = text.rstrip(_INCOMPLETE)
    piece = whole[len(self._shown) :]
    self._shown += piece
    if piece and whole == text:
      self._tokens = self._tokens[self._num_ended :]
      self._num_ended = len(self._tokens)
      self._shown = self._decode(self._tokens)
    return piece

  def flush(self) -> str:
    """Returns what stands for a character that did not end."""
    return self._decode(self._tokens)[len(self._shown) :]
