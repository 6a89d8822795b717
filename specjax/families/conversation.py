"""Conversations: multi-turn chat that reads each turn once."""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from specjax import decoding
from specjax.data import chat
from specjax.data import text_stream
from specjax.data import tokenizer as tokenizer_lib


class AnswerChunk(NamedTuple):
  """The part of an answer that one round emits.

  Attributes:
    pieces: pairs of a text and the origin of its token (see `decoding.Piece`).
    num_tokens: number of emitted tokens. It is 0 for the last chunk, which
      completes a text that ends within a character.
  """

  pieces: list[tuple[str, str]]
  num_tokens: int


class Conversation:
  """A conversation with a target model, which keeps the KV caches of all turns.

  Attributes:
    messages: the turns so far, of the user and of the assistant.
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
      tokenizer: the target's tokenizer, with a chat template, which may
        contain a system prompt.
      decoder: a decoder for the target, which stops at the tokenizer's stop
        tokens.
      seed: seed of everything random.

    Raises:
      ValueError: the tokenizer has no chat template.
    """
    if tokenizer.template is None:
      raise ValueError(
        'tokenizer must have a chat template, as that of smollm2 has, got one '
        'without.'
      )
    self._tokenizer, self._decoder, self._seed = tokenizer, decoder, seed
    self.messages: list[chat.Message] = []
    self._state: decoding.DecodeState | None = None
    # The text and the tokens that the state has read or emitted.
    self._text = ''
    self._tokens: list[int] = []

  def say(self, text: str, max_new_tokens: int) -> Iterator[AnswerChunk]:
    """Adds a turn of the user and yields the answer, round by round.

    If the iterator is closed early, the answer ends with the last chunk.

    Args:
      text: the user's message.
      max_new_tokens: maximum number of tokens in the answer.

    Raises:
      FloatingPointError: target, drafter or goal gave NaN or infinity.
      ValueError: the text is empty, or the conversation has become too long
        for the decoder (the conversation is then unchanged), or a tree, an arm
        index or a reward was out of range (the answer then ends there).
    """
    if not text:
      raise ValueError('text must not be empty.')
    turn = {'role': 'user', 'content': text}
    prompt = self._tokenizer.render([*self.messages, turn])
    try:
      self._state = start = self._begin(prompt, max_new_tokens)
    except ValueError:  # Nothing was computed.
      raise
    except BaseException:
      # Interrupted work may have consumed the buffers of the state.
      self._state = None
      raise
    self.messages.append(turn)
    answer = _Answer(self._tokenizer)
    try:
      rounds = decoding.stream(
        self._decoder.round_fn, self._decoder.params, start
      )
      for self._state, info in rounds:
        decoding.check_flags(self._state)
        pieces = decoding.pieces(info)
        self._tokens += [piece.token for piece in pieces]
        yield answer.add(pieces)
      yield answer.end()
    except GeneratorExit:  # The answer ends early.
      raise
    except BaseException:
      self._state = None
      raise
    finally:
      message = {'role': 'assistant', 'content': answer.text}
      self.messages.append(message)
      self._text = prompt + answer.text + answer.ended_by
      if answer.end().pieces:
        # The answer ended within a character, whose first tokens the state has
        # read.
        self._state = None

  def _begin(self, prompt: str, max_new_tokens: int) -> decoding.DecodeState:
    """Returns a state that has read the prompt.

    The current state is extended if it has read the beginning of the prompt.
    """
    tokens, state = self._tokenizer.encode(prompt), self._state
    num_cached = self._num_cached(prompt, tokens)
    if state is None or not num_cached:
      state = self._decoder.init([tokens], max_new_tokens, seed=self._seed)
      self._tokens = tokens
    else:
      new = tokens[num_cached:]
      state = self._decoder.append(state, [new], max_new_tokens)
      self._tokens += new
    return state

  def _num_cached(self, prompt: str, tokens: list[int]) -> int:
    """Returns how many tokens of a prompt the state has read.

    It is 0 if the state has read another text.
    """
    cached = self._tokens
    if tokens[: len(cached)] != cached and prompt.startswith(self._text):
      # An answer may consist of other tokens than the encoding of its text. The
      # texts are equal, so that only the tokens after them have to be read.
      cached = self._tokenizer.encode(self._text)
    is_prefix = len(cached) < len(tokens) and tokens[: len(cached)] == cached
    return len(cached) if is_prefix else 0


class _Answer:
  """The text of an answer so far.

  Attributes:
    text: the text, without the stop token.
    ended_by: spelling of the stop token, or '' if there has been none.
  """

  def __init__(self, tokenizer: tokenizer_lib.Tokenizer):
    self._tokenizer = tokenizer
    self._stream = text_stream.TextStream(tokenizer.decode)
    self.text, self.ended_by = '', ''

  def add(self, pieces: Sequence[decoding.Piece]) -> AnswerChunk:
    """Adds the tokens of a round and returns their text."""
    texts = []
    for piece in pieces:
      if piece.token in self._tokenizer.stop_tokens:
        self.ended_by = self._tokenizer.spelling(piece.token)
        break
      texts.append((self._stream.add(piece.token), piece.origin))
    self.text += ''.join(text for text, _ in texts)
    return AnswerChunk(texts, len(pieces))

  def end(self) -> AnswerChunk:
    """Ends the answer and returns the text of an incomplete character."""
    text = self._stream.flush()
    self.text += text
    return AnswerChunk([(text, 'sampled')] if text else [], 0)
