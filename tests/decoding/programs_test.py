"""Equal decoders share programs; what is data makes no new one."""

import jax
import numpy as np
import pytest

import specjax
from specjax import decoding
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import decoder as decoder_lib
from specjax.testing import toys


def build(stop=5, arm=0, temperature=0.7):
  """A decoder of two arms; all of its parts are built anew."""
  sampling = sampling_lib.Sampling(temperature)
  drafter = specjax.DRAFTERS['autoregressive'](
    specjax.MODELS['markov'](toys.VOCAB), trees.chain(3), sampling
  )
  target, params = toys.markov(0, toys.VOCAB)
  arms = [
    (specjax.Arm(drafter, verifiers.resolve('maximal')), params[::-1]),
    (
      specjax.Arm(
        specjax.DRAFTERS['prompt_lookup'](2),
        verifiers.resolve('block'),
      ),
      None,
    ),
  ]
  return specjax.Decoder(
    target,
    params,
    arms,
    bandit=specjax.BANDITS['fixed'](2, arm=arm),
    reward=specjax.REWARDS['tradeoff'](0.3),
    sampling=sampling,
    stop_tokens=[stop] if isinstance(stop, int) else stop,
    max_length=64,
  )


def sizes():
  return decoding.decode._cache_size(), decoder_lib._begin._cache_size()


def test_equal_decoders_share_one_program():
  """Eight of them, three stop tokens, four lengths, two arms of `fixed`."""
  jax.clear_caches()
  for i in range(8):
    decoder = build(stop=(5, 6, [7, 8])[i % 3], arm=i % 2)
    for new in (1, 2, 7, 30):
      results = decoder.decode([[1], [2, 3]], new)
      assert max(len(result.tokens) for result in results) <= new
      assert all(result.pulls[i % 2] == result.rounds for result in results)
  assert sizes() == (1, 1)


def test_longer_prompts_read_by_another_program_are_decoded_by_the_same():
  jax.clear_caches()
  for length in (3, 16, 17, 30):
    build().decode([[1] * length], 4)
  assert sizes() == (1, 2)


def test_what_is_no_data_makes_another_program():
  """The check above has teeth."""
  jax.clear_caches()
  for temperature in (0.7, 0.8):
    build(temperature=temperature).decode([[1]], 4)
  build(stop=range(9)).decode([[1]], 4)  # More than there is room for.
  assert sizes() == (3, 3)


def test_rounds_are_values():
  round_fn = build().round_fn
  same = build(stop=9, arm=1).round_fn
  assert same == round_fn and hash(same) == hash(round_fn)
  assert build(temperature=0.8).round_fn != round_fn


def test_every_stop_token_stops():
  """Few and many, each at its place."""
  greedy = lambda stop: build(stop, temperature=0.0).decode([[1]], 20)[0].tokens
  plain = greedy([])
  for stop in set(plain):
    others = [token for token in range(toys.VOCAB) if token not in plain]
    for stops in ([stop], [*others[:11], stop]):
      assert greedy(stops) == plain[: plain.index(stop) + 1]


@pytest.mark.parametrize('per_row', [False, True])
def test_a_bandit_begins_by_data(per_row):
  """Whatever its state is, and whether it is given or new."""
  target, params = toys.markov(0, toys.VOCAB)
  none = specjax.Arm(specjax.DRAFTERS['none'](), verifiers.resolve('maximal'))
  decoder = specjax.Decoder(
    target,
    params,
    [(none, None)] * 3,
    bandit=specjax.BANDITS['round_robin'](3),
    per_row=per_row,
    max_length=32,
  )
  begin = np.int32([1, 2]) if per_row else np.int32(1)
  fresh = decoder.decode([[1], [2]], 4)
  given = decoder.decode([[1], [2]], 4, bandit_state=begin)
  assert [result.pulls.tolist() for result in fresh] == [[2, 1, 1]] * 2
  wanted = [[1, 2, 1], [1, 1, 2]] if per_row else [[1, 2, 1]] * 2
  assert [result.pulls.tolist() for result in given] == wanted
