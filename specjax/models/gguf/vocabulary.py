"""Reads the tokenizer in the metadata of a GGUF file."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import processors

from specjax import registry
from specjax.data import chat as chat_lib
from specjax.data import prompt_format as prompt_format_lib
from specjax.data import tokenizer as tokenizer_lib

_PREFIX = 'tokenizer.ggml.'
_CONTROL, _USER_DEFINED = 3, 4  # types of tokens
# Control tokens that always end a text or a turn.
_END_TOKENS = (
  '<|endoftext|>',
  '<|end_of_text|>',
  '<|im_end|>',
  '<|eot_id|>',
  '<|eom_id|>',
  '<|end|>',
  '</s>',
)
# Splits a text into words as Llama 3 does; Qwen2 splits numbers differently.
_WORDS = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
  r'|[^\r\n\p{L}\p{N}]?\p{L}+'
  r'|\p{N}%s'
  r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)


def _gpt2() -> pre_tokenizers.PreTokenizer:
  """Splits words as GPT-2 does, which is the default of the byte level."""
  return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _single_digits() -> pre_tokenizers.PreTokenizer:
  """Splits words as GPT-2 does, and numbers into single digits."""
  digits = pre_tokenizers.Digits(individual_digits=True)
  return pre_tokenizers.Sequence([digits, _gpt2()])


def _split(digits: str) -> pre_tokenizers.PreTokenizer:
  """Splits words by `_WORDS`.

  Args:
    digits: quantifier of the digits in a word, such as '{1,3}'.
  """
  pattern = tokenizers.Regex(_WORDS % digits)
  words = pre_tokenizers.Split(pattern, behavior='isolated')
  raw = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
  return pre_tokenizers.Sequence([words, raw])


_PRE_TOKENIZERS: dict[str, Callable[[], Any]] = {
  'gpt-2': _gpt2,
  'llama-bpe': lambda: _split('{1,3}'),
  'qwen2': lambda: _split(''),
  'smollm': _single_digits,
}


def read(metadata: Mapping[str, Any]) -> tokenizer_lib.Tokenizer:
  """Returns the tokenizer of a file.

  Args:
    metadata: See `container.Header`.

  Raises:
    ValueError: its kind is not supported, or its parts are inconsistent.
  """
  fields = {
    name.removeprefix(_PREFIX): value
    for name, value in metadata.items()
    if name.startswith(_PREFIX)
  }
  if fields.get('model') != 'gpt2':
    raise ValueError(
      "tokenizer.ggml.model must be 'gpt2', byte-level BPE, got "
      f'{fields.get("model")!r}.'
    )
  tokens = _texts(fields, 'tokens')
  core = _core(fields, tokens)
  ends = [_id(fields, f'{name}_token_id') for name in ('eos', 'eot', 'eom')]
  kinds = fields.get('token_type', [])
  ends += [
    token
    for token, (text, kind) in enumerate(zip(tokens, kinds))
    if text in _END_TOKENS and kind == _CONTROL
  ]
  stops = tuple(dict.fromkeys(end for end in ends if end is not None))
  if not stops:
    raise ValueError('tokenizer.ggml.eos_token_id is missing.')
  prompt_format = prompt_format_lib.plain_format(core, stops)
  source = metadata.get('tokenizer.chat_template')
  if isinstance(source, str):
    template = chat_lib.Template(source, _special_tokens(fields, tokens))
    prompt_format = prompt_format._replace(template=template)
  return tokenizer_lib.Tokenizer(core, prompt_format)


def _core(
  fields: Mapping[str, Any], tokens: Sequence[str]
) -> tokenizers.Tokenizer:
  """Returns the library's tokenizer.

  Args:
    fields: metadata of the tokenizer.
    tokens: `[V]` texts of the tokens.
  """
  if 'pre' not in fields:
    raise ValueError(
      'tokenizer.ggml.pre is missing, which says how text is split into words. '
      'Convert the model with a newer version of llama.cpp.'
    )
  name = fields['pre']
  pre_tokenizer = registry.lookup(
    _PRE_TOKENIZERS,
    'tokenizer.ggml.pre',
    name if isinstance(name, str) else repr(name),
  )
  merges: list[Any] = [
    tuple(merge.split(' ')) for merge in _texts(fields, 'merges')
  ]
  if any(len(pair) != 2 for pair in merges):
    raise ValueError('tokenizer.ggml.merges must be pairs of tokens.')
  vocab = {text: token for token, text in enumerate(tokens)}
  if len(vocab) != len(tokens):
    raise ValueError('tokenizer.ggml.tokens must differ from each other.')
  try:
    model = models.BPE(vocab, merges, ignore_merges=name == 'llama-bpe')
  except Exception as error:  # The library raises bare Exceptions.
    raise ValueError(
      f'tokenizer.ggml.merges do not match the tokens: {error}'
    ) from error
  core = tokenizers.Tokenizer(model)
  core.pre_tokenizer = pre_tokenizer()
  if name == 'qwen2':
    core.normalizer = normalizers.NFC()
  core.decoder = decoders.ByteLevel()
  for text, kind in zip(tokens, fields.get('token_type', [])):
    if kind in (_CONTROL, _USER_DEFINED):
      special = kind == _CONTROL
      token = tokenizers.AddedToken(text, special=special, normalized=False)
      (core.add_special_tokens if special else core.add_tokens)([token])
  _add_begin_and_end(core, fields, tokens, name)
  return core


def _add_begin_and_end(
  core: tokenizers.Tokenizer,
  fields: Mapping[str, Any],
  tokens: Sequence[str],
  name: str,
) -> None:
  """Sets the tokens that the tokenizer adds before and after a text."""
  begin = end = None
  if fields.get('add_bos_token', name == 'llama-bpe'):
    begin = _id(fields, 'bos_token_id')
  if fields.get('add_eos_token', False):
    end = _id(fields, 'eos_token_id')
  added = [token for token in (begin, end) if token is not None]
  if added:
    core.post_processor = processors.TemplateProcessing(
      single=[
        *([] if begin is None else [tokens[begin]]),
        '$A',
        *([] if end is None else [tokens[end]]),
      ],
      special_tokens=[(tokens[token], token) for token in added],
    )


def _special_tokens(
  fields: Mapping[str, Any], tokens: Sequence[str]
) -> dict[str, str]:
  """Returns the texts of special tokens, by their names in templates."""
  names = {'bos': 'bos', 'eos': 'eos', 'unknown': 'unk', 'padding': 'pad'}
  ids = {
    hf_name: _id(fields, f'{name}_token_id') for name, hf_name in names.items()
  }
  return {f'{n}_token': tokens[i] for n, i in ids.items() if i is not None}


def _id(fields: Mapping[str, Any], name: str) -> int | None:
  """Returns a token id in the metadata, or None."""
  token = fields.get(name)
  num_tokens = len(fields['tokens'])
  if token is None or type(token) is int and 0 <= token < num_tokens:
    return token
  raise ValueError(
    f'tokenizer.ggml.{name} must be one of {num_tokens} tokens, got {token!r}.'
  )


def _texts(fields: Mapping[str, Any], name: str) -> list[str]:
  """Returns a list of strings in the metadata."""
  texts = fields.get(name)
  if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
    raise ValueError(f'tokenizer.ggml.{name} must be a list of strings.')
  return texts
