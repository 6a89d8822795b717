"""Tokenizers, which encode text as tokens and decode it."""

from collections.abc import Iterable
from collections.abc import Sequence
import json
import os
from typing import Any

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import trainers

from specjax.data import chat as chat_lib
from specjax.data import prompt_format as prompt_format_lib
from specjax.data import text_stream
from specjax.data import token_texts as token_texts_lib
from specjax.data import tokenizer_config

# Number of differences of two vocabularies that an error lists.
_NUM_LISTED = 3


class Tokenizer:
  """Encodes text as token ids, and decodes it.

  With a chat template, a prompt is a turn of the user or a conversation.
  Without one, it is text between the tokens of its format.

  Attributes:
    vocab_size: number of tokens; models may have a larger, padded vocabulary.
    end_id: id of the token that ends a response.
    stop_tokens: ids of all tokens at which decoding stops, `end_id` first.
    response_id: id of the token that ends a prompt, with which the decoder of
      an encoder-decoder starts; None if there is none.
    template: the chat template, or None.
  """

  def __init__(
    self,
    core: tokenizers.Tokenizer,
    prompt_format: prompt_format_lib.PromptFormat,
    system: str = '',
  ):
    """Wraps a tokenizer of the library `tokenizers`.

    Args:
      core: the library's tokenizer.
      prompt_format: the tokens around prompts and responses.
      system: the system prompt of conversations that begin without one. If it
        is empty, the template decides.

    Raises:
      ValueError: there is a system prompt, but no chat template.
    """
    self._core = core
    self._format = prompt_format
    self._system = system
    self.template = prompt_format.template
    if system and self.template is None:
      raise ValueError(
        f'system needs a chat template, got {system!r} without one.'
      )
    self.vocab_size = max(core.get_vocab().values(), default=-1) + 1
    after = prompt_format.after
    self.response_id = after[-1] if after else None
    stops, end = prompt_format.stop_tokens, None
    if self.template is not None:
      end = prompt_format_lib.end_of_turn(core, self.template)
      stops = stops if end is None else (end, *stops)
    self._template_writes_end = end is not None
    self.stop_tokens = tuple(dict.fromkeys(stops))
    self.end_id = self.stop_tokens[0]

  def with_prompts(
    self, chat: bool | None = None, system: str = ''
  ) -> 'Tokenizer':
    """Returns a tokenizer with the same tokens and another format of prompts.

    Args:
      chat: whether prompts are rendered by the chat template; None if there is
        one.
      system: the system prompt, see `__init__`.

    Raises:
      ValueError: `chat` or `system` is given, but there is no template.
    """
    if chat and self.template is None:
      raise ValueError('chat needs a tokenizer with a chat template.')
    prompt_format = self._format
    if chat is False:
      prompt_format = prompt_format._replace(template=None)
    return Tokenizer(self._core, prompt_format, system)

  def encode(self, text: str) -> list[int]:
    """Returns the tokens of a text, without any before or after it."""
    return self._core.encode(text, add_special_tokens=False).ids

  def encode_after(self, before: str, text: str) -> list[int]:
    """Returns the tokens of a text that continues another text.

    Many tokenizers add a space before a text, or drop the spaces after some
    special tokens. The tokens of a concatenated text therefore differ from
    those of its parts.

    Args:
      before: the text before.
      text: the continuation. If a token of the concatenated text would span
        both, they are encoded separately.
    """
    end_token = self.spelling(self.end_id)
    for context in (before, end_token, ''):
      tokens = self.encode(context)
      whole = self.encode(context + text)
      if whole[: len(tokens)] == tokens:
        break
    return whole[len(tokens) :]

  def encode_prompt(self, prompt: str) -> list[int]:
    """Returns the tokens of a prompt, after which a response begins.

    Raises:
      ValueError: the prompt is empty, or the chat template refuses it.
    """
    if not prompt:
      raise ValueError('prompt must not be empty.')
    if self.template is not None:
      return self.encode_chat([{'role': 'user', 'content': prompt}])
    return [*self._format.before, *self.encode(prompt), *self._format.after]

  def encode_chat(self, messages: Sequence[chat_lib.Message]) -> list[int]:
    """Returns the tokens of a conversation, after which an answer begins.

    A special token that is written in a message becomes this token, as in
    transformers.

    Args:
      messages: See `render`.

    Raises:
      ValueError: See `render`.
    """
    return self.encode(self.render(messages))

  def render(self, messages: Sequence[chat_lib.Message]) -> str:
    """Returns the text of a conversation, after which an answer begins.

    Args:
      messages: turns, as in `chat.Template.render`; the last is the user's.

    Raises:
      ValueError: there is no turn or no chat template, or it refuses the turns.
    """
    if self.template is None:
      raise ValueError('messages need a tokenizer with a chat template.')
    return self.template.render(messages, system=self._system)

  def encode_response(self, response: str) -> list[int]:
    """Returns the tokens of a response without a prompt, up to `end_id`.

    See `encode_example` for a response to a prompt.
    """
    return [*self.encode(response), self.end_id]

  def encode_example(self, prompt: str, response: str) -> tuple[list[int], int]:
    """Returns the tokens of a prompt and a response, and the response's start.

    With a chat template, they are those of the rendered conversation, up to
    `end_id` after the response. If the template refuses responses, or changes
    the prompt when a response follows, the response is appended to the rendered
    prompt.

    Raises:
      ValueError: See `encode_prompt`.
    """
    start = self.encode_prompt(prompt)
    return start + self._continuation(prompt, response), len(start)

  def _continuation(self, prompt: str, response: str) -> list[int]:
    """Returns the tokens of a response, after those of its prompt."""
    if self.template is None:
      if self._format.after:
        return self.encode_response(response)
      return [*self.encode_after(prompt, response), self.end_id]
    turns = [{'role': 'user', 'content': prompt}]
    before = self.render(turns)
    turns.append({'role': 'assistant', 'content': response})
    try:
      whole = self.template.render(turns, False, self._system)
    except ValueError:  # The template refuses turns of an assistant.
      whole = ''
    if not whole.startswith(before):
      return [*self.encode_after(before, response), self.end_id]
    tokens = self.encode_after(before, whole[len(before) :])
    if not self._template_writes_end or self.end_id not in tokens:
      return [*tokens, self.end_id]
    return tokens[: len(tokens) - tokens[::-1].index(self.end_id)]

  def decode(self, tokens: Iterable[int]) -> str:
    """Returns the text of tokens, without special tokens."""
    return self._core.decode([int(token) for token in tokens])

  def spelling(self, token: int) -> str:
    """Returns the entry of the vocabulary for a token.

    Raises:
      ValueError: there is no such token.
    """
    entry = self._core.id_to_token(int(token))
    if entry is None:
      raise ValueError(f'token must be in the vocabulary, got {token}.')
    return entry

  def token_texts(self) -> dict[int, bytes | str]:
    """Returns the bytes of each token, and the names of special tokens.

    Unlike `spelling`, they are comparable between tokenizers: the token that
    ends a response comes first and is called '<|end|>', whatever its name is.
    """
    end_text = {self.end_id: prompt_format_lib.END}
    return end_text | token_texts_lib.read(self._core) | end_text

  def pieces(self, tokens: Iterable[int]) -> list[str]:
    """Returns one string per token; joined, they are `decode(tokens)`.

    A character whose bytes are spread over several tokens goes to the last.
    """
    stream = text_stream.TextStream(self.decode)
    pieces = [stream.add(token) for token in tokens]
    if pieces:
      pieces[-1] += stream.flush()
    return pieces

  def save(self, folder: str | os.PathLike[str]) -> None:
    """Writes `tokenizer.json` and the other files that `load` reads."""
    self._core.save(os.path.join(folder, 'tokenizer.json'))
    if not prompt_format_lib.has_markers(self._core):
      prompt_format_lib.write(self._core, self._format, folder)

  def differences(self, other: 'Tokenizer') -> list[str]:
    """Describes how the tokens of a text differ from another tokenizer's.

    Formats of prompts may differ. The list is empty if the tokens are the same.
    """
    return _differences(self._core, other._core)

  def check_same(self, other: 'Tokenizer', names: str) -> None:
    """Raises unless another tokenizer encodes text with the same tokens.

    Args:
      other: the other tokenizer.
      names: names of the owners of both tokenizers, for the error.

    Raises:
      ValueError: they differ; the error lists the differences.
    """
    differences = self.differences(other)
    if differences:
      raise ValueError(
        f'{names} must share a tokenizer, but theirs differ: '
        f'{"; ".join(differences)}.'
      )


def load(path: str | os.PathLike[str]) -> Tokenizer:
  """Loads a tokenizer of specjax or of HuggingFace.

  Args:
    path: a `tokenizer.json`, or its folder. Unless the tokenizer has the
      markers of specjax, other files in the folder are also read: see
      `tokenizer_config.read` and `prompt_format.read`.

  Raises:
    ValueError: there is no such file, it or another one in its folder cannot be
      read, or there is no stop token.
  """
  path = os.path.expanduser(path)
  if os.path.isdir(path):
    path = os.path.join(path, 'tokenizer.json')
  if not os.path.isfile(path):
    raise ValueError(f'There is no tokenizer at {path}.')
  try:
    core = tokenizers.Tokenizer.from_file(path)
  except Exception as error:  # The library raises bare Exceptions.
    raise ValueError(f'Cannot read the tokenizer at {path}: {error}') from error
  core.no_truncation()
  core.no_padding()
  if prompt_format_lib.has_markers(core):
    return _with_markers(core)
  folder = os.path.dirname(path)
  fields = tokenizer_config.read(folder)
  tokenizer_config.apply(core, fields)
  return Tokenizer(core, prompt_format_lib.read(core, fields, folder))


def train(texts: Iterable[str], vocab_size: int) -> Tokenizer:
  """Trains a byte-level BPE tokenizer, in which digits are separate tokens.

  A sequence is `<|begin|> prompt <|response|> response <|end|>`. Text never
  becomes a marker, even if it contains its name.

  Args:
    texts: the corpus.
    vocab_size: `V`, at least 260: the bytes and four markers.

  Raises:
    ValueError: `vocab_size` is too small.
  """
  markers = prompt_format_lib.MARKERS
  if vocab_size < 256 + len(markers):
    raise ValueError(
      f'vocab_size must be >= {256 + len(markers)}, got {vocab_size}.'
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
      special_tokens=list(markers),
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      show_progress=False,
    ),
  )
  return _with_markers(core)


def _with_markers(core: tokenizers.Tokenizer) -> Tokenizer:
  """Returns a tokenizer that never encodes text as markers."""
  core.encode_special_tokens = True
  return Tokenizer(core, prompt_format_lib.marker_format(core))


def _differences(
  first: tokenizers.Tokenizer, second: tokenizers.Tokenizer
) -> list[str]:
  """Describes how the tokens of two tokenizers differ."""
  if first.to_str() == second.to_str():
    return []
  texts, other_texts = _texts(first), _texts(second)
  differences = []
  if len(texts) != len(other_texts):
    differences.append(f'{len(texts)} tokens and {len(other_texts)}')
  pairs = {
    token: (texts.get(token), other_texts.get(token))
    for token in sorted(texts | other_texts)
  }
  different = [(t, *pair) for t, pair in pairs.items() if pair[0] != pair[1]]
  for token, text, other_text in different[:_NUM_LISTED]:
    differences.append(f'token {token} is {text!r} and {other_text!r}')
  if len(different) > _NUM_LISTED:
    differences.append(f'{len(different) - _NUM_LISTED} further tokens differ')
  rules, other_rules = _rules(first), _rules(second)
  return differences + [
    f'{name} differ' for name in rules if rules[name] != other_rules[name]
  ]


def _texts(core: tokenizers.Tokenizer) -> dict[int, str]:
  """Returns the text of each token."""
  return {token: text for text, token in core.get_vocab().items()}


def _rules(core: tokenizers.Tokenizer) -> dict[str, Any]:
  """Returns the rules, apart from the vocabulary, that encode a text."""
  fields = json.loads(core.to_str())
  special = (e['content'] for e in fields['added_tokens'] if e['special'])
  return {
    'merges': fields['model'].get('merges'),
    'special tokens': sorted(special),
  }
