"""Prompt formats: the tokens around prompts and responses, and their files."""

from collections.abc import Mapping
from collections.abc import Sequence
import os
from typing import Any
from typing import NamedTuple

import tokenizers

from specjax import json_files
from specjax.data import chat as chat_lib
from specjax.data import tokenizer_config

PAD, BEGIN, RESPONSE, END = '<|pad|>', '<|begin|>', '<|response|>', '<|end|>'
MARKERS = (PAD, BEGIN, RESPONSE, END)


class PromptFormat(NamedTuple):
  """The tokens around prompts and responses.

  Attributes:
    before: tokens before a prompt, unless there is a template.
    after: tokens between a prompt and its response, unless there is a template.
    stop_tokens: tokens at which decoding stops; the first ends a response.
    template: chat template that renders prompts as conversations, or None.
  """

  before: tuple[int, ...]
  after: tuple[int, ...]
  stop_tokens: tuple[int, ...]
  template: chat_lib.Template | None = None


def marker_format(core: tokenizers.Tokenizer) -> PromptFormat:
  """Returns the format `<|begin|> prompt <|response|> response <|end|>`.

  Args:
    core: the library's tokenizer.

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
  """Returns whether a tokenizer has the markers of specjax."""
  return all(core.token_to_id(name) is not None for name in MARKERS)


def plain_format(
  core: tokenizers.Tokenizer,
  stop_tokens: Sequence[int],
  start_id: int | None = None,
) -> PromptFormat:
  """Returns the format without markers: text and the tokenizer's own tokens.

  Args:
    core: the library's tokenizer.
    stop_tokens: See `PromptFormat`.
    start_id: token that ends every prompt of an encoder-decoder.
  """
  before, after = _added_tokens(core)
  if start_id is not None:
    after = (*after, start_id)
  return PromptFormat(before, after, tuple(stop_tokens))


def read(
  core: tokenizers.Tokenizer,
  fields: Mapping[str, Any],
  folder: str | os.PathLike[str],
) -> PromptFormat:
  """Reads the format from the files of a HuggingFace folder.

  Stop tokens are also read from `generation_config.json` or `config.json`, if
  they exist.

  Args:
    core: the library's tokenizer.
    fields: from `tokenizer_config.read`.
    folder: the folder.

  Raises:
    ValueError: a file is not a JSON object or has invalid values, there is no
      stop token, or the template does not parse.
  """
  special = tokenizer_config.special_tokens(fields)
  end = core.token_to_id(special.get('eos_token', ''))
  ends = [] if end is None else [end]
  stops = tuple(dict.fromkeys(ends + token_ids(folder, 'eos_token_id')))
  if not stops:
    raise ValueError(
      f'No token ends a text of tokenizer.json in {folder}: '
      'tokenizer_config.json and special_tokens_map.json have no eos_token in '
      'the vocabulary, and generation_config.json and config.json have no '
      'eos_token_id.'
    )
  start = next(iter(token_ids(folder, 'decoder_start_token_id')), None)
  source = tokenizer_config.template(fields, folder)
  template = None if source is None else chat_lib.Template(source, special)
  return plain_format(core, stops, start)._replace(template=template)


def write(
  core: tokenizers.Tokenizer,
  prompt_format: PromptFormat,
  folder: str | os.PathLike[str],
) -> None:
  """Writes files from which `read` and transformers restore the format."""
  template = prompt_format.template
  config: dict[str, Any] = {'tokenizer_class': 'PreTrainedTokenizerFast'}
  if template is not None:
    config['chat_template'] = template.source
    for name, text in template.special_tokens.items():
      fields = config
      if not name.endswith('_token'):
        fields = config.setdefault('extra_special_tokens', {})
      fields[name] = text
  if core.encode_special_tokens:
    config['split_special_tokens'] = True
  config['eos_token'] = core.id_to_token(prompt_format.stop_tokens[0])
  json_files.write(folder, 'tokenizer_config.json', config)
  generation = {'eos_token_id': [*prompt_format.stop_tokens]}
  json_files.write(folder, 'generation_config.json', generation)


def end_of_turn(
  core: tokenizers.Tokenizer, template: chat_lib.Template
) -> int | None:
  """Returns the first special token that a template writes after an answer."""
  answer = 'Hello'
  turns = [
    {'role': 'user', 'content': answer},
    {'role': 'assistant', 'content': answer},
  ]
  try:
    text = template.render(turns, add_generation_prompt=False)
  except ValueError:  # The template refuses turns of an assistant.
    return None
  _, _, after_answer = text.rpartition(answer)
  added = core.get_added_tokens_decoder()
  tokens = core.encode(after_answer, add_special_tokens=False).ids
  return next((t for t in tokens if t in added and added[t].special), None)


def token_ids(folder: str | os.PathLike[str], field: str) -> list[int]:
  """Returns token ids in `generation_config.json` or, else, `config.json`.

  Args:
    folder: a HuggingFace folder.
    field: name of the field, such as 'eos_token_id'.

  Raises:
    ValueError: the field does not contain token ids.
  """
  for name in ('generation_config.json', 'config.json'):
    value = json_files.read(folder, name).get(field)
    if value is not None:
      ids = value if isinstance(value, list) else [value]
      if not all(type(token) is int and token >= 0 for token in ids):
        raise ValueError(
          f'{field} in {os.path.join(folder, name)} must be a token id or a '
          f'list of token ids, got {value!r}.'
        )
      return ids
  return []


def _added_tokens(
  core: tokenizers.Tokenizer,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
  """Returns the tokens that a tokenizer adds before and after a text."""
  # Entries of the vocabulary are texts that have tokens in any alphabet.
  for text in core.get_vocab():
    encoded = core.encode(text)
    added = encoded.special_tokens_mask
    if 0 in added:
      start, end = added.index(0), len(added) - added[::-1].index(0)
      return tuple(encoded.ids[:start]), tuple(encoded.ids[end:])
  return tuple(core.encode('').ids), ()
