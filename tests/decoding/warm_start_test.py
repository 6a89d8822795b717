"""What bandits learn from prompts, against whole texts without a cache."""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import drafters
from specjax import rewards
from specjax import trees
from tests import arms
from tests import sizes
from tests.decoding import arms_test

PROMPTS = sizes.PROMPTS  # Of 1, 3, 12 and 2 tokens.


def learner(bandit, **options):
  """Arms of two models, a deterministic one, and plain decoding."""
  return arms.decoder(
    *arms_test.varied_lengths(),
    **{'bandit': bandit, 'reward': rewards.BlockDivergence()} | options,
  )


def acceptances(num_tokens):
  """`[rows, arms]` means over the last tokens that some token precedes."""
  width = max(map(len, PROMPTS))
  text = np.array([p + [0] * (width - len(p)) for p in PROMPTS], np.int32)
  by_slot = arms_test.acceptance_of_text(jnp.asarray(text))
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
  ('num_tokens', 'catch_up'), [(4, 'lazy'), (40, 'always')]
)
def test_output_does_not_depend_on_what_was_learnt(num_tokens, catch_up):
  """Nor on how the caches were filled: arms are random, whatever they earn."""
  plain, taught = (
    learner('uniform', catch_up=catch_up, per_row=True, warm_start=num).decode(
      PROMPTS, sizes.NEW
    )
    for num in (0, num_tokens)
  )
  assert arms.tokens(taught) == arms.tokens(plain)
  for one, other in zip(taught, plain):
    assert one.rounds == other.rounds


@pytest.mark.parametrize(('per_row', 'num_tokens'), [(True, 2), (False, 40)])
def test_each_arm_counts_as_played_once(per_row, num_tokens):
  """What earlier prompts have taught is carried over."""
  decoder = learner('ucb1', warm_start=num_tokens, per_row=per_row)
  bandit = decoder.init(PROMPTS, 8).bandit
  want = np.array(acceptances(num_tokens))
  if per_row:  # A prompt of one token shows nothing.
    assert (bandit.pulls[0] == 0).all() and (bandit.rewards[0] == 0).all()
    assert (bandit.pulls[1:] == 1).all()
    np.testing.assert_allclose(bandit.rewards[1:], want, atol=2e-5)
  else:
    assert (bandit.pulls == 1).all()
    np.testing.assert_allclose(bandit.rewards, want.mean(0), atol=2e-5)
  second = decoder.init(PROMPTS, 8, bandit_state=bandit).bandit
  np.testing.assert_array_equal(second.pulls, 2 * bandit.pulls)


def test_hedge_learns_once_from_all_arms():
  decoder = learner(
    arms_test.Recorder(5), warm_start=3, per_row=True, catch_up='always'
  )
  learnt = decoder.init(PROMPTS, 8).bandit
  assert (learnt[0] == -1).all()
  np.testing.assert_allclose(learnt[1:], acceptances(3), atol=2e-5)


def test_bad_requests_are_refused():
  with pytest.raises(ValueError, match='warm_start must be >= 0, got -1'):
    learner('ucb1', warm_start=-1)
  with pytest.raises(ValueError, match='warm_start=3 needs a bandit'):
    learner(None, warm_start=3)
  with pytest.raises(ValueError, match='warm_start=3 needs a reward'):
    learner('ucb1', reward=None, warm_start=3)
  functions, params = arms.DRAFT
  member = drafters.autoregressive(functions, trees.chain(1))
  both = drafters.ensemble([member, member])
  arm = arms.arm(both, (params, params), 'ensemble')
  message = 'warm_start must be 0 with drafters that cannot estimate .* got 3'
  with pytest.raises(ValueError, match=message):
    arms.decoder(arm, bandit='ucb1', warm_start=3)
