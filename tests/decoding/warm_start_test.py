"""What bandits learn from prompts, against whole texts without a cache."""

import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from tests.decoding import arms_test

PROMPTS = arms_test.PROMPTS  # Of 1, 3, 12 and 2 tokens.


def arms():
  """Two of one model, one of another, a deterministic one, and none."""
  return [
    arms_test.sampled(arms_test.DRAFT(), trees.chain(3), chunk=2),
    arms_test.sampled(arms_test.DRAFT(), trees.chain(1), chunk=2),
    arms_test.sampled(arms_test.OTHER(), trees.chain(2)),
    arms_test.counting_up(2),
    arms_test.none(),
  ]


def acceptances(num_tokens):
  """`[rows, arms]` means over the last tokens that some token precedes."""
  width = max(map(len, PROMPTS))
  text = np.array([p + [0] * (width - len(p)) for p in PROMPTS], np.int32)
  by_slot = arms_test.chances(jnp.asarray(text))
  return [
    [
      by_slot[slot][row, max(size - 1 - num_tokens, 0) : size - 1].mean()
      for slot in (0, 0, 1, 2, 3)
    ]
    for row, size in enumerate(map(len, PROMPTS))
    if size > 1
  ]


@pytest.mark.slow
@pytest.mark.parametrize(
  ('num_tokens', 'catch_up'), [(1, 'always'), (4, 'lazy'), (40, 'always')]
)
def test_output_does_not_depend_on_what_was_learnt(num_tokens, catch_up):
  """Nor on how the caches were filled: arms are random, whatever they earn."""
  options = {'catch_up': catch_up, 'per_row': True}
  plain, taught = (
    arms_test.decoder('uniform', arms(), warm_start=num, **options)
    for num in (0, num_tokens)
  )
  want, got = (each.decode(PROMPTS, 24) for each in (plain, taught))
  assert arms_test.tokens(got) == arms_test.tokens(want)
  assert [each.rounds for each in got] == [each.rounds for each in want]


@arms_test.SCOPES
@pytest.mark.parametrize('num_tokens', [2, 40])
def test_each_arm_counts_as_played_once(per_row, num_tokens):
  decoder = arms_test.decoder(
    'ucb1',
    arms(),
    reward=rewards.block_divergence(),
    warm_start=num_tokens,
    per_row=per_row,
  )
  bandit = decoder.init(PROMPTS, 8).bandit
  want = np.array(acceptances(num_tokens))
  if per_row:  # A prompt of one token shows nothing.
    assert (bandit.pulls[0] == 0).all() and (bandit.rewards[0] == 0).all()
    assert (bandit.pulls[1:] == 1).all()
    np.testing.assert_allclose(bandit.rewards[1:], want, atol=2e-5)
  else:
    assert (bandit.pulls == 1).all()
    np.testing.assert_allclose(bandit.rewards, want.mean(0), atol=2e-5)


def test_hedge_learns_once_from_all_arms():
  decoder = arms_test.decoder(
    arms_test.recorder,
    arms(),
    reward=rewards.block_divergence(),
    warm_start=3,
    per_row=True,
    catch_up='always',
  )
  learnt = decoder.init(PROMPTS, 8).bandit
  assert (learnt[0] == -1).all()
  np.testing.assert_allclose(learnt[1:], acceptances(3), atol=2e-5)


def test_what_earlier_prompts_have_taught_is_carried_over():
  decoder = arms_test.decoder('ucb1', arms(), warm_start=2)
  first = decoder.init(PROMPTS, 8).bandit
  second = decoder.init(PROMPTS, 8, bandit_state=first).bandit
  assert (second.pulls == 2).all()


def test_bad_requests_are_refused():
  with pytest.raises(ValueError, match='warm_start must be >= 0, got -1'):
    arms_test.decoder('ucb1', arms(), warm_start=-1)
  with pytest.raises(ValueError, match='warm_start=3 needs a bandit'):
    arms_test.decoder(lambda num_arms: None, arms(), warm_start=3)
  with pytest.raises(ValueError, match='warm_start=3 needs a reward'):
    arms_test.decoder('ucb1', arms(), reward=None, warm_start=3)
  functions, params = arms_test.DRAFT()
  member = specjax.DRAFTERS['autoregressive'](
    functions, trees.chain(1), sampling_lib.Sampling()
  )
  both = specjax.DRAFTERS['ensemble']([member, member])
  arm = specjax.Arm(both, verifiers.resolve('ensemble')), (params, params)
  message = 'warm_start must be 0 with drafters that cannot estimate .* got 3'
  with pytest.raises(ValueError, match=message):
    arms_test.decoder('ucb1', [arm], warm_start=3)
