"""Tokenizers of GGUF files."""

import pytest
import tokenizers

from specjax.models.gguf import vocabulary
from tests.models.gguf import files


def _read(**changes):
  """Metadata with some fields changed, or left out where they are None."""
  fields = files.tokenizer()
  for name, value in changes.items():
    fields[f'tokenizer.ggml.{name}'] = value
  return vocabulary.read({n: v for n, v in fields.items() if v is not None})


def _words(tokenizer, text):
  """How a text is split, in tokens that hold no space of their own."""
  return tokenizer.pieces(tokenizer.encode_response(text)[:-1])


def test_chat_stops_and_special_tokens_are_those_of_the_file():
  tokenizer = _read()
  assert tokenizer.vocab_size == len(files.TOKENS)
  assert tokenizer.stop_tokens == (2, 0)  # <|endoftext|> ends texts, too.
  tokens = tokenizer.encode_prompt('the')
  expected = '<|im_start|>user\nthe<|im_end|>\n<|im_start|>assistant\n'
  assert (
    tokenizer.template.render([{'role': 'user', 'content': 'the'}]) == expected
  )
  assert [t for t in tokens if t < 3] == [1, 2, 1]
  assert files.TOKENS.index('the') in tokens
  assert tokenizer.decode(tokens) == 'user\nthe\nassistant\n'
  think = tokenizer.encode_response('<think>')[0]
  assert files.TOKENS[think] == '<think>' == tokenizer.decode([think])


@pytest.mark.parametrize(
  ('pre', 'expected'),
  {
    'smollm': ['1', '2', '3', '4', ' a', "'t", ' the'],
    'gpt-2': ['1234', ' a', "'t", ' the'],
    'qwen2': ['1', '2', '3', '4', ' a', "'t", ' the'],
    'llama-bpe': ['123', '4', ' a', "'t", ' the'],
  }.items(),
)
def test_words_are_split_as_the_file_says(pre, expected):
  """Every word of this text is a token, and so is what spans two of them."""
  spanning = ['12', '34', '1234', '123', ' a', " a't", "'t", ' the', "'t the"]
  coded = [text.replace(' ', 'Ġ') for text in spanning]
  tokens = [*files.TOKENS, *(c for c in coded if c not in files.TOKENS)]
  merges = [*files.MERGES, '3 4', '12 3', '12 34', 'Ġ a', "Ġa 't", "'t Ġthe"]
  tokenizer = _read(
    pre=pre, tokens=tokens, merges=merges, token_type=[3] * 3
  ).with_prompts(chat=False)
  assert _words(tokenizer, "1234 a't the") == expected


def test_numbers_of_other_scripts_are_digits_for_smollm():
  tokenizer = _read()
  core = tokenizers.pre_tokenizers.Digits(individual_digits=True)
  split = [word for word, _ in core.pre_tokenize_str('٣½Ⅷ')]
  assert split == ['٣', '½', 'Ⅷ']
  assert tokenizer.decode(tokenizer.encode_response('٣½Ⅷ')) == '٣½Ⅷ'


def test_qwen2_composes_characters_first():
  texts = 'e\u0301', '\u00e9'
  composed_ids, separate_ids = (
    [_read(pre=pre).encode_response(text) for text in texts]
    for pre in ('qwen2', 'smollm')
  )
  assert (
    composed_ids[0] == composed_ids[1] and separate_ids[0] != separate_ids[1]
  )


@pytest.mark.parametrize('begins', [True, False])
def test_text_begins_as_the_file_says(begins):
  tokenizer = _read(add_bos_token=begins).with_prompts(chat=False)
  prompt = tokenizer.encode_prompt('the')
  assert prompt == [1] * begins + [files.TOKENS.index('the')]
  with_both = _read(add_bos_token=True, add_eos_token=True).with_prompts(
    chat=False
  )
  assert with_both.encode_prompt('the')[-1] == 2


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'model': 'llama'}, "must be 'gpt2', byte-level BPE, got 'llama'"),
    ({'model': None}, 'got None'),
    ({'pre': 'mpt'}, "Unknown tokenizer.ggml.pre 'mpt'. Known: gpt-2, llama"),
    ({'pre': 1}, 'Unknown tokenizer.ggml.pre'),
    ({'pre': None}, 'tokenizer.ggml.pre is missing'),
    ({'tokens': None}, 'tokens must be a list of strings'),
    ({'tokens': [1, 2]}, 'tokens must be a list of strings'),
    ({'tokens': files.TOKENS + ['the']}, 'differ from each other'),
    ({'merges': ['the']}, 'must be pairs'),
    ({'merges': ['q q']}, 'merges do not match the tokens'),
    ({'merges': [3]}, 'merges must be a list of strings'),
    ({'eos_token_id': 10**6}, 'eos_token_id must be one of'),
    ({'eos_token_id': True}, 'eos_token_id must be one of'),
    ({'bos_token_id': 'a'}, 'bos_token_id must be one of'),
    ({'eos_token_id': None, 'token_type': None}, 'eos_token_id is missing'),
  ],
)
def test_what_is_not_supported_is_refused(changes, message):
  with pytest.raises(ValueError, match=message):
    _read(**changes)


def test_a_template_that_does_not_parse_is_refused():
  with pytest.raises(ValueError, match='does not parse'):
    vocabulary.read(files.tokenizer() | {'tokenizer.chat_template': '{{'})
