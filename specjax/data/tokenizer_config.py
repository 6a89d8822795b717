"""Reads files next to a HuggingFace `tokenizer.json`, like transformers 5."""

from collections.abc import Mapping
import os
from typing import Any

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers

from specjax import json_files

_CONFIG, _MAP = 'tokenizer_config.json', 'special_tokens_map.json'
_ADDED = 'added_tokens_decoder'
_EXTRA = ('additional_special_tokens', 'extra_special_tokens')
# Classes that ignore parts of `tokenizer.json`, and their special tokens.
_LLAMA = (
  'LlamaTokenizer',
  'LlamaTokenizerFast',
  'CodeLlamaTokenizer',
  'CodeLlamaTokenizerFast',
)
_LLAMA_TOKENS = {'bos_token': '<s>', 'eos_token': '</s>', 'unk_token': '<unk>'}
# Models whose `tokenizer.json` is used unchanged, whatever the declared class.
_WITHOUT_CLASS = ('mistral', 'phi3', 'qwen2')


def read(folder: str | os.PathLike[str]) -> dict[str, Any]:
  """Returns the fields that describe the tokenizer of a folder.

  These are the fields of `tokenizer_config.json`. Unless it lists all added
  tokens, as newer files do, `special_tokens_map.json` overrides its fields, and
  `added_tokens.json` adds tokens.

  Raises:
    ValueError: a file is not a JSON object.
  """
  fields = json_files.read(folder, _CONFIG)
  if _ADDED not in fields:
    fields |= json_files.read(folder, _MAP)
    added = json_files.read(folder, 'added_tokens.json')
    fields[_ADDED] = {token: text for text, token in added.items()}
  listed = fields[_ADDED]
  if not isinstance(listed, Mapping):
    raise ValueError(
      f'{_ADDED} in {os.path.join(folder, _CONFIG)} must be an object, got '
      f'{listed!r}.'
    )
  for token in listed:
    if not str(token).isdecimal():
      raise ValueError(
        f'The added tokens of {os.fspath(folder)} must have numbers as ids, '
        f'got {token!r}.'
      )
  model = json_files.read(folder, 'config.json')
  declared = fields.get('tokenizer_class') or model.get('tokenizer_class')
  fields['tokenizer_class'] = declared
  if model.get('model_type') in _WITHOUT_CLASS:
    fields['tokenizer_class'] = None
  if fields['tokenizer_class'] in _LLAMA:
    fields = _LLAMA_TOKENS | fields
  return fields


def special_tokens(fields: Mapping[str, Any]) -> dict[str, str]:
  """Returns the texts of named special tokens, by name.

  Args:
    fields: from `read`.
  """
  contents = {name: _content(value) for name, value in _named(fields).items()}
  return {name: text for name, text in contents.items() if text is not None}


def template(
  fields: Mapping[str, Any], folder: str | os.PathLike[str]
) -> str | None:
  """Returns the source of the chat template, or None.

  Files, `chat_template.jinja` and those in `additional_chat_templates`, replace
  the field `chat_template`. If there are several templates, the one named
  'default' is returned.

  Args:
    fields: from `read`.
    folder: the folder of the files.

  Raises:
    ValueError: there are templates, but none named 'default', or the field
      does not contain templates.
  """
  path = os.path.join(folder, _CONFIG)
  source = fields.get('chat_template')
  files = _template_files(folder)
  if files:
    source, path = files, os.fspath(folder)
  if isinstance(source, list) and all(isinstance(e, Mapping) for e in source):
    source = {entry.get('name'): entry.get('template') for entry in source}
  if isinstance(source, Mapping):
    if 'default' not in source:
      names = ', '.join(map(repr, source)) or 'none'
      raise ValueError(
        f"The chat templates of {path} must include 'default', got {names}."
      )
    source = source['default']
  if not isinstance(source, str | None):
    raise ValueError(
      f'chat_template in {path} must be a string, got {source!r}.'
    )
  return source


def apply(core: tokenizers.Tokenizer, fields: Mapping[str, Any]) -> None:
  """Modifies a tokenizer in the way of transformers.

  The class `LlamaTokenizer` replaces the file's handling of spaces. Special
  tokens that the file does not list are added.

  Args:
    core: the tokenizer of the file, modified in place.
    fields: from `read`.
  """
  if fields['tokenizer_class'] in _LLAMA and isinstance(core.model, models.BPE):
    if '"ByteLevel"' not in core.to_str():
      _set_llama_spaces(core, fields)
  core.encode_special_tokens = fields.get('split_special_tokens') is True
  _add_tokens(core, fields)


def _named(fields: Mapping[str, Any]) -> dict[str, Any]:
  """Returns the named special tokens, which may have options, by name."""
  named = {n: value for n, value in fields.items() if n.endswith('_token')}
  for name in _EXTRA:  # Tokens of specific models, such as 'image_token'.
    value = fields.get(name)
    named |= value if isinstance(value, Mapping) else {}
  return {n: value for n, value in named.items() if _content(value) is not None}


def _set_llama_spaces(core: Any, fields: Mapping[str, Any]) -> None:
  """Makes a tokenizer handle spaces as the class `LlamaTokenizer` does."""
  core.model.unk_token = None
  core.model.fuse_unk = core.model.byte_fallback = True
  prefix = fields.get('add_prefix_space')
  prefix = prefix is None or prefix
  scheme = 'always' if fields.get('legacy') else 'first'
  core.normalizer = None
  core.pre_tokenizer = pre_tokenizers.Metaspace(
    prepend_scheme=scheme if prefix else 'never', split=False
  )
  steps = [
    decoders.Replace('▁', ' '),
    decoders.ByteFallback(),
    decoders.Fuse(),
  ]
  if prefix:
    steps.append(decoders.Strip(' ', 1, 0))
  core.decoder = decoders.Sequence(steps)


def _add_tokens(core: tokenizers.Tokenizer, fields: Mapping[str, Any]) -> None:
  """Adds special tokens that the tokenizer does not have yet."""
  named = _named(fields)
  if core.token_to_id(_content(named.get('eos_token')) or '') is None:
    named.pop('eos_token', None)  # No model emits it.
  values = [fields.get(name) for name in _EXTRA]
  extra = [
    token for value in values if isinstance(value, list) for token in value
  ]
  special = {_content(token) for token in (*named.values(), *extra)}
  listed = [fields[_ADDED][i] for i in sorted(fields[_ADDED], key=int)]
  known = {token.content for token in core.get_added_tokens_decoder().values()}
  for token in (*listed, *named.values(), *extra):
    text = _content(token)
    if text and text not in known:
      known.add(text)
      core.add_tokens([_added_token(token, text in special)])


def _added_token(value: Any, special: bool) -> tokenizers.AddedToken:
  """Converts a token, given as a string or with options."""
  if isinstance(value, str):
    return tokenizers.AddedToken(value, special=special, normalized=not special)
  flags = ('single_word', 'lstrip', 'rstrip', 'normalized', 'special')
  options = {name: bool(value[name]) for name in flags if name in value}
  return tokenizers.AddedToken(
    value['content'], **{'special': special, **options}
  )


def _content(value: Any) -> str | None:
  """Returns the text of a token, which may have options, or None."""
  value = value.get('content') if isinstance(value, Mapping) else value
  return value if isinstance(value, str) else None


def _template_files(folder: str | os.PathLike[str]) -> dict[str, str]:
  """Returns the sources of chat templates in files, by name."""
  additional = os.path.join(folder, 'additional_chat_templates')
  paths = {'default': os.path.join(folder, 'chat_template.jinja')}
  names = os.listdir(additional) if os.path.isdir(additional) else []
  for name in sorted(names):
    if name.endswith('.jinja'):
      paths[name.removesuffix('.jinja')] = os.path.join(additional, name)
  sources = {}
  for name, path in paths.items():
    if os.path.exists(path):
      try:
        with open(path, encoding='utf-8') as file:
          sources[name] = file.read()
      except (OSError, ValueError) as error:
        raise ValueError(f'Cannot read {path}: {error}.') from error
  return sources
