"""Rows that are continued say what they say if all was a prompt."""

import jax
import numpy as np
import pytest

import specjax
from specjax import bandits
from specjax import base
from specjax import decoding
from specjax import drafters
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.testing import toys

_GREEDY = sampling_lib.Sampling(temperature=0.0)
_PROMPTS = [[1, 2, 3, 1, 2], [4, 5], [6, 7, 8, 9, 6, 7]]
_TURNS = [[3, 1, 2, 3], [9] * 25, [1]]
_LENGTH = 96


def _decoder(arms, **options):
  target, params = toys.transformer()
  return specjax.Decoder(
    target, params, arms, sampling=_GREEDY, max_length=_LENGTH, **options
  )


def _arm(drafter):
  return base.Arm(drafter, verifiers.resolve('greedy'))


def _small(length=3, seed=1):
  model, params = toys.transformer(seed, num_layers=1)
  draft = drafters.DRAFTERS['autoregressive'](
    model, trees.chain(length), _GREEDY
  )
  return _arm(draft), params


def _lookup(name):
  return _arm(drafters.DRAFTERS[name](toys.VOCAB)), None


def _run(decoder, state):
  return decoding.decode(decoder.round_fn, decoder.params, state)


def _texts(state):
  return [
    np.asarray(state.tokens)[i, :length].tolist()
    for i, length in enumerate(np.asarray(state.lengths))
  ]


@pytest.mark.parametrize(
  'arms, options',
  [
    ([_small()], {}),
    pytest.param([_lookup('prompt_lookup')], {}, marks=pytest.mark.slow),
    pytest.param([_lookup('suffix')], {}, marks=pytest.mark.slow),
    (
      [_small(), _small(2, 2), _lookup('prompt_lookup')],
      {'bandit': bandits.BANDITS['ucb1'](3)},
    ),
    pytest.param(
      [_small(), _small(2)],
      {'bandit': bandits.BANDITS['hedge'](2), 'catch_up': 'always'},
      marks=pytest.mark.slow,
    ),
  ],
)
def test_a_second_turn_equals_one_prompt(arms, options):
  decoder = _decoder(arms, **options)
  first = _run(decoder, decoder.init(_PROMPTS, [4, 9, 6]))
  prompts = [text + turn for text, turn in zip(_texts(first), _TURNS)]
  second = _run(decoder, decoder.append(first, _TURNS, [12, 5, 8]))
  whole = decoder.decode(prompts, [12, 5, 8])
  wanted = [prompt + each.tokens for prompt, each in zip(prompts, whole)]
  assert _texts(second) == wanted


def test_drafters_have_read_what_was_appended():
  """They are accepted as often as if all was a prompt."""
  target, params = toys.transformer()
  draft = drafters.DRAFTERS['autoregressive'](target, trees.chain(3), _GREEDY)
  decoder = _decoder([(_arm(draft), params)])
  first = _run(decoder, decoder.init(_PROMPTS, 4))
  before = np.asarray(first.counters.pulls).copy()
  last = _run(decoder, decoder.append(first, _TURNS, 16))
  rounds = np.asarray(last.counters.pulls) - before
  np.testing.assert_array_equal(rounds, 4)  # All drafts, and the bonus.


def test_sampled_rows_go_on_with_their_own_keys():
  """The randomness of a row comes from its key and its length."""
  model, params = toys.transformer()
  decoder = specjax.Decoder(model, params, [_small()], max_length=_LENGTH)
  keys = [decoder.init(_PROMPTS, 4, seed=3).keys for _ in range(2)]
  assert (jax.random.key_data(keys[0]) == jax.random.key_data(keys[1])).all()
  texts = [
    _texts(_run(decoder, decoder.append(state, _TURNS, 12)))
    for state in (
      _run(decoder, decoder.init(_PROMPTS, 4, seed=3)) for _ in range(2)
    )
  ]
  assert texts[0] == texts[1]


def test_a_buffer_can_be_filled_to_the_end():
  decoder = _decoder([_small()])
  first = _run(decoder, decoder.init(_PROMPTS, [4, 9, 6]))
  room = [_LENGTH - len(text) for text in _texts(first)]
  turns = [[2, 3] * 60, [5], [4] * 80]
  turns = [turn[: most - 2] for turn, most in zip(turns, room)]
  prompts = [text + turn for text, turn in zip(_texts(first), turns)]
  second = _run(decoder, decoder.append(first, turns, 2))
  whole = decoder.decode(prompts, 2)
  wanted = [prompt + each.tokens for prompt, each in zip(prompts, whole)]
  assert _texts(second) == wanted


def test_turns_that_do_not_fit_are_refused():
  decoder = _decoder([_small()])
  state = _run(decoder, decoder.init(_PROMPTS, 2))
  for texts, num, reason in (
    ([[1]], 2, 'texts must be one for each of 3 rows, got 1'),
    ([[1], [], [2]], 2, r'texts\[1\] must not be empty'),
    ([[1], [99], [2]], 2, r'texts\[1\] must hold tokens in \[0, 32\)'),
    ([[1], [2], [3] * 90], 2, r'texts\[2\] has 90 tokens; behind a row of 8'),
    ([[1], [2], [3]], -1, 'max_new_tokens'),
  ):
    with pytest.raises(ValueError, match=reason):
      decoder.append(state, texts, num)
