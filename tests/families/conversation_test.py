"""Tests that a conversation answers as if all turns were one prompt."""

import jax
import numpy as np
import pytest
import tokenizers
from tokenizers import decoders
from tokenizers import models
from tokenizers import pre_tokenizers

import specjax
from specjax import decoding
from specjax import families
from specjax import models as models_lib
from specjax import sampling as sampling_lib
from specjax.data import chat
from specjax.data import prompt_format
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.testing import toys


@pytest.fixture(scope='module', name='decoder')
def _decoder():
  """A greedy decoder for a random model of a chat tokenizer."""
  tokenizer = toys.chat_tokenizer()
  config = config_lib.TransformerConfig(
    vocab_size=tokenizer.vocab_size,
    num_layers=1,
    d_model=16,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    d_ff=16,
  )
  params = [
    jax.tree.map(
      lambda x: 12 * x if x.ndim > 1 else x,
      flax_modules.init_params(jax.random.key(seed), config),
    )
    for seed in (0, 1)
  ]
  model = adapters.Transformer(config)
  return decoding.speculative(
    model,
    params[0],
    model,
    params[1],
    draft_length=2,
    sampling=sampling_lib.Sampling(temperature=0.0),
    stop_tokens=tokenizer.stop_tokens,
    max_length=160,
  )


def _say(conversation, text, num=12):
  chunks = list(conversation.say(text, num))
  pieces = [piece for chunk in chunks for piece, _ in chunk.pieces]
  return ''.join(pieces), chunks


def _answer_to(decoder, tokenizer, messages, num=12):
  """Returns the answer to a conversation that is given as one prompt."""
  (result,) = decoder.decode([tokenizer.encode_chat(messages)], num)
  stops = tokenizer.stop_tokens
  return tokenizer.decode([t for t in result.tokens if t not in stops])


def test_each_turn_answers_the_whole_conversation(decoder):
  tokenizer = toys.chat_tokenizer()
  conversation = families.Conversation(tokenizer, decoder)
  for text in ('Hello!', 'Who?', 'Ünd?'):
    answer, chunks = _say(conversation, text)
    *history, answer_message = conversation.messages
    assert answer_message == {'role': 'assistant', 'content': answer}
    assert history[-1] == {'role': 'user', 'content': text}
    assert answer == _answer_to(decoder, tokenizer, history)
    assert sum(chunk.num_tokens for chunk in chunks) <= 12


def test_past_turns_are_read_once(decoder, monkeypatch):
  conversation = families.Conversation(toys.chat_tokenizer(), decoder)
  prompts = []
  init = decoder.init

  def count_call(*args, **options):
    prompts.append(args)
    return init(*args, **options)

  monkeypatch.setattr(decoder, 'init', count_call)
  for text in ('Hello!', 'Who?', 'Why?'):
    _say(conversation, text)
  assert len(prompts) == 1


def _metaspace():
  """Returns a tokenizer of letters that begins each text with a space."""
  letters = [*'▁abHWelouh!?', *map(chr, range(97, 123))]
  names = ['<user>', '<end>', '<assistant>', *dict.fromkeys(letters), 'lo']
  core = tokenizers.Tokenizer(
    models.BPE({name: i for i, name in enumerate(names)}, [('l', 'o')])
  )
  core.add_special_tokens(names[:3])
  core.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme='first')
  core.decoder = decoders.Metaspace(prepend_scheme='first')
  template = chat.Template(
    '{% for m in messages %}{% if m.role == "user" %}'
    '{{ "<user> " + m.content + "<assistant>" }}'
    '{% else %}{{ m.content + "<end>" }}{% endif %}{% endfor %}'
  )
  return tokenizer_lib.Tokenizer(
    core, prompt_format.plain_format(core, [1])._replace(template=template)
  )


@pytest.mark.parametrize('make', [toys.chat_tokenizer, _metaspace])
@pytest.mark.parametrize('letters', ['a', 'lo'])
def test_the_tokens_read_are_those_of_one_prompt(make, letters, monkeypatch):
  """The model answers with the letters, one by one, and a stop token.

  In a longer text, 'lo' may be one token.
  """
  tokenizer = make()
  end = tokenizer.end_id
  emitted = [tokenizer.encode_after('b', letter)[0] for letter in letters]
  successors = np.full(tokenizer.vocab_size, emitted[0])
  successors[emitted] = [*emitted[1:], end]
  ending = decoding.speculative(
    specjax.models.Markov(tokenizer.vocab_size),
    np.eye(tokenizer.vocab_size, dtype=np.float32)[successors],
    None,
    stop_tokens=tokenizer.stop_tokens,
    max_length=160,
  )
  conversation = families.Conversation(tokenizer, ending)
  answer, _ = _say(conversation, 'Hello!')
  assert answer == letters
  expected = tokenizer.encode_chat(conversation.messages[:1])
  expected += [*tokenizer.encode_after('b', letters), end]
  append = ending.append

  def recorded(state, prompts, *args):
    expected.extend(prompts[0])
    return append(state, prompts, *args)

  monkeypatch.setattr(ending, 'append', recorded)
  _say(conversation, 'Who?')
  assert expected == tokenizer.encode_chat(conversation.messages[:-1])


def test_an_answer_that_is_closed_early_stays_in_the_conversation(decoder):
  tokenizer = toys.chat_tokenizer()
  conversation = families.Conversation(tokenizer, decoder)
  rounds = conversation.say('Hello!', 40)
  part = ''.join(piece for piece, _ in next(rounds).pieces)
  rounds.close()
  assert conversation.messages[-1]['content'] == part
  answer, _ = _say(conversation, 'Go on.')
  assert answer == _answer_to(decoder, tokenizer, conversation.messages[:-1])


# What may end a round: a user, or XLA when memory runs out.
_INTERRUPTIONS = KeyboardInterrupt, jax.errors.JaxRuntimeError


@pytest.mark.parametrize('error', _INTERRUPTIONS)
def test_an_interrupted_conversation_is_read_again(decoder, monkeypatch, error):
  tokenizer = toys.chat_tokenizer()
  conversation = families.Conversation(tokenizer, decoder)

  def broken(*args):
    raise error

  with monkeypatch.context() as patch:
    patch.setattr(decoding, 'stream', broken)
    with pytest.raises(error):
      _say(conversation, 'Hello!')
  assert conversation.messages[-1]['content'] == ''
  answer, _ = _say(conversation, 'Who?')
  assert answer == _answer_to(decoder, tokenizer, conversation.messages[:-1])


@pytest.mark.parametrize('error', _INTERRUPTIONS)
def test_an_interrupted_prefill_leaves_no_message(decoder, monkeypatch, error):
  tokenizer = toys.chat_tokenizer()
  conversation = families.Conversation(tokenizer, decoder)

  def broken(*args, **options):
    raise error

  for name in ('init', 'append'):
    messages = list(conversation.messages)
    with monkeypatch.context() as patch:
      patch.setattr(decoder, name, broken)
      with pytest.raises(error):
        _say(conversation, 'Hello!')
    assert conversation.messages == messages
    answer, _ = _say(conversation, 'Who?')
    assert answer == _answer_to(decoder, tokenizer, conversation.messages[:-1])


def test_a_conversation_with_nan_raises():
  tokenizer = toys.chat_tokenizer()
  target = models_lib.Markov(tokenizer.vocab_size)
  table = np.full((tokenizer.vocab_size,) * 2, np.nan, np.float32)
  decoder = decoding.speculative(
    target, table, None, None, stop_tokens=tokenizer.stop_tokens, max_length=64
  )
  conversation = families.Conversation(tokenizer, decoder)
  with pytest.raises(FloatingPointError, match='NaN'):
    _say(conversation, 'Hello!')


def test_a_prompt_that_changes_past_turns_is_read_from_the_start(decoder):
  """The template here contains only the last turn."""
  source = '{% set m = messages[-1] %}<user>{{ m.content }}<end><assistant>'
  tokenizer = toys.chat_tokenizer(source)
  conversation = families.Conversation(tokenizer, decoder)
  for text in ('Hello!', 'Who?'):
    answer, _ = _say(conversation, text)
    turn = [{'role': 'user', 'content': text}]
    assert answer == _answer_to(decoder, tokenizer, turn)


def test_a_turn_that_is_too_long_leaves_the_conversation_unchanged(decoder):
  conversation = families.Conversation(toys.chat_tokenizer(), decoder)
  _say(conversation, 'Hello!')
  messages = list(conversation.messages)
  with pytest.raises(ValueError, match='it exceeds max_length=160'):
    _say(conversation, 'x' * 150)
  assert conversation.messages == messages
  assert _say(conversation, 'Who?')[1]


def test_invalid_conversations_are_refused(decoder):
  with pytest.raises(ValueError, match='must have a chat template'):
    families.Conversation(toys.chat_tokenizer(None), decoder)
  with pytest.raises(ValueError, match='text must not be empty'):
    _say(families.Conversation(toys.chat_tokenizer(), decoder), '')
