import json
import random

import numpy as np
import pytest
import tokenizers
from tokenizers import models
from tokenizers import processors

from specjax.data import prompt_format
from specjax.data import token_texts
from specjax.data import tokenizer as tokenizer_lib

_MARKERS = prompt_format.MARKERS
_CORPUS = [
  'The year 1984 came after 1983, and 1984 was 366 days long.',
  'def add(a, b):\n  return a + b  # 2 + 2 == 4\n',
  'Une forêt enchantée. 漢字と仮名。 🙂🙃 déjà vu',
  *_MARKERS,
] * 4
_POINTS = [*range(0xD800), *range(0xE000, 0x110000)]  # All but surrogates.
_TEXTS = {
  'space': ' ',
  'digits': 'The year 1984',
  'white': '  two  spaces\t\ttabs\r\n\n\n',
  'emoji': '👩‍👩‍👧‍👦 🏳️‍🌈 🙂',
  'scripts': '漢字かな한국어 العربية עברית',
  'controls': ''.join(map(chr, range(256))),
  'separators': '\u2028\u2029\ufeff\u200b\ufffd\U0010ffff',
  'accents': 'e\u0301 \u00e9',  # No normalisation: the two stay different.
  'numerals': '٣٤ ½ Ⅷ 12',
  'markers': ''.join(_MARKERS),
  'markers inside': 'x<|end|>y <|end|> <|begin|>z',
  'random': ''.join(map(chr, random.Random(0).choices(_POINTS, k=300))),
}
_each_text = pytest.mark.parametrize('text', _TEXTS.values(), ids=_TEXTS)


@pytest.fixture(scope='module', name='tokenizer')
def _tokenizer():
  return tokenizer_lib.train(_CORPUS, 330)


@_each_text
def test_any_text_comes_back(tokenizer, text):
  prompt = tokenizer.encode_prompt(text)
  response = tokenizer.encode_response(text)
  assert tokenizer.decode(prompt) == tokenizer.decode(response) == text
  assert all(0 <= t < tokenizer.vocab_size for t in prompt + response)


def test_merges_are_learned_and_the_vocabulary_is_as_large_as_asked(tokenizer):
  assert tokenizer.vocab_size == 330
  text = 'The year 1984 came after'
  assert len(tokenizer.encode_response(text)) < len(text)


@_each_text
def test_markers_are_never_made_from_text(tokenizer, text):
  """Exactly the markers that frame a sequence, even where text spells them."""
  begin, *body, response = tokenizer.encode_prompt(text)
  *answer, end = tokenizer.encode_response(text)
  assert body == answer
  assert len({begin, response, end}) == 3 and end == tokenizer.end_id
  marked = [t for t in range(tokenizer.vocab_size) if not tokenizer.decode([t])]
  assert len(marked) == len(_MARKERS)  # Only markers decode to nothing.
  assert {begin, response, end} < set(marked)
  assert not set(marked) & set(body)


def test_example_is_prompt_then_response(tokenizer):
  tokens, start = tokenizer.encode_example('Why?', 'So.')
  assert tokens[:start] == tokenizer.encode_prompt('Why?')
  assert tokens[start:] == tokenizer.encode_response('So.')
  assert tokenizer.decode(tokens) == 'Why?So.'
  assert tokenizer.encode_response('') == [tokenizer.end_id]


@pytest.mark.parametrize('text', ['1984', 'in 1984', '19 84', 'a1b2', '-3.14'])
def test_digits_stand_alone(tokenizer, text):
  """'1984' is frequent in the corpus, and would be merged otherwise."""
  pieces = tokenizer.pieces(tokenizer.encode_response(text)[:-1])
  assert [p for p in pieces if any(map(str.isdigit, p))] == [
    c for c in text if c.isdigit()
  ]


def test_an_empty_prompt_raises(tokenizer):
  with pytest.raises(ValueError, match='prompt'):
    tokenizer.encode_prompt('')
  with pytest.raises(ValueError, match='prompt'):
    tokenizer.encode_example('', 'response')


@_each_text
def test_pieces_join_to_the_decoded_text(tokenizer, text):
  tokens, _ = tokenizer.encode_example(text, text)
  pieces = tokenizer.pieces(iter(tokens))
  assert len(pieces) == len(tokens)
  assert ''.join(pieces) == tokenizer.decode(tokens) == 2 * text


def test_pieces_of_arbitrary_tokens_join_to_the_decoded_text(tokenizer):
  """A sampled sequence need not be valid UTF-8, at its end or inside."""
  draw = random.Random(0)
  for length in [1, 2, 3, 5, 8, 40] * 5:
    tokens = draw.choices(range(tokenizer.vocab_size), k=length)
    pieces = tokenizer.pieces(tokens)
    assert len(pieces) == length
    assert ''.join(pieces) == tokenizer.decode(tokens)
  assert tokenizer.pieces([]) == []


def test_a_character_over_several_tokens_goes_to_the_last_of_them():
  tokenizer = tokenizer_lib.train([], 260)  # Bytes only.
  tokens = tokenizer.encode_response('a🙂b')[:-1]
  assert len(tokens) == 6
  assert tokenizer.pieces(tokens) == ['a', '', '', '', '🙂', 'b']
  cut = tokenizer.pieces(tokens[:3])
  assert cut[:2] == ['a', ''] and set(cut[2]) == {'\N{REPLACEMENT CHARACTER}'}


def test_load_reads_what_save_wrote(tokenizer, tmp_path):
  tokenizer.save(tmp_path)
  assert [file.name for file in tmp_path.iterdir()] == ['tokenizer.json']
  for path in (tmp_path, tmp_path / 'tokenizer.json'):
    loaded = tokenizer_lib.load(path)
    assert loaded.vocab_size == tokenizer.vocab_size
    assert loaded.end_id == tokenizer.end_id
    for text in _TEXTS.values():
      tokens = tokenizer.encode_example(text, text)
      assert loaded.encode_example(text, text) == tokens
      assert loaded.pieces(tokens[0]) == tokenizer.pieces(tokens[0])


def _damage(text):
  return {
    'empty': '',
    'half': text[: len(text) // 2],
    'no JSON': 'PK\x03\x04',
    'other JSON': '{}',
    'a list': '[]',
    'no model': json.dumps({**json.loads(text), 'model': None}),
    'no markers': tokenizers.Tokenizer(models.BPE()).to_str(),
  }


@pytest.mark.parametrize('damage', _damage('{"model": 0}'))
def test_a_corrupt_file_is_named(tokenizer, tmp_path, damage):
  path = tmp_path / 'tokenizer.json'
  tokenizer.save(tmp_path)
  path.write_text(_damage(path.read_text('utf-8'))[damage], 'utf-8')
  with pytest.raises(ValueError, match='tokenizer.json'):
    tokenizer_lib.load(path)


@pytest.mark.parametrize('name', ['missing.json', 'missing'])
def test_a_missing_file_is_named(tmp_path, name):
  with pytest.raises(ValueError) as caught:
    tokenizer_lib.load(tmp_path / name)
  assert str(tmp_path / name) in str(caught.value)


def test_a_tokenizer_without_markers_has_no_format_of_them():
  core = tokenizers.Tokenizer(models.BPE())
  core.add_special_tokens(['<|pad|>', '<|im_end|>'])
  with pytest.raises(ValueError, match='lacks') as caught:
    prompt_format.marker_format(core)
  message = str(caught.value)
  assert (
    '<|begin|>, <|response|>, <|end|>' in message and '<|pad|>' not in message
  )


@pytest.mark.parametrize(
  ('letters', 'single', 'frame'),
  [
    ('ACGT', '<s> $A', ((0,), ())),
    ('ACGT', '$A </s>', ((), (1,))),
    ('漢字', '<s> $A </s>', ((0,), (1,))),
    ('A', '$A', ((), ())),
  ],
)
def test_what_is_around_a_text_depends_on_no_letter(letters, single, frame):
  vocab = {name: i for i, name in enumerate(['<s>', '</s>', *letters])}
  core = tokenizers.Tokenizer(models.BPE(vocab, []))
  core.add_special_tokens(['<s>', '</s>'])
  core.post_processor = processors.TemplateProcessing(
    single=single, special_tokens=[('<s>', 0), ('</s>', 1)]
  )
  text_format = prompt_format.plain_format(core, [1])
  assert (text_format.before, text_format.after) == frame
  text_format = prompt_format.plain_format(core, [1], start_id=0)
  assert (text_format.before, text_format.after) == (frame[0], (*frame[1], 0))


@pytest.mark.parametrize('vocab_size', [0, 259])
def test_a_vocabulary_without_room_for_all_bytes_raises(vocab_size):
  with pytest.raises(ValueError, match=f'260, got {vocab_size}'):
    tokenizer_lib.train(_CORPUS, vocab_size)


def test_the_smallest_vocabulary_has_every_byte():
  tokenizer = tokenizer_lib.train(_CORPUS, 260)
  assert tokenizer.vocab_size == 260
  for text in _TEXTS.values():
    tokens = tokenizer.encode_response(text)
    assert len(tokens) == len(text.encode()) + 1
    assert tokenizer.decode(tokens) == text


def test_token_ids_may_be_arrays(tokenizer):
  tokens = np.array(tokenizer.encode_response('array'), np.int32)
  assert tokenizer.decode(tokens) == 'array'
  assert ''.join(tokenizer.pieces(tokens)) == 'array'


def test_added_tokens_of_sentencepiece_have_spaces():
  """Gemma's vocabulary has runs of spaces as added tokens."""
  core = tokenizers.Tokenizer(models.BPE({'▁': 0, 'a': 1, '<s>': 2}, []))
  core.add_tokens([tokenizers.AddedToken('▁▁', normalized=False)])
  core.add_special_tokens(['<s>'])
  assert token_texts.read(core) == {0: b' ', 1: b'a', 2: '<s>', 3: b'  '}


def test_texts_of_tokens_are_bytes_and_names():
  """They join to the text, also inside of characters."""
  tokenizer = tokenizer_lib.train(['häuser und der mäuse'] * 5, 300)
  texts = tokenizer.token_texts()
  assert sorted(texts) == list(range(tokenizer.vocab_size))
  names = {token for token, text in texts.items() if isinstance(text, str)}
  assert {texts[token] for token in names} == set(_MARKERS)
  for text in 'häuser und', '🙂 \n', 'x\0':
    tokens = tokenizer.encode(text)
    assert b''.join(texts[token] for token in tokens) == text.encode()
