"""Equal decoders share programs; what is data makes no new one."""

import numpy as np
import pytest

import specjax
from specjax import decoding
from specjax import trees
from specjax.decoding import decoder as decoder_lib
from specjax.testing import toys
from tests import arms
from tests import sizes

PROMPTS = sizes.PROMPTS[:2] * 2
PARAMS = toys.markov(0, toys.VOCAB)[1]


def build(temperature, stop=5, arm=0):
  """A decoder of two arms; all of its parts are built anew.

  Each test has a temperature that no other test uses, so that none of its
  programs was compiled before.
  """
  target, params = specjax.models.Markov(toys.VOCAB), PARAMS
  return arms.decoder(
    arms.model(trees.chain(3), (target, params[::-1]), temperature),
    arms.none(),
    target=(target, params),
    bandit=specjax.bandits.Fixed(2, arm=arm),
    reward=specjax.rewards.Tradeoff(0.3),
    temperature=temperature,
    stop_tokens=[stop] if isinstance(stop, int) else stop,
  )


class Compiled:
  """Counts the loops and the prefill programs that are compiled from now on."""

  def __init__(self):
    self._before = self._sizes()

  def _sizes(self):
    return np.array(
      [decoding.decode._cache_size(), decoder_lib._begin._cache_size()]
    )

  def numbers(self):
    return (self._sizes() - self._before).tolist()


def test_equal_decoders_share_one_program():
  """Three stop tokens, four lengths, two arms of `fixed`."""
  compiled = Compiled()
  for i in range(6):
    decoder = build(0.71, stop=(5, 6, [7, 8])[i % 3], arm=i % 2)
    for new in (1, 2, 7, 30):
      results = decoder.decode(PROMPTS, new)
      assert max(len(result.tokens) for result in results) <= new
      assert all(result.pulls[i % 2] == result.rounds for result in results)
  assert compiled.numbers() == [1, 1]


def test_longer_prompts_read_by_another_program_are_decoded_by_the_same():
  compiled = Compiled()
  for length in (3, 16, 17, 30):
    build(0.72).decode([[1] * length] * sizes.ROWS, 4)
  assert compiled.numbers() == [1, 2]


def test_what_is_no_data_makes_another_program():
  """The check above has teeth."""
  compiled = Compiled()
  for temperature in (0.73, 0.74):
    build(temperature).decode(PROMPTS, 4)
  # More stop tokens than there is room for.
  build(0.73, stop=range(9)).decode(PROMPTS, 4)
  assert compiled.numbers() == [3, 3]


def test_rounds_are_values():
  round_fn = build(0.7).round_fn
  same = build(0.7, stop=9, arm=1).round_fn
  assert same == round_fn and hash(same) == hash(round_fn)
  assert build(0.8).round_fn != round_fn


def test_every_one_of_many_stop_tokens_stops():
  """`decoder_test` tries one stop token at a time, in the smaller array."""
  plain = arms.greedy_tokens()
  for stop in set(plain[0]):
    others = [token for token in range(toys.VOCAB) if token not in plain[0]]
    decoder = arms.decoder(
      arms.none(), temperature=0.0, stop_tokens=[*others[:11], stop]
    )
    result = decoder.decode(sizes.PROMPTS, sizes.NEW)[0]
    assert result.tokens == plain[0][: plain[0].index(stop) + 1]


@pytest.mark.parametrize('per_row', [False, True])
def test_a_bandit_begins_by_data(per_row):
  """Whatever its state is, and whether it is given or new."""
  decoder = arms.decoder(
    *[arms.none()] * 3,
    target=arms.MARKOV_TARGET,
    bandit='round_robin',
    per_row=per_row,
  )
  begin = np.int32([1, 2]) if per_row else np.int32(1)
  fresh = decoder.decode([[1], [2]], 4)
  given = decoder.decode([[1], [2]], 4, bandit_state=begin)
  assert [result.pulls.tolist() for result in fresh] == [[2, 1, 1]] * 2
  wanted = [[1, 2, 1], [1, 1, 2]] if per_row else [[1, 2, 1]] * 2
  assert [result.pulls.tolist() for result in given] == wanted
