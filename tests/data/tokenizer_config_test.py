"""Folders of HuggingFace have the tokens of `transformers.AutoTokenizer`."""

from collections.abc import Callable
import json
from typing import Any
from typing import NamedTuple

import pytest
import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import normalizers
from tokenizers import pre_tokenizers
from tokenizers import processors

from specjax import decoding
from specjax import families
from specjax.data import tokenizer as tokenizer_lib
from tests import extras

transformers = extras.load('transformers')
pytestmark = pytest.mark.oracles

_WORDS = ['hi', 'tea', 'the', '▁hi', '▁tea', '▁the']
_LETTERS = [*'▁abcdehioprstuxyINST[]/|<>.:\n', 'Ġ', 'Ċ']
_SPECIAL = ('<unk>', '<s>', '</s>', '<|user|>', '<|end|>')
_NAMES = {'bos_token': '<s>', 'eos_token': '</s>', 'unk_token': '<unk>'}


def _bpe(byte_fallback=True, listed=True, flags=None):
  """A tokenizer of letters, bytes and few words, without spaces of its own."""
  bytes_ = [f'<0x{i:02X}>' for i in range(256)] if byte_fallback else []
  names = [*_SPECIAL, *bytes_, *_LETTERS]
  merges = []
  for word in _WORDS:
    for end in range(2, len(word) + 1):
      if word[:end] not in names:
        names.append(word[:end])
        merges.append((word[: end - 1], word[end - 1]))
  core = tokenizers.Tokenizer(
    models.BPE(
      {name: i for i, name in enumerate(names)},
      merges,
      unk_token='<unk>',
      fuse_unk=True,
      byte_fallback=byte_fallback,
    )
  )
  for name in _SPECIAL if listed else ():
    added = tokenizers.AddedToken(name, special=True, **(flags or {}))
    core.add_special_tokens([added])
  core.decoder = decoders.Sequence(
    [
      decoders.Replace('▁', ' '),
      decoders.ByteFallback(),
      decoders.Fuse(),
      decoders.Strip(' ', 1, 0),
    ]
  )
  return _framed(core, '<s> $A')


def _framed(core, single):
  ids = [(name, core.token_to_id(name)) for name in ('<s>', '</s>')]
  core.post_processor = processors.TemplateProcessing(
    single=single, special_tokens=ids
  )
  return core


def _metaspace(scheme, split=False, **options):
  core = _bpe(**options)
  core.pre_tokenizer = pre_tokenizers.Metaspace(
    prepend_scheme=scheme, split=split
  )
  return core


def _prepend():
  """As Llama 2 was first converted."""
  core = _bpe()
  steps = [normalizers.Prepend('▁'), normalizers.Replace(' ', '▁')]
  core.normalizer = normalizers.Sequence(steps)
  return core


def _byte_level(prefix=False, **options):
  letters = sorted(pre_tokenizers.ByteLevel.alphabet())
  vocab = {text: i for i, text in enumerate([*_SPECIAL, *letters, 'ĊĊ', 'hi'])}
  core = tokenizers.Tokenizer(models.BPE(vocab, [('Ċ', 'Ċ'), ('h', 'i')]))
  for name in _SPECIAL:
    added = tokenizers.AddedToken(name, special=True, **options)
    core.add_special_tokens([added])
  core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
  core.decoder = decoders.ByteLevel()
  return _framed(core, '<s> $A')


def _of_nucleotides():
  vocab = {name: i for i, name in enumerate(['<s>', '</s>', *'ACGT'])}
  core = tokenizers.Tokenizer(models.BPE(vocab, []))
  core.add_special_tokens(['<s>', '</s>'])
  return _framed(core, '<s> $A')


def _of_words():
  """As BERT's: no letter of its own is a word, and others are unknown."""
  vocab = {name: i for i, name in enumerate([*_SPECIAL, 'hi', 'tea', '##s'])}
  core = tokenizers.Tokenizer(models.WordPiece(vocab, unk_token='<unk>'))
  core.add_special_tokens(list(_SPECIAL))
  core.normalizer = normalizers.BertNormalizer()
  core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
  core.post_processor = processors.BertProcessing(('</s>', 2), ('<s>', 1))
  return core


def _of_roberta():
  core = _byte_level(prefix=True)
  core.post_processor = processors.Sequence(
    [
      processors.ByteLevel(trim_offsets=True),
      processors.RobertaProcessing(('</s>', 2), ('<s>', 1)),
    ]
  )
  return core


def _unigram():
  """As T5's, whose texts end."""
  names = [*_SPECIAL, *_LETTERS, *_WORDS]
  core = tokenizers.Tokenizer(
    models.Unigram([(text, -len(names) + len(text)) for text in names], 0)
  )
  core.add_special_tokens(list(_SPECIAL))
  core.pre_tokenizer = pre_tokenizers.Sequence(
    [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
  )
  return _framed(core, '$A </s>')


# Layouts of Mistral, of Llama 2, of ChatML, of Phi-3, and one that marks its
# turns with text.
_MISTRAL = (
  '{{ bos_token }}{% for m in messages %}{% if m.role == "user" %}'
  '{{ "[INST] " + m.content + " [/INST]" }}'
  '{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}'
)
_LLAMA = _MISTRAL.replace('m.content + eos', '" " + m.content + " " + eos')
_CHATML = (
  '{% for m in messages %}{{ "<|user|>" + m.role + "\n" + m.content }}'
  '{{ "<|end|>\n" }}{% endfor %}'
  '{% if add_generation_prompt %}{{ "<|user|>assistant\n" }}{% endif %}'
)
_PHI = (
  '{% for m in messages %}{{ "<|user|>\n" + m.content + "<|end|>\n" }}'
  '{% endfor %}{% if add_generation_prompt %}{{ "<|user|>\n" }}{% endif %}'
)
_PLAIN = (
  '{% for m in messages %}{{ m.role + ": " + m.content + "\n\n" }}{% endfor %}'
  '{% if add_generation_prompt %}assistant:{% endif %}'
)
_NAMED = [
  {'name': 'tool_use', 'template': 'no'},
  {'name': 'default', 'template': _MISTRAL},
]
_LLAMA_CLASS = {'tokenizer_class': 'LlamaTokenizerFast'}
_TOKEN = {
  'content': '<s>',
  'lstrip': False,
  'rstrip': False,
  'normalized': False,
  'single_word': False,
}


class _Folder(NamedTuple):
  core: Callable[[], tokenizers.Tokenizer]
  config: dict[str, Any] = {}  # beside the names of special tokens
  files: dict[str, Any] = {}  # JSON, or text

  @property
  def has_template(self) -> bool:
    fields = self.config | self.files.get('special_tokens_map.json', {})
    return 'chat_template' in fields or 'chat_template.jinja' in self.files


_first = lambda **options: lambda: _metaspace('first', **options)
_FOLDERS = {
  # The tokens of a text.
  'byte level': _Folder(_byte_level),
  'byte level, prefix': _Folder(lambda: _byte_level(prefix=True)),
  'no letter a': _Folder(_of_nucleotides),
  'no letters': _Folder(_of_words),
  'RoBERTa': _Folder(_of_roberta),
  'Unigram': _Folder(_unigram),
  'both ends': _Folder(lambda: _framed(_bpe(), '<s> $A </s>')),
  'no frame': _Folder(lambda: _framed(_bpe(), '$A')),
  'no bytes': _Folder(_first(byte_fallback=False)),
  'words, first': _Folder(_first(split=True)),
  'words, always': _Folder(lambda: _metaspace('always', split=True)),
  'words, never': _Folder(lambda: _metaspace('never', split=True)),
  # Fields that change the tokens, or look as if they did.
  'add_bos_token': _Folder(
    lambda: _framed(_metaspace('first'), '$A'), {'add_bos_token': True}
  ),
  'add_eos_token': _Folder(_first(), {'add_eos_token': True}),
  'add_bos_token, Llama': _Folder(
    _first(), _LLAMA_CLASS | {'add_bos_token': False, 'add_eos_token': True}
  ),
  'add_prefix_space': _Folder(_first(), {'add_prefix_space': False}),
  'split_special_tokens': _Folder(_first(), {'split_special_tokens': True}),
  'added_tokens_decoder': _Folder(
    _first(), {'added_tokens_decoder': {'400': {**_TOKEN, 'content': 'xyz'}}}
  ),
  'added_tokens.json': _Folder(_first(), {}, {'added_tokens.json': {'x': 400}}),
  'additional_special_tokens': _Folder(
    _first(), {'additional_special_tokens': ['xyz']}
  ),
  'pad_token': _Folder(_first(), {'pad_token': 'xyz'}),
  'not listed': _Folder(_first(listed=False)),
  'not listed, stripping': _Folder(
    _first(listed=False),
    {},
    {
      'special_tokens_map.json': {
        'eos_token': _TOKEN
        | {'content': '</s>', 'lstrip': True, 'rstrip': True}
      }
    },
  ),
  'Llama of Mistral': _Folder(
    _prepend, _LLAMA_CLASS, {'config.json': {'model_type': 'mistral'}}
  ),
  'Llama, never': _Folder(_prepend, _LLAMA_CLASS | {'add_prefix_space': False}),
  'Code Llama': _Folder(_prepend, {'tokenizer_class': 'CodeLlamaTokenizer'}),
  'Llama of bytes': _Folder(_byte_level, _LLAMA_CLASS),
  # Templates, and turns that follow turns.
  'first': _Folder(_first(), {'chat_template': _MISTRAL}),
  'always': _Folder(lambda: _metaspace('always'), {'chat_template': _MISTRAL}),
  'never': _Folder(lambda: _metaspace('never'), {'chat_template': _MISTRAL}),
  'Prepend': _Folder(_prepend, {'chat_template': _MISTRAL}),
  'Llama': _Folder(_prepend, _LLAMA_CLASS | {'chat_template': _LLAMA}),
  'Llama, legacy': _Folder(
    _prepend, _LLAMA_CLASS | {'chat_template': _MISTRAL, 'legacy': True}
  ),
  'Llama, config.json': _Folder(
    _prepend,
    {'chat_template': _MISTRAL},
    {
      'config.json': {
        'model_type': 'llama',
        'tokenizer_class': 'LlamaTokenizer',
      }
    },
  ),
  'first, Llama 2': _Folder(_first(), {'chat_template': _LLAMA}),
  'always, Llama 2': _Folder(
    lambda: _metaspace('always'), {'chat_template': _LLAMA}
  ),
  'ChatML': _Folder(_byte_level, {'chat_template': _CHATML}),
  'ChatML, prefix': _Folder(
    lambda: _byte_level(prefix=True), {'chat_template': _CHATML}
  ),
  'stripping': _Folder(
    _first(flags={'lstrip': True, 'rstrip': True}), {'chat_template': _PHI}
  ),
  'stripping bytes': _Folder(
    lambda: _byte_level(rstrip=True), {'chat_template': _PHI}
  ),
  'text': _Folder(_first(), {'chat_template': _PLAIN}),
  'text of bytes': _Folder(_byte_level, {'chat_template': _PLAIN}),
  # Where templates and the tokens that they name are.
  'named templates': _Folder(_first(), {'chat_template': _NAMED}),
  'a table of templates': _Folder(
    _first(), {'chat_template': {'default': _MISTRAL, 'tool_use': 'no'}}
  ),
  'chat_template.jinja': _Folder(
    _first(), {'chat_template': 'no'}, {'chat_template.jinja': _MISTRAL}
  ),
  'chat_template.json': _Folder(
    _first(), {}, {'chat_template.json': {'chat_template': 'no'}}
  ),
  'more templates': _Folder(
    _first(),
    {},
    {
      'chat_template.jinja': _MISTRAL,
      'additional_chat_templates/tool_use.jinja': 'no',
    },
  ),
  'a default among more': _Folder(
    _first(),
    {'chat_template': 'no'},
    {
      'chat_template.jinja': 'no',
      'additional_chat_templates/default.jinja': _MISTRAL,
    },
  ),
  'special_tokens_map.json': _Folder(
    _first(),
    {'chat_template': _MISTRAL, 'bos_token': None, 'eos_token': None},
    {'special_tokens_map.json': {'bos_token': _TOKEN, 'eos_token': '</s>'}},
  ),
  'the map overrides': _Folder(
    _first(),
    {'chat_template': _MISTRAL},
    {'special_tokens_map.json': {'bos_token': '<unk>', 'eos_token': '</s>'}},
  ),
  'the map is overridden': _Folder(
    _first(),
    {'chat_template': _MISTRAL, 'added_tokens_decoder': {'1': _TOKEN}},
    {'special_tokens_map.json': {'bos_token': '<unk>'}},
  ),
  'the map has a template': _Folder(
    _first(), {}, {'special_tokens_map.json': {'chat_template': _MISTRAL}}
  ),
  'the map takes a name': _Folder(
    _first(),
    {'chat_template': _MISTRAL},
    {'special_tokens_map.json': {'bos_token': None}},
  ),
  'names of its own': _Folder(
    _first(),
    {
      'chat_template': _MISTRAL.replace('bos_token', 'turn_token + more'),
      'turn_token': '<|user|>',
      'extra_special_tokens': {'more': '<|end|>'},
    },
  ),
}
_TEXTS = [
  'hi',
  ' hi',
  'tea the  x ',
  'hi\n\nxyz.\n',
  'x</s> <|end|>y',
  'GATTACA',
]
_each_folder = pytest.mark.parametrize('case', _FOLDERS.values(), ids=_FOLDERS)
_each_chat = pytest.mark.parametrize(
  'case',
  [
    pytest.param(folder, id=name)
    for name, folder in _FOLDERS.items()
    if folder.has_template
  ],
)


def _write(case, folder):
  case.core().save(str(folder / 'tokenizer.json'))
  files = {
    'config.json': {'model_type': 'llama'},
    'tokenizer_config.json': _NAMES | case.config,
    **case.files,
  }
  for name, content in files.items():
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, 'utf-8')


def _load(case, folder):
  """Returns the tokenizer of a folder, and that of transformers."""
  _write(case, folder)
  peer = transformers.AutoTokenizer.from_pretrained(folder)
  return tokenizer_lib.load(folder), peer


def _turns(*texts):
  roles = ('user', 'assistant') * len(texts)
  return [{'role': r, 'content': text} for r, text in zip(roles, texts)]


def _chat_ids(peer, turns, begin=True):
  return peer.apply_chat_template(
    turns, add_generation_prompt=begin, return_dict=False
  )


@_each_folder
def test_texts_and_examples_have_the_tokens_of_transformers(case, tmp_path):
  tokenizer, peer = _load(case, tmp_path)
  assert (tokenizer.template is None) == (peer.chat_template is None)
  tokenizer = tokenizer.with_prompts(chat=False)
  for text in _TEXTS:
    ids = peer(text).input_ids
    assert tokenizer.encode_prompt(text) == ids
    for response in (' tea.', 'xyz'):
      tokens, start = tokenizer.encode_example(text, response)
      assert tokens[:start] == ids and tokens[-1] == tokenizer.end_id
      whole = peer(text + response).input_ids
      if tokenizer.response_id is not None:  # Something is between them.
        assert tokens[start:] == tokenizer.encode_response(response)
      elif whole[: len(ids)] == ids:  # No token has parts of both.
        assert tokens[:-1] == whole


@_each_chat
def test_conversations_have_the_tokens_of_transformers(case, tmp_path):
  tokenizer, peer = _load(case, tmp_path)
  for text in _TEXTS:
    for turns in (_turns(text), _turns('hi', text, 'tea')):
      ids = _chat_ids(peer, turns)
      assert tokenizer.encode_chat(turns) == ids
    ids = _chat_ids(peer, _turns('hi', text), begin=False)
    tokens, start = tokenizer.encode_example('hi', text)
    assert tokens[:start] == tokenizer.encode_prompt('hi')
    assert tokens[-1] == tokenizer.end_id
    if case.config.get('chat_template') == _PLAIN:  # Its turns have no end.
      assert tokens[:-1] == ids
    else:
      assert tokens == ids[: len(tokens)]
      assert tokenizer.end_id not in ids[len(tokens) :]


@_each_chat
def test_what_is_saved_has_the_same_tokens(case, tmp_path):
  tokenizer, _ = _load(case, tmp_path)
  saved = tmp_path / 'saved'
  saved.mkdir()
  tokenizer.save(saved)
  loaded = tokenizer_lib.load(saved)
  peer = transformers.AutoTokenizer.from_pretrained(saved)
  turns = _turns('hi', 'tea', 'x</s> <|end|>y')
  ids = tokenizer.encode_chat(turns)
  assert loaded.encode_chat(turns) == _chat_ids(peer, turns) == ids
  assert loaded.stop_tokens == tokenizer.stop_tokens


@_each_chat
def test_later_turns_have_the_tokens_of_transformers(
  case, tmp_path, monkeypatch
):
  """The model's answers are the tokens that their text has in the whole."""
  tokenizer, peer = _load(case, tmp_path)
  read = []

  class Recorder:
    """In the place of a decoder: it emits what `answer` holds."""

    round_fn = params = None

    def init(self, prompts, *args, **options):
      read[:] = prompts[0]

    def append(self, state, prompts, *args):
      read.extend(prompts[0])

  def stream(*args):
    read.extend(answer)
    yield 'a state', [decoding.Piece(token, 'sampled') for token in answer]

  monkeypatch.setattr(decoding, 'stream', stream)
  monkeypatch.setattr(decoding, 'check_flags', lambda state: None)
  monkeypatch.setattr(decoding, 'pieces', lambda info: info)
  conversation, history = families.Conversation(tokenizer, Recorder()), []
  for text, reply in zip(_TEXTS, ('tea', 'the x', 'hi\n', '\nx', '.', 'hi')):
    history.append(text)
    turns = _turns(*history)
    ids = _chat_ids(peer, turns)
    whole = _chat_ids(peer, _turns(*history, reply), begin=False)
    answer = whole[len(ids) :]
    for i, token in enumerate(answer):
      if token in tokenizer.stop_tokens:
        answer = answer[: i + 1]
        break
    list(conversation.say(text, 8))
    assert read[: len(read) - len(answer)] == _chat_ids(
      peer, conversation.messages[:-1]
    )
    history.append(conversation.messages[-1]['content'])


@pytest.mark.parametrize(
  ('config', 'files', 'message'),
  [
    (
      {'chat_template': [{'name': 'rag', 'template': ''}]},
      {},
      "The chat templates of .*tokenizer_config.json must include 'default', "
      "got 'rag'",
    ),
    (
      {'chat_template': ''},
      {'additional_chat_templates/rag.jinja': ''},
      "must include 'default', got 'rag'",
    ),
    ({'chat_template': {}}, {}, "must include 'default', got none"),
    ({'chat_template': {'default': 1}}, {}, 'must be a string, got 1'),
    ({}, {'special_tokens_map.json': '{'}, 'Cannot read .*special_tokens_map'),
    ({}, {'special_tokens_map.json': []}, 'special_tokens_map.* JSON object'),
    ({}, {'added_tokens.json': {'x': 'y'}}, 'must have numbers as ids'),
    ({'added_tokens_decoder': {'x': 'y'}}, {}, 'must have numbers as ids'),
    ({'added_tokens_decoder': []}, {}, r'must be an object, got \[\]'),
  ],
)
def test_templates_and_tokens_that_cannot_be_read_are_named(
  tmp_path, config, files, message
):
  _write(_Folder(_first(), config, files), tmp_path)
  with pytest.raises(ValueError, match=message):
    tokenizer_lib.load(tmp_path)
