"""The tokenizer in the metadata of a GGUF file."""

from collections.abc import Callable
from collections.abc import Mapping
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
# Control tokens that end a text or a turn wherever they stand.
_ENDS = (
  '<|endoftext|>',
  '<|end_of_text|>',
  '<|im_end|>',
  '<|eot_id|>',
  '<|eom_id|>',
  '<|end|>',
  '</s>',
)
# Words of Llama 3, which Qwen2 shares but for the digits of a number.
_WORDS = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
  r'|[^\r\n\p{L}\p{N}]?\p{L}+'
  r'|\p{N}%s'
  r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)


def _gpt2():
  """Words of GPT-2, which the byte-level step knows itself."""
  return pre_tokenizers.ByteLevel(add_prefix_space=False)


def _single_digits():
  """Words of GPT-2, with every digit on its own."""
  digits = pre_tokenizers.Digits(individual_digits=True)
  return pre_tokenizers.Sequence([digits, _gpt2()])


def _split(digits):
  """Words of a pattern."""
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
  """Makes the tokenizer of a file.

  Args:
    metadata: as in `container.Header`.

  Raises:
    ValueError: its kind is not supported, or its parts do not fit together.
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
    if text in _ENDS and kind == _CONTROL
  ]
  stops = tuple(dict.fromkeys(end for end in ends if end is not None))
  if not stops:
    raise ValueError('tokenizer.ggml.eos_token_id is missing.')
  made = prompt_format_lib.of_text(core, stops)
  source = metadata.get('tokenizer.chat_template')
  if isinstance(source, str):
    template = chat_lib.Template(source, _special(fields, tokens))
    made = made._replace(template=template)
  return tokenizer_lib.Tokenizer(core, made)


def _core(fields, tokens):
  """Makes tokens of text."""
  name = fields.get('pre', 'gpt-2')
  known = isinstance(name, str)
  make = registry.lookup(
    _PRE_TOKENIZERS, 'tokenizer.ggml.pre', name if known else repr(name)
  )
  merges = [tuple(merge.split(' ')) for merge in _texts(fields, 'merges')]
  if any(len(pair) != 2 for pair in merges):
    raise ValueError('tokenizer.ggml.merges must be pairs of tokens.')
  vocab = {text: token for token, text in enumerate(tokens)}
  if len(vocab) != len(tokens):
    raise ValueError('tokenizer.ggml.tokens must differ from each other.')
  try:
    model = models.BPE(vocab, merges, ignore_merges=name == 'llama-bpe')
  except Exception as error:  # The library raises bare Exceptions.
    raise ValueError(f'tokenizer.ggml.merges do not fit: {error}') from error
  core = tokenizers.Tokenizer(model)
  core.pre_tokenizer = make()
  if name == 'qwen2':
    core.normalizer = normalizers.NFC()
  core.decoder = decoders.ByteLevel()
  for text, kind in zip(tokens, fields.get('token_type', [])):
    if kind in (_CONTROL, _USER_DEFINED):
      special = kind == _CONTROL
      token = tokenizers.AddedToken(text, special=special, normalized=False)
      (core.add_special_tokens if special else core.add_tokens)([token])
  _add_frame(core, fields, tokens, name)
  return core


def _add_frame(core, fields, tokens, name):
  """What the tokenizer itself puts around a text."""
  begins = fields.get('add_bos_token', name == 'llama-bpe')
  ends = fields.get('add_eos_token', False)
  parts = ('bos', begins), (None, True), ('eos', ends)
  ids = {n: _id(fields, f'{n}_token_id') for n, on in parts if n and on}
  known = {n: token for n, token in ids.items() if token is not None}
  if known:
    core.post_processor = processors.TemplateProcessing(
      single=[
        '$A' if n is None else tokens[known[n]]
        for n, on in parts
        if on and (n is None or n in known)
      ],
      special_tokens=[(tokens[token], token) for token in known.values()],
    )


def _special(fields, tokens):
  """Strings of special tokens, as templates name them."""
  names = {'bos': 'bos', 'eos': 'eos', 'unknown': 'unk', 'padding': 'pad'}
  ids = {ours: _id(fields, f'{name}_token_id') for name, ours in names.items()}
  return {f'{n}_token': tokens[i] for n, i in ids.items() if i is not None}


def _id(fields, name):
  """A token's id, or None."""
  token = fields.get(name)
  num_tokens = len(fields['tokens'])
  if token is None or type(token) is int and 0 <= token < num_tokens:
    return token
  raise ValueError(
    f'tokenizer.ggml.{name} must be one of {num_tokens} tokens, got {token!r}.'
  )


def _texts(fields, name):
  """A list of strings."""
  texts = fields.get(name)
  if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
    raise ValueError(f'tokenizer.ggml.{name} must be a list of strings.')
  return texts
