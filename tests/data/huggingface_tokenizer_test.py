"""Tokenizers of HuggingFace's folders, with transformers as the oracle."""

import json
import random

import pytest
import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers
from tokenizers import processors
from tokenizers import trainers

from specjax.data import chat
from specjax.data import prompt_format
from specjax.data import tokenizer as tokenizer_lib
from tests import extras

transformers = extras.load('transformers')
pytestmark = pytest.mark.oracles


def _peer(core, **special):
  return transformers.PreTrainedTokenizerFast(tokenizer_object=core, **special)


@pytest.mark.parametrize('kind', ['begin', 'both', 'none'])
def test_without_a_template_text_is_framed_as_transformers_does(kind, tmp_path):
  core = _metaspace()
  ids = [('<s>', core.token_to_id('<s>')), ('</s>', core.token_to_id('</s>'))]
  single = {'begin': '<s> $A', 'both': '<s> $A </s>', 'none': '$A'}[kind]
  core.post_processor = processors.TemplateProcessing(
    single=single, special_tokens=ids
  )
  core.enable_truncation(4)
  core.enable_padding(length=9)
  peer = _peer(core, eos_token='</s>')
  peer.save_pretrained(tmp_path)
  tokenizer = tokenizer_lib.load(tmp_path)
  text = 'the year of the day'
  assert tokenizer.encode_prompt(text) == peer.encode(text)
  response = peer.encode(text, add_special_tokens=False)
  assert tokenizer.encode_response(text) == [*response, tokenizer.end_id]
  assert tokenizer.stop_tokens == (core.token_to_id('</s>'),)
  assert tokenizer.template is None


def test_an_encoder_decoder_has_its_start_behind_the_prompt(tmp_path):
  core = _metaspace()
  _peer(core, eos_token='</s>').save_pretrained(tmp_path)
  (tmp_path / 'config.json').write_text('{"decoder_start_token_id": 0}')
  tokenizer = tokenizer_lib.load(tmp_path)
  assert tokenizer.response_id == 0
  *text, start = tokenizer.encode_prompt('the day')
  assert start == 0 and text == core.encode('the day').ids


def test_stop_tokens_are_all_that_a_folder_names(tmp_path):
  core = _metaspace()
  _peer(core, eos_token='</s>').save_pretrained(tmp_path)
  for name, value, expected in (
    ('config.json', 3, (1, 3)),
    ('generation_config.json', [1, 2, 4], (1, 2, 4)),  # It overrules.
  ):
    (tmp_path / name).write_text(json.dumps({'eos_token_id': value}))
    tokenizer = tokenizer_lib.load(tmp_path)
    assert tokenizer.stop_tokens == expected and tokenizer.end_id == 1


def test_pieces_of_a_decoder_that_drops_the_first_space_join(tmp_path):
  core = _metaspace()
  _peer(core, eos_token='</s>').save_pretrained(tmp_path)
  tokenizer = tokenizer_lib.load(tmp_path)
  parts = [[0], [1], core.encode('the day').ids, core.encode(' 漢字🙂').ids]
  draw = random.Random(0)
  for _ in range(100):
    tokens = sum(draw.choices(parts, k=6), [])
    pieces = tokenizer.pieces(tokens)
    assert len(pieces) == len(tokens)
    assert ''.join(pieces) == tokenizer.decode(tokens)
  assert pieces.count('') > 6 and tokenizer.decode(parts[2]) == 'the day'


def _metaspace():
  """A tokenizer in the manner of Llama 2, with bytes for rare characters."""
  core = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True))
  core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first')
  core.decoder = decoders.Sequence(
    [
      decoders.Replace('▁', ' '),
      decoders.ByteFallback(),
      decoders.Fuse(),
      decoders.Strip(' ', 1, 0),
    ]
  )
  names = [f'<0x{i:02X}>' for i in range(256)]
  trainer = trainers.BpeTrainer(
    vocab_size=300, special_tokens=['<s>', '</s>'], show_progress=False
  )
  core.train_from_iterator(['the year of the day, the year of'], trainer)
  fields = json.loads(core.to_str())
  vocab = fields['model']['vocab']
  specials = {name: vocab.pop(name) for name in ('<s>', '</s>')}
  ordered = [*specials, *names, *sorted(vocab, key=vocab.get)]
  fields['model']['vocab'] = {text: i for i, text in enumerate(ordered)}
  return tokenizers.Tokenizer.from_str(json.dumps(fields))


def test_texts_of_tokens_are_those_of_other_libraries():
  """A space is a space, and a byte is the token that text has, if there is one.

  Tokens of text are never special ones with the same name.
  """
  core = _metaspace()
  core.add_tokens([tokenizers.AddedToken('▁▁', special=False)])
  core.add_special_tokens(['<s>', '</s>'])
  tokenizer = tokenizer_lib.Tokenizer(
    core, prompt_format.plain_format(core, [core.token_to_id('</s>')])
  )
  texts = tokenizer.token_texts()
  assert sorted(texts) == list(range(tokenizer.vocab_size))
  assert texts[core.token_to_id('▁the')] == b' the'
  letter, added = core.token_to_id('t'), core.token_to_id('▁▁')
  assert core.decode([letter, added]).encode() == b't' + texts[added] == b't  '
  assert texts[core.token_to_id('<0x0A>')] == b'\n'
  assert texts[core.token_to_id('<s>')] == '<s>'
  assert texts[tokenizer.end_id] == '<|end|>'
  order = list(texts)
  assert order[0] == tokenizer.end_id
  byte = core.token_to_id('<0x74>')
  assert texts[letter] == texts[byte] == b't'
  assert order.index(letter) < order.index(byte)


def test_what_is_saved_is_loaded_again_here_and_by_transformers(tmp_path):
  core = _metaspace()
  template = chat.Template(
    "{{ bos_token + messages[-1]['content'] + '</s>' }}", {'bos_token': '<s>'}
  )
  text_format = prompt_format.plain_format(core, [1, 5])._replace(
    template=template
  )
  tokenizer = tokenizer_lib.Tokenizer(core, text_format)
  tokenizer.save(tmp_path)
  loaded = tokenizer_lib.load(tmp_path)
  assert loaded.stop_tokens == tokenizer.stop_tokens == (1, 5)
  assert loaded.encode_prompt('the') == tokenizer.encode_prompt('the')
  loaded.check_same(tokenizer, 'both')
  peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
  turns = [{'role': 'user', 'content': 'the'}]
  expected = peer.apply_chat_template(turns, return_dict=False)
  assert expected == loaded.encode_prompt('the') and peer.eos_token == '</s>'


@pytest.mark.parametrize(
  ('name', 'text', 'message'),
  [
    ('tokenizer_config.json', '{', 'Cannot read'),
    ('tokenizer_config.json', '[]', 'must contain a JSON object'),
    ('tokenizer_config.json', '{}', 'No token ends a text'),
    ('tokenizer_config.json', '{"eos_token": "nothing"}', 'No token ends'),
    (
      'tokenizer_config.json',
      '{"eos_token": {"content": "</s>"}, "chat_template": 1}',
      'must be a string, got 1',
    ),
    (
      'tokenizer_config.json',
      '{"eos_token": "</s>", "chat_template": [1]}',
      'must be a string',
    ),
    ('chat_template.jinja', '{{', 'does not parse'),
    ('generation_config.json', '\xff', 'Cannot read'),
    ('generation_config.json', '{"eos_token_id": "a"}', "got 'a'"),
    ('generation_config.json', '{"eos_token_id": [true]}', 'got \\[True\\]'),
    ('config.json', '{"decoder_start_token_id": -1}', 'got -1'),
  ],
)
def test_what_is_wrong_beside_a_tokenizer_is_named(
  tmp_path, name, text, message
):
  _peer(_metaspace(), eos_token='</s>').save_pretrained(tmp_path)
  (tmp_path / name).write_text(text, 'latin-1')
  with pytest.raises(ValueError, match=message):
    tokenizer_lib.load(tmp_path)


def test_tokenizers_that_differ_are_told_apart():
  one, other = (
    tokenizer_lib.train(['the year the year', text], 270)
    for text in ('', 'of days of days of days of days')
  )
  one.check_same(one, 'a and b')
  with pytest.raises(ValueError) as caught:
    one.check_same(other, 'the target and its drafter')
  message = str(caught.value)
  assert message.startswith('the target and its drafter must share a tokenizer')
  assert 'further tokens differ; merges differ.' in message
  assert 'special tokens' not in message
  small = tokenizer_lib.train([], 260)
  with pytest.raises(ValueError, match='and 260; token 260 is .* and None'):
    one.check_same(small, 'both')


def test_special_tokens_and_merges_count():
  core = _metaspace()
  fields = json.loads(core.to_str())
  fields['model']['merges'].reverse()
  fields['added_tokens'].pop()
  other = tokenizers.Tokenizer.from_str(json.dumps(fields))
  one, other = (
    tokenizer_lib.Tokenizer(
      tokenizer, prompt_format.plain_format(tokenizer, [1])
    )
    for tokenizer in (core, other)
  )
  with pytest.raises(ValueError, match='differ: merges .*; special tokens'):
    one.check_same(other, 'both')
