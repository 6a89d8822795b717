"""A conversation turn by turn, whose past is read once."""

from collections.abc import Iterator
from typing import NamedTuple

from specjax import decoding
from specjax.data import chat
from specjax.data import text_stream
from specjax.data import tokenizer as tokenizer_lib


class Said(NamedTuple):
  """What a round of an answer said."""

  pieces: list[tuple[str, str]]  # texts, and origins as of `decoding.Piece`
  num_tokens: int  # 0 of the last, which ends a text that stopped in between


class Conversation:
  """A conversation with a target, whose caches are kept from turn to turn.

  Attributes:
    messages: the turns until now.
  """

  def __init__(
    self,
    tokenizer: tokenizer_lib.Tokenizer,
    decoder: decoding.Decoder,
    *,
    seed: int = 0,
  ):
    """Begins a conversation.

    Args:
      tokenizer: with a chat template; it may bring a system prompt.
      decoder: of the target; it stops at the tokenizer's stop tokens.
      seed: of everything random.

    Raises:
      ValueError: the tokenizer has no chat template.
    """
    if tokenizer.template is None:
      raise ValueError('A conversation needs a tokenizer with a chat template.')
    self._tokenizer, self._decoder, self._seed = tokenizer, decoder, seed
    self.messages: list[chat.Message] = []
    self._state: decoding.DecodeState | None = None
    # What the state stands for, answers included, as text and as tokens.
    self._read = ''
    self._tokens: list[int] = []

  def say(self, text: str, max_new_tokens: int) -> Iterator[Said]:
    """Answers a turn of the user, round by round.

    An answer that nobody asks to the end for ends where it was left.

    Args:
      text: of the user.
      max_new_tokens: of the answer at most.

    Raises:
      ValueError: the text is empty, or the conversation has become too long
        for the decoder; it then stands where it stood before.
    """
    if not text:
      raise ValueError('text must not be empty.')
    turn = {'role': 'user', 'content': text}
    prompt = self._tokenizer.render([*self.messages, turn])
    self._state = start = self._begin(prompt, max_new_tokens)
    self.messages.append(turn)
    answer = _Answer(self._tokenizer)
    try:
      rounds = decoding.stream(
        self._decoder.round_fn, self._decoder.params, start
      )
      for self._state, info in rounds:
        pieces = decoding.pieces(info)
        self._tokens += [piece.token for piece in pieces]
        yield answer.add(pieces)
      yield answer.end()
    except KeyboardInterrupt:
      self._state = None  # A round may have taken it without giving one back.
      raise
    finally:
      said = {'role': 'assistant', 'content': answer.text}
      self.messages.append(said)
      self._read = prompt + answer.text + answer.ended_by

  def _begin(self, prompt, max_new_tokens):
    """A state that has read the prompt, of which it may know the beginning."""
    tokens, state = self._tokenizer.encode(prompt), self._state
    num_known = self._num_known(prompt, tokens)
    if state is None or not num_known:
      state = self._decoder.init([tokens], max_new_tokens, seed=self._seed)
      self._tokens = tokens
    else:
      new = tokens[num_known:]
      state = self._decoder.append(state, [new], max_new_tokens)
      self._tokens += new
    return state

  def _num_known(self, prompt, tokens):
    """How many tokens of a prompt the state stands for; 0 if it is another."""
    known = self._tokens
    if tokens[: len(known)] != known and prompt.startswith(self._read):
      # An answer may have other tokens than its text, but the rest is the same.
      known = self._tokenizer.encode(self._read)
    same = len(known) < len(tokens) and tokens[: len(known)] == known
    return len(known) if same else 0


class _Answer:
  """The text of an answer, and the token that ended it."""

  def __init__(self, tokenizer):
    self._tokenizer = tokenizer
    self._stream = text_stream.TextStream(tokenizer.decode)
    self.text, self.ended_by = '', ''

  def add(self, pieces):
    """What the pieces of a round say."""
    texts = []
    for piece in pieces:
      if piece.token in self._tokenizer.stop_tokens:
        self.ended_by = self._tokenizer.spelling(piece.token)
        break
      texts.append((self._stream.add(piece.token), piece.origin))
    self.text += ''.join(text for text, _ in texts)
    return Said(texts, len(pieces))

  def end(self):
    """What is left of a character that did not end."""
    rest = self._stream.rest()
    self.text += rest
    return Said([(rest, 'sampled')] if rest else [], 0)
