"""What a tokenizer writes around prompts and responses, and its files."""

from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import Any
from typing import NamedTuple

import tokenizers

from specjax import json_files
from specjax.data import chat as chat_lib

PAD, BEGIN, RESPONSE, END = '<|pad|>', '<|begin|>', '<|response|>', '<|end|>'
MARKERS = (PAD, BEGIN, RESPONSE, END)


class PromptFormat(NamedTuple):
  """How prompts and responses become tokens.

  Attributes:
    before: tokens in front of a prompt, unless a template writes it.
    after: tokens behind it, after which the response begins.
    stop_tokens: tokens at which decoding stops; the first ends a response.
    template: writes prompts as conversations instead, or None.
  """

  before: tuple[int, ...]
  after: tuple[int, ...]
  stop_tokens: tuple[int, ...]
  template: chat_lib.Template | None = None


def of_markers(core: tokenizers.Tokenizer) -> PromptFormat:
  """Returns `<|begin|> prompt <|response|> response <|end|>`.

  Raises:
    ValueError: the tokenizer lacks some of the markers.
  """
  ids = [core.token_to_id(name) for name in MARKERS]
  missing = [name for name, token in zip(MARKERS, ids) if token is None]
  if missing:
    raise ValueError(f'The tokenizer lacks {", ".join(missing)}.')
  _, begin, response, end = (int(token) for token in ids if token is not None)
  return PromptFormat((begin,), (response,), (end,))


def has_markers(core: tokenizers.Tokenizer) -> bool:
  """Returns whether a tokenizer is one of specjax."""
  return all(core.token_to_id(name) is not None for name in MARKERS)


def of_text(
  core: tokenizers.Tokenizer,
  stop_tokens: Sequence[int],
  start_id: int | None = None,
) -> PromptFormat:
  """Returns text between the tokens that the tokenizer itself adds.

  Args:
    core: makes tokens of text.
    stop_tokens: as in `PromptFormat`.
    start_id: of an encoder-decoder, the token that ends every prompt.
  """
  bare = core.encode('a', add_special_tokens=False).ids
  framed = core.encode('a').ids
  starts = range(len(framed) - len(bare) + 1)
  start = next(i for i in starts if framed[i : i + len(bare)] == bare)
  after = framed[start + len(bare) :]
  after += [] if start_id is None else [start_id]
  return PromptFormat(tuple(framed[:start]), tuple(after), tuple(stop_tokens))


def read(
  core: tokenizers.Tokenizer, folder: str | os.PathLike[str]
) -> PromptFormat:
  """Reads what HuggingFace's folders say beside `tokenizer.json`.

  That is in `tokenizer_config.json`, `chat_template.jinja`,
  `generation_config.json` and `config.json`, as far as they are there.

  Raises:
    ValueError: a file is no JSON object or holds something else than it
      should, no token ends a text, or the template does not parse.
  """
  config = json_files.read(folder, 'tokenizer_config.json')
  special = _special_tokens(config)
  end = core.token_to_id(special.get('eos_token', ''))
  ends = [] if end is None else [end]
  stops = tuple(dict.fromkeys(ends + token_ids(folder, 'eos_token_id')))
  if not stops:
    raise ValueError(
      f'No token ends a text of tokenizer.json in {folder}: '
      'tokenizer_config.json has no eos_token of the vocabulary, and '
      'generation_config.json and config.json no eos_token_id.'
    )
  start = next(iter(token_ids(folder, 'decoder_start_token_id')), None)
  source = _template(config, folder)
  template = None if source is None else chat_lib.Template(source, special)
  return of_text(core, stops, start)._replace(template=template)


def write(
  core: tokenizers.Tokenizer,
  prompt_format: PromptFormat,
  folder: str | os.PathLike[str],
) -> None:
  """Writes files from which `read` and transformers make the same format."""
  template = prompt_format.template
  config: dict[str, Any] = {'tokenizer_class': 'PreTrainedTokenizerFast'}
  if template is not None:
    config |= {'chat_template': template.source, **template.special_tokens}
  config['eos_token'] = core.id_to_token(prompt_format.stop_tokens[0])
  json_files.write(folder, 'tokenizer_config.json', config)
  generation = {'eos_token_id': [*prompt_format.stop_tokens]}
  json_files.write(folder, 'generation_config.json', generation)


def end_of_turn(
  core: tokenizers.Tokenizer, template: chat_lib.Template
) -> int | None:
  """Returns the first special token that a template writes behind an answer."""
  said = 'Hello'
  turns = [
    {'role': 'user', 'content': said},
    {'role': 'assistant', 'content': said},
  ]
  try:
    text = template.render(turns, add_generation_prompt=False)
  except ValueError:  # It knows no assistant, or wants something else of it.
    return None
  _, _, rest = text.rpartition(said)
  added = core.get_added_tokens_decoder()
  tokens = core.encode(rest, add_special_tokens=False).ids
  return next((t for t in tokens if t in added and added[t].special), None)


def token_ids(folder: str | os.PathLike[str], field: str) -> list[int]:
  """Returns the ids of the generation's config or else the model's.

  Args:
    folder: of HuggingFace.
    field: such as 'eos_token_id'.

  Raises:
    ValueError: it holds something else.
  """
  for name in ('generation_config.json', 'config.json'):
    value = json_files.read(folder, name).get(field)
    if value is not None:
      ids = value if isinstance(value, list) else [value]
      if not all(type(each) is int and each >= 0 for each in ids):
        raise ValueError(
          f'{field} in {os.path.join(folder, name)} must be a token id or a '
          f'list of some, got {value!r}.'
        )
      return ids
  return []


def _special_tokens(config):
  """The strings of special tokens that templates may name."""
  special = {}
  for name, value in config.items():
    if name.endswith('_token') and isinstance(value, Mapping):
      value = value.get('content')
    if name.endswith('_token') and isinstance(value, str):
      special[name] = value
  return special


def _template(config, folder):
  """The source of the chat template, or None."""
  path = os.path.join(folder, 'chat_template.jinja')
  if os.path.exists(path):
    with open(path, encoding='utf-8') as file:
      return file.read()
  source = config.get('chat_template')
  if isinstance(source, list):  # Several, by name.
    named = [each for each in source if isinstance(each, Mapping)]
    source = {e.get('name'): e.get('template') for e in named}.get('default', 1)
  if not isinstance(source, str | None):
    raise ValueError(
      f'chat_template in {os.path.join(folder, "tokenizer_config.json")} must '
      f'be a text, got {source!r}.'
    )
  return source
