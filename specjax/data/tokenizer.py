"""Text to tokens and back with the `tokenizers` library."""

from collections.abc import Iterable
from collections.abc import Sequence
import json
import os

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import trainers

from specjax.data import chat as chat_lib
from specjax.data import prompt_format as prompt_format_lib
from specjax.data import text_stream
from specjax.data import tokenizer_config

_NAMED = 3  # differences of two vocabularies that an error lists


class Tokenizer:
  """Text to token ids and back.

  With a chat template, a prompt is the turn of a user, or a conversation.
  Without, it is text between the tokens of its format.

  Attributes:
    vocab_size: the number of tokens; models may have rows beyond it.
    end_id: id of the token that ends a response.
    stop_tokens: ids of all tokens at which decoding stops, `end_id` first.
    response_id: id of the token that ends a prompt, from which the decoder of
      an encoder-decoder starts; None where there is none.
    template: the chat template, or None.
  """

  def __init__(
    self,
    core: tokenizers.Tokenizer,
    prompt_format: prompt_format_lib.PromptFormat,
    system: str = '',
  ):
    """Wraps a tokenizer of the library.

    Args:
      core: makes tokens of text.
      prompt_format: what stands around prompts and responses.
      system: the system prompt of conversations that begin without one; if
        empty, they have what the template writes.

    Raises:
      ValueError: there is a system prompt, but no chat template.
    """
    self._core = core
    self._format = prompt_format
    self._system = system
    self.template = prompt_format.template
    if system and self.template is None:
      raise ValueError(f'system needs a chat template, got {system!r} alone.')
    self.vocab_size = max(core.get_vocab().values(), default=-1) + 1
    after = prompt_format.after
    self.response_id = after[-1] if after else None
    stops, end = prompt_format.stop_tokens, None
    if self.template is not None:
      end = prompt_format_lib.end_of_turn(core, self.template)
      stops = stops if end is None else (end, *stops)
    self._template_ends = end is not None  # whether it writes `end_id`
    self.stop_tokens = tuple(dict.fromkeys(stops))
    self.end_id = self.stop_tokens[0]

  def with_prompts(
    self, chat: bool | None = None, system: str = ''
  ) -> 'Tokenizer':
    """Returns a tokenizer of the same tokens whose prompts are different.

    Args:
      chat: whether prompts go through the chat template; None means that they
        do if there is one.
      system: as in the constructor.

    Raises:
      ValueError: there is no template, but chat or a system prompt is asked
        for.
    """
    if chat and self.template is None:
      raise ValueError('chat needs a tokenizer with a chat template.')
    own = self._format
    own = own._replace(template=None) if chat is False else own
    return Tokenizer(self._core, own, system)

  def encode(self, text: str) -> list[int]:
    """Returns the tokens of a text, with nothing before or behind it."""
    return self._core.encode(text, add_special_tokens=False).ids

  def encode_after(self, before: str, text: str) -> list[int]:
    """Returns the tokens that a text has after another one.

    Many tokenizers write a space in front of a text, or drop the spaces after
    some special tokens. So the tokens of a whole text are not those of its
    parts, each encoded on its own.

    Args:
      before: where the whole text begins.
      text: what follows. If a token of the whole would hold the end of `before`
        and the beginning of `text`, they are encoded as two tokens.
    """
    end_token = self.spelling(self.end_id)
    for context in (before, end_token, ''):
      tokens = self.encode(context)
      whole = self.encode(context + text)
      if whole[: len(tokens)] == tokens:
        break
    return whole[len(tokens) :]

  def encode_prompt(self, prompt: str) -> list[int]:
    """Returns the tokens after which a response begins.

    Raises:
      ValueError: the prompt is empty, or the chat template refuses it.
    """
    if not prompt:
      raise ValueError('prompt must not be empty.')
    if self.template is not None:
      return self.encode_chat([{'role': 'user', 'content': prompt}])
    return [*self._format.before, *self.encode(prompt), *self._format.after]

  def encode_chat(self, messages: Sequence[chat_lib.Message]) -> list[int]:
    """Returns the tokens of a conversation after which an answer begins.

    Special tokens that a message spells become these tokens, as they do in
    transformers. Arguments and errors as in `render`.
    """
    return self.encode(self.render(messages))

  def render(self, messages: Sequence[chat_lib.Message]) -> str:
    """Returns the text of a conversation, up to where an answer begins.

    Args:
      messages: turns, as in `chat.Template.render`; the user's is the last.

    Raises:
      ValueError: there is no turn or no chat template, or it refuses them.
    """
    if self.template is None:
      raise ValueError('messages need a tokenizer with a chat template.')
    return self.template.render(messages, system=self._system)

  def encode_response(self, response: str) -> list[int]:
    """Returns the tokens of a response that is a text of its own.

    `end_id` is the last. See `encode_example` for a response to a prompt.
    """
    return [*self.encode(response), self.end_id]

  def encode_example(self, prompt: str, response: str) -> tuple[list[int], int]:
    """Returns the tokens of both, and the index where the response starts.

    With a chat template, they are the conversation that the template writes, up
    to `end_id` after the response. If the template writes a prompt in another
    way where a response follows, or refuses responses, the response follows the
    prompt as it is.

    Raises:
      ValueError: as in `encode_prompt`.
    """
    start = self.encode_prompt(prompt)
    return start + self._continuation(prompt, response), len(start)

  def _continuation(self, prompt, response):
    """The tokens of a response after those of its prompt."""
    if self.template is None:
      if self._format.after:
        return self.encode_response(response)
      return [*self.encode_after(prompt, response), self.end_id]
    turns = [{'role': 'user', 'content': prompt}]
    before = self.render(turns)
    turns.append({'role': 'assistant', 'content': response})
    try:
      whole = self.template.render(turns, False, self._system)
    except ValueError:  # The template knows no assistant.
      whole = ''
    if not whole.startswith(before):
      return [*self.encode_after(before, response), self.end_id]
    tokens = self.encode_after(before, whole[len(before) :])
    if not self._template_ends or self.end_id not in tokens:
      return [*tokens, self.end_id]
    return tokens[: len(tokens) - tokens[::-1].index(self.end_id)]

  def decode(self, tokens: Iterable[int]) -> str:
    """Returns the text of tokens, without special ones."""
    return self._core.decode([int(token) for token in tokens])

  def spelling(self, token: int) -> str:
    """Returns how the vocabulary spells a token, such as a special one.

    Raises:
      ValueError: there is no such token.
    """
    spelt = self._core.id_to_token(int(token))
    if spelt is None:
      raise ValueError(f'token must be one of the vocabulary, got {token}.')
    return spelt

  def pieces(self, tokens: Iterable[int]) -> list[str]:
    """Returns one string a token that join to `decode(tokens)`.

    A character whose bytes are spread over tokens goes to the last of them.
    """
    stream = text_stream.TextStream(self.decode)
    pieces = [stream.add(token) for token in tokens]
    if pieces:
      pieces[-1] += stream.flush()
    return pieces

  def save(self, folder: str | os.PathLike[str]) -> None:
    """Writes `tokenizer.json` and what `load` reads beside it."""
    self._core.save(os.path.join(folder, 'tokenizer.json'))
    if not prompt_format_lib.has_markers(self._core):
      prompt_format_lib.write(self._core, self._format, folder)

  def check_same(self, other: 'Tokenizer', names: str) -> None:
    """Refuses another tokenizer whose tokens do not mean the same.

    Formats of prompts may differ: tokens mean the same in all of them.

    Args:
      other: the other tokenizer.
      names: of what has this one and the other, for the error.

    Raises:
      ValueError: they differ; it says in what.
    """
    found = _differences(self._core, other._core)
    if found:
      raise ValueError(
        f'{names} must share a tokenizer, but theirs differ: '
        f'{"; ".join(found)}.'
      )


def load(path: str | os.PathLike[str]) -> Tokenizer:
  """Reads a tokenizer of specjax or of HuggingFace.

  Args:
    path: a `tokenizer.json`, or its folder. Unless the tokenizer has the
      markers of specjax, the files next to it are read as well: see
      `tokenizer_config.read` and `prompt_format.read`.

  Raises:
    ValueError: there is no such file, it or one beside it cannot be read, or
      nothing says where a response ends.
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
  """Learns byte-level BPE merges; digits always stand alone.

  A sequence is `<|begin|> prompt <|response|> response <|end|>`. The markers
  are never made from text, even if it spells them.

  Args:
    texts: the corpus.
    vocab_size: `V`, at least 260: the bytes and four markers.

  Returns:
    The tokenizer.
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


def _with_markers(core):
  """A tokenizer that never makes markers from text."""
  core.encode_special_tokens = True
  return Tokenizer(core, prompt_format_lib.marker_format(core))


def _differences(first, second):
  """How the tokens of two tokenizers differ, in words."""
  if first.to_str() == second.to_str():
    return []
  both, found = [_strings(first), _strings(second)], []
  if len(both[0]) != len(both[1]):
    found.append(f'{len(both[0])} tokens and {len(both[1])}')
  pairs = {t: [each.get(t) for each in both] for t in sorted(both[0] | both[1])}
  different = [(t, *pair) for t, pair in pairs.items() if pair[0] != pair[1]]
  for token, mine, other in different[:_NAMED]:
    found.append(f'token {token} is {mine!r} and {other!r}')
  if len(different) > _NAMED:
    found.append(f'{len(different) - _NAMED} further tokens differ')
  mine, others = _rules(first), _rules(second)
  return found + [
    f'{name} differ' for name in mine if mine[name] != others[name]
  ]


def _strings(core):
  """What each token is written as."""
  return {token: text for text, token in core.get_vocab().items()}


def _rules(core):
  """What beside the vocabulary decides on the tokens of a text."""
  fields = json.loads(core.to_str())
  special = (e['content'] for e in fields['added_tokens'] if e['special'])
  return {
    'merges': fields['model'].get('merges'),
    'special tokens': sorted(special),
  }
