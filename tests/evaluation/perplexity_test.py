import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import models
from specjax.data import examples as examples_lib
from specjax.data import tokenizer as tokenizer_lib
from specjax.evaluation import perplexity
from specjax.models import adapters

_ROW_LENGTH = 32
_EXAMPLES = [
  examples_lib.Example('math', 'What is 1 + 1?', '2, or 10 in binary.'),
  examples_lib.Example('talk', 'Say hello', 'Grüß Gott! 🙂'),
  examples_lib.Example('math', '2 * 3', 'six'),
  examples_lib.Example('talk', 'Now be silent', ''),
  examples_lib.Example('math', 'Count', ' '.join(map(str, range(30)))),
]


@pytest.fixture(scope='module', name='tokenizer')
def _tokenizer():
  return tokenizer_lib.train([e.prompt + e.response for e in _EXAMPLES], 270)


@pytest.fixture(scope='module', name='table')
def _table():
  """`[H, V, V]` chances of the next token, which change with the position."""
  draw = np.random.default_rng(0)
  table = draw.dirichlet(np.ones(270), (_ROW_LENGTH, 270))
  return np.maximum(table, 1e-9).astype(np.float32)


def _bits_per_byte(tokenizer, table, examples, **options):
  return perplexity.bits_per_byte(
    functools.partial(adapters.packed_logits, models.Markov(270)),
    jnp.asarray(table),
    tokenizer,
    examples,
    _ROW_LENGTH,
    **options,
  )


def _directly(tokenizer, table, examples):
  """Adds up the tokens of one domain one by one."""
  bits = num_bytes = 0
  for example in examples:
    prompt = tokenizer.encode_prompt(example.prompt)
    response = tokenizer.encode_response(example.response)
    tokens = (prompt + response)[:_ROW_LENGTH]
    for t in range(len(prompt), len(tokens)):
      bits -= math.log2(table[t - 1, tokens[t - 1], tokens[t]])
    num_read = max(0, len(tokens) - len(prompt)) / len(response)
    num_bytes += num_read * len(example.response.encode('utf-8'))
  return bits / num_bytes


@pytest.mark.parametrize('batch_size', [2, 8])
def test_bits_per_byte_equal_a_direct_sum(tokenizer, table, batch_size):
  """Over examples of mixed domains, the last of which exceeds a row.

  Neither the rows that fill up a batch nor the other domain may count.
  """
  lengths = [
    len(tokenizer.encode_example(e.prompt, e.response)[0]) for e in _EXAMPLES
  ]
  assert max(lengths[:-1]) <= _ROW_LENGTH < lengths[-1]
  got = _bits_per_byte(tokenizer, table, _EXAMPLES, batch_size=batch_size)
  assert list(got) == ['math', 'talk']
  for domain, bits in got.items():
    assert isinstance(bits, float)
    examples = [e for e in _EXAMPLES if e.domain == domain]
    expected = _directly(tokenizer, table, examples)
    np.testing.assert_allclose(bits, expected, rtol=1e-5)


@pytest.mark.parametrize('example', [_EXAMPLES[0], _EXAMPLES[-1]])
def test_a_uniform_model_needs_the_bits_of_the_vocabulary(tokenizer, example):
  """Also for what is cut off, as bytes are left out in proportion to tokens."""
  table = np.full((270, 270), 1 / 270, np.float32)
  got = _bits_per_byte(tokenizer, table, [example])
  num_tokens = len(tokenizer.encode_response(example.response))
  expected = num_tokens * math.log2(270) / len(example.response)
  assert got == {'math': pytest.approx(expected, rel=1e-5)}


@pytest.mark.parametrize('extra', [0, 1, 100])
def test_a_prompt_that_fills_a_row_does_not_count(tokenizer, table, extra):
  """Nothing of its response is seen: neither bits nor bytes."""
  prompt = '9' * (_ROW_LENGTH - 2 + extra)  # Digits and two markers.
  assert len(tokenizer.encode_prompt(prompt)) == _ROW_LENGTH + extra
  unseen = examples_lib.Example('math', prompt, 'unseen')
  got = _bits_per_byte(tokenizer, table, [unseen, *_EXAMPLES])
  expected = _bits_per_byte(tokenizer, table, _EXAMPLES)
  assert got == pytest.approx(expected, rel=1e-6)


def test_a_domain_of_which_no_byte_is_seen_raises(tokenizer, table):
  """Rather than giving NaN."""
  unseen = examples_lib.Example('long', '9' * 40, 'unseen')
  with pytest.raises(ValueError, match="row_length.*'long'"):
    _bits_per_byte(tokenizer, table, [unseen, *_EXAMPLES])
