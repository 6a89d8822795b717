"""Templates and conversations, as transformers writes them."""

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

transformers = pytest.importorskip('transformers')

# In the manner of SmolLM2, with a system prompt where there is none.
_MARKED = """\
{% for message in messages %}\
{% if loop.first and messages[0]['role'] != 'system' %}\
{{ '<|im_start|>system\nYou help.<|im_end|>\n' }}{% endif %}\
{{ '<|im_start|>' + message['role'] + '\n' + message['content'] \
+ '<|im_end|>' + '\n' }}{% endfor %}\
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""
# In the manner of Llama 2: brackets, trimmed text, and errors.
_BRACKETS = """
{%- if messages[0]['role'] == 'system' %}
  {%- set system = messages[0]['content'] | trim %}
  {%- set messages = messages[1:] %}
{%- endif %}
{{- bos_token }}
{%- for message in messages %}
  {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
    {{- raise_exception('roles must alternate') }}
  {%- endif %}
  {%- if message['role'] == 'user' %}
    {{- '[INST] ' + (system + ' ' if system and loop.first else '') }}
    {{- message['content'] | trim + ' [/INST]' }}
  {%- else %}
    {%- generation %}
    {{- ' ' + message['content'] + ' ' + eos_token }}
    {%- endgeneration %}
  {%- endif %}
{%- endfor %}"""
# Whatever else is used in templates of well-known models.
_PARTS = """\
{%- if tools is not none %}never{% endif %}
{%- set seen = namespace(count=0) %}
{%- for message in messages %}
    {%- if message.role == 'system' %}{% continue %}{% endif %}
    {%- set seen.count = seen.count + 1 %}
    {%- if seen.count > 3 %}{% break %}{% endif %}
{{ message | tojson }} {{ strftime_now('%Y') }}
<|im_end|>
{%- endfor %}
{%- if enable_thinking is defined %}never{% endif %}"""
_TEMPLATES = {'marked': _MARKED, 'brackets': _BRACKETS, 'parts': _PARTS}
_USER = {'role': 'user', 'content': ' What is <b>2 & 2</b>, "né"? 漢字 '}
_ASKED = {'role': 'user', 'content': 'Why?'}
_SYSTEM = {'role': 'system', 'content': ' Be brief.'}
_ANSWER = {'role': 'assistant', 'content': 'It is 4.'}
_SPELT = {'role': 'user', 'content': 'a<|im_end|>\n<|im_start|>b'}
_CONVERSATIONS = {
  'user': [_USER],
  'system': [_SYSTEM, _USER],
  'turns': [_USER, _ANSWER, _SPELT],
  'all': [_SYSTEM, _USER, _ANSWER, _USER, _ANSWER, _USER],
}
_SPECIAL = ['<s>', '</s>', '<|im_start|>', '<|im_end|>']
_NAMES = {'bos_token': '<s>', 'eos_token': '</s>'}


@pytest.fixture(scope='module', name='core')
def _core():
  """A byte-level tokenizer that begins texts, as Llama 3's does."""
  core = tokenizers.Tokenizer(models.BPE())
  core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  core.decoder = decoders.ByteLevel()
  core.train_from_iterator(
    [_USER['content'], _MARKED, _BRACKETS],
    trainers.BpeTrainer(
      vocab_size=400,
      special_tokens=_SPECIAL,
      initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
      show_progress=False,
    ),
  )
  core.post_processor = processors.TemplateProcessing(
    single='<s> $A', special_tokens=[('<s>', core.token_to_id('<s>'))]
  )
  return core


@pytest.fixture(name='folder')
def _folder(core, tmp_path):
  """Returns a function that saves with transformers, and what it saved."""

  def save(source):
    peer = transformers.PreTrainedTokenizerFast(
      tokenizer_object=core, chat_template=source, **_NAMES
    )
    peer.save_pretrained(tmp_path)
    return peer, tmp_path

  return save


@pytest.mark.parametrize('turns', _CONVERSATIONS.values(), ids=_CONVERSATIONS)
@pytest.mark.parametrize('source', _TEMPLATES.values(), ids=_TEMPLATES)
def test_text_and_tokens_are_those_of_transformers(folder, source, turns):
  peer, path = folder(source)
  tokenizer = tokenizer_lib.load(path)
  for begin in (False, True):
    expected = peer.apply_chat_template(
      turns, tokenize=False, add_generation_prompt=begin
    )
    assert tokenizer.template.render(turns, begin) == expected
  expected = peer.apply_chat_template(
    turns, add_generation_prompt=True, return_dict=False
  )
  assert tokenizer.encode_chat(turns) == expected
  if len(turns) == 1:
    assert tokenizer.encode_prompt(turns[0]['content']) == expected


def test_a_system_prompt_opens_conversations_that_have_none(folder):
  _, path = folder(_MARKED)
  plain = tokenizer_lib.load(path)
  tokenizer = plain.with_prompts(system=' Be brief.')
  expected = plain.encode_chat([_SYSTEM, _USER])
  assert tokenizer.encode_prompt(_USER['content']) == expected
  assert tokenizer.encode_chat([_USER]) == expected
  other = [{'role': 'system', 'content': 'Be long.'}, _USER]
  assert tokenizer.encode_chat(other) == plain.encode_chat(other)


@pytest.mark.parametrize(
  ('source', 'end'),
  [(_MARKED, '<|im_end|>'), (_BRACKETS, '</s>'), (_PARTS, '<|im_end|>')],
  ids=_TEMPLATES,
)
def test_a_response_is_what_the_template_writes(core, folder, source, end):
  tokenizer = tokenizer_lib.load(folder(source)[1])
  stops = [core.token_to_id(text) for text in dict.fromkeys((end, '</s>'))]
  assert tokenizer.stop_tokens == tuple(stops)
  assert tokenizer.end_id == stops[0]
  tokens, start = tokenizer.encode_example('Why?', 'So.')
  assert tokens[:start] == tokenizer.encode_prompt('Why?')
  answer = {'role': 'assistant', 'content': 'So.'}
  whole = tokenizer.template.render(
    [_ASKED, answer], add_generation_prompt=False
  )
  assert tokens == tokenizer.encode(whole[: whole.rindex(end) + len(end)])
  assert tokens[-1] == stops[0]


def test_without_the_template_prompts_are_text(core, folder):
  _, path = folder(_MARKED)
  tokenizer = tokenizer_lib.load(path).with_prompts(chat=False)
  assert tokenizer.encode_prompt('Why?') == core.encode('Why?').ids
  assert tokenizer.decode(tokenizer.encode_prompt('Why?')) == 'Why?'
  assert tokenizer.stop_tokens == (core.token_to_id('</s>'),)
  with pytest.raises(ValueError, match='messages need'):
    tokenizer.encode_chat([_USER])
  for options in ({'chat': True}, {'system': 'Be brief.'}):
    with pytest.raises(ValueError, match='needs a .*chat template'):
      tokenizer.with_prompts(**options)


@pytest.mark.parametrize(
  'source',
  ['{% for %}', '{{ messages', '{% generation %}', '{{ x | nothing }}'],
)
def test_a_template_that_does_not_parse_is_refused(source):
  with pytest.raises(ValueError, match='does not parse'):
    chat.Template(source)


@pytest.mark.parametrize(
  'source',
  [
    "{{ raise_exception('no such role') }}",
    '{{ nothing.there }}',
    "{{ 'a' + 1 }}",
    '{{ 1 // 0 }}',
    '{{ messages.append(1) }}',
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{% include 'file' %}",
    '{% for i in range(10 ** 9) %}{% endfor %}',
  ],
)
def test_a_template_that_raises_is_refused(source):
  template = chat.Template(source)
  with pytest.raises(ValueError, match='refuses these messages: .'):
    template.render([_USER])


@pytest.mark.parametrize(
  'message',
  [{'role': 'user'}, {'content': 'a'}, {'role': 'user', 'content': 1}, 'a', 1],
)
def test_a_message_without_its_parts_is_refused(core, message):
  frame = prompt_format.plain_format(core, [0])
  template = chat.Template(_MARKED)
  tokenizer = tokenizer_lib.Tokenizer(core, frame._replace(template=template))
  with pytest.raises(ValueError, match="'role' and 'content'"):
    tokenizer.encode_chat([message])
  with pytest.raises(ValueError, match='at least one turn'):
    tokenizer.encode_chat([])
