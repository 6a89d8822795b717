"""Rows that are continued say what they say if all was a prompt."""

import jax
import numpy as np
import pytest

from specjax import decoding
from specjax import drafters
from specjax.testing import toys
from tests import arms
from tests import sizes

TURNS = [[3, 1, 2, 3], [9] * 25, [1], [7, 8]]


def run(decoder, state):
  return decoding.decode(decoder.round_fn, decoder.params, state)


def texts_of(state):
  return [
    np.asarray(state.tokens)[i, :length].tolist()
    for i, length in enumerate(np.asarray(state.lengths))
  ]


def chain_decoder(**options):
  return arms.decoder(
    arms.chain(temperature=0.0), **{'temperature': 0.0} | options
  )


def check_equals_one_prompt(decoder, first, turns, new):
  """Appends a turn to rows that are done; returns the final state."""
  prompts = [text + turn for text, turn in zip(texts_of(first), turns)]
  second = run(decoder, decoder.append(first, turns, new))
  whole = decoder.decode(prompts, new)
  wanted = [prompt + result.tokens for prompt, result in zip(prompts, whole)]
  assert texts_of(second) == wanted
  return second


@pytest.mark.parametrize(
  ('build', 'options'),
  [
    ([arms.chain], {}),
    (
      [
        arms.chain,
        lambda **options: arms.chain(2, arms.OTHER, **options),
        lambda **_: arms.lookup(verifier='greedy'),
      ],
      {'bandit': 'ucb1'},
    ),
    pytest.param(
      [lambda **_: arms.arm(drafters.suffix(toys.VOCAB), verifier='greedy')],
      {},
      marks=pytest.mark.slow,
    ),
    pytest.param(
      [arms.chain, lambda **options: arms.chain(2, **options)],
      {'bandit': 'hedge', 'catch_up': 'always'},
      marks=pytest.mark.slow,
    ),
  ],
  ids=['chain', 'several arms', 'suffix', 'full information'],
)
def test_a_second_turn_equals_one_prompt(build, options):
  decoder = arms.decoder(
    *[arm(temperature=0.0) for arm in build], temperature=0.0, **options
  )
  first = run(decoder, decoder.init(sizes.PROMPTS, [4, 9, 6, 5]))
  check_equals_one_prompt(decoder, first, TURNS, [12, 5, 8, 1])


def ensemble(*arms_inside):
  """An arm that drafts by all of some arms."""
  inside, params = zip(*arms_inside)
  drafter = drafters.ensemble([arm.drafter for arm in inside])
  return arms.arm(drafter, params, 'greedy')


def windowed(inner):
  arm, params = inner
  return arm._replace(drafter=drafters.windowed(arm.drafter)), params


@pytest.mark.parametrize(
  'wrap',
  [
    pytest.param(lambda arm: arm, id='autoregressive'),
    *(
      pytest.param(wrap, id=name, marks=pytest.mark.slow)
      for name, wrap in {
        'deferred': arms.deferred,
        'windowed': windowed,
        'ensemble': lambda arm: ensemble(arm, arms.lookup(1, 'greedy')),
      }.items()
    ),
  ],
)
def test_drafters_have_read_what_was_appended_and_nothing_else(wrap):
  """Rounds are as many as if all was a prompt, wherever a draft was cut."""
  arm = wrap(arms.chain(draft=arms.TARGET, temperature=0.0))
  decoder = arms.decoder(arm, temperature=0.0)
  for cut in (1, 2, 3, 4):
    first = run(decoder, decoder.init(sizes.PROMPTS, cut))
    before = np.asarray(first.counters.pulls).copy()
    prompts = [text + turn for text, turn in zip(texts_of(first), TURNS)]
    last = run(decoder, decoder.append(first, TURNS, 16))
    whole = decoder.decode(prompts, 16)
    np.testing.assert_array_equal(
      np.asarray(last.counters.pulls) - before,
      [result.pulls for result in whole],
    )


def test_sampled_rows_go_on_with_their_own_keys():
  """The randomness of a row comes from its key and its length."""
  decoder = arms.decoder(arms.chain())
  states = [
    run(decoder, decoder.init(sizes.PROMPTS, 4, seed=3)) for _ in range(2)
  ]
  keys = [jax.random.key_data(state.keys) for state in states]
  assert (keys[0] == keys[1]).all()
  one, other = (
    texts_of(run(decoder, decoder.append(state, TURNS, 12))) for state in states
  )
  assert one == other


def test_a_buffer_can_be_filled_to_the_end():
  decoder = chain_decoder()
  first = run(decoder, decoder.init(sizes.PROMPTS, [4, 9, 6, 5]))
  room = [sizes.BUFFER - len(text) for text in texts_of(first)]
  turns = [[2, 3] * 40, [5], [4] * 60, [6, 7]]
  turns = [turn[: most - 2] for turn, most in zip(turns, room)]
  last = check_equals_one_prompt(decoder, first, turns, 2)
  assert sorted(last.lengths.tolist())[-2:] == [sizes.BUFFER] * 2


def test_turns_that_do_not_fit_are_refused():
  decoder = chain_decoder()
  state = run(decoder, decoder.init(sizes.PROMPTS, 2))
  for texts, num, reason in (
    ([[1]], 2, 'texts must be one for each of 4 rows, got 1'),
    ([[1], [], [2], [3]], 2, r'texts\[1\] must not be empty'),
    ([[1], [99], [2], [3]], 2, r'texts\[1\] must hold tokens in \[0, 32\)'),
    (
      [[1], [2], [3] * 60, [4]],
      2,
      r'texts\[2\] has 60 tokens; behind a row of 14',
    ),
    ([[1], [2], [3], [4]], -1, 'max_new_tokens'),
  ):
    with pytest.raises(ValueError, match=reason):
      decoder.append(state, texts, num)
