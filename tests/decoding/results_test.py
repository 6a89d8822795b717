"""What goes wrong in a decode is flagged, and raised on the host."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import components
from specjax import decoding
from specjax.testing import toys
from tests import arms
from tests import sizes
from tests import twins

TARGET = toys.markov(0, toys.VOCAB)


def decoder(bandit='fixed', num_arms=2, **options):
  """A decoder of two arms that draft nothing."""
  return arms.decoder(
    *[arms.none()] * 2,
    target=TARGET,
    bandit=specjax.BANDITS[bandit](num_arms),
    **options,
  )


def test_an_arm_that_is_not_there_ends_its_row():
  """No token is made up, and the loop comes to an end."""
  routed, prompts = decoder(per_row=True), [[1], [2], [3], [4], [5]]
  selected = np.array([0, 2, 5, -1, 1], np.int32)
  state = routed.init(prompts, 6, bandit_state=selected)
  state = decoding.decode(routed.round_fn, routed.params, state)
  assert state.lengths.tolist() == [7, 1, 1, 1, 7]
  assert state.counters.pulls.tolist() == [[6, 0], *[[0, 0]] * 3, [0, 6]]
  assert state.flags.arm.tolist() == [False, True, True, True, False]
  message = r'arm must lie in \[0, 1\], but the bandit .* in rows \[1, 2, 3\]'
  with pytest.raises(ValueError, match=message):
    routed.results(prompts, state)


def test_an_arm_that_is_not_there_ends_the_batch():
  full_decoder = decoder()
  for arm in (2, 5, -1):
    with pytest.raises(ValueError, match=r'in rows \[0, 1, 2, 3\]'):
      full_decoder.decode(sizes.PROMPTS, 6, bandit_state=np.int32(arm))
    with pytest.raises(ValueError, match=r'in rows \[0\]'):
      list(full_decoder.stream([1], 6, bandit_state=np.int32(arm)))


@components.component
class Bad(specjax.Reward):
  """A reward of which only that of the first arm is one."""

  def __call__(self, info):
    return jnp.array([0.5, 1.5, -0.1, jnp.nan])[info.arm]


def test_a_reward_outside_of_the_unit_interval_is_reported():
  """In one row alone: the message names it."""
  bad = arms.decoder(
    *[arms.none()] * 4, target=TARGET, per_row=True, reward=Bad()
  )
  for arm in (1, 2, 3):
    selected = np.array([0, arm, 0, 0], np.int32)
    with pytest.raises(ValueError, match=r'lie in \[0, 1\].* in rows \[1\]'):
      bad.decode(sizes.PROMPTS, 2, bandit_state=selected)


@components.component
class Constant(specjax.models.Markov):
  """A model whose parameters are logits, which it gives after every token."""

  def extend(self, table, cache, tokens, **options):
    output = super().extend(table, cache, tokens, **options)
    return output._replace(logits=table[tokens])


def constant(*logits):
  return Constant(3), jnp.array([logits] * 3, jnp.float32)


@pytest.mark.parametrize(
  ('logits', 'temperature'),
  [
    ([0.0, np.nan, 0.0], 0.0),
    ([0.0, np.inf, 0.0], 1.0),
    ([-np.inf] * 3, 1.0),  # All tokens are forbidden.
    ([-np.inf] * 3, 0.0),
    ([3e38, 0.0, 0.0], 0.1),  # Finite, but not after temperature.
  ],
)
def test_logits_of_the_target_that_are_not_finite_are_raised(
  logits, temperature
):
  plain = arms.decoder(
    arms.none(), target=constant(*logits), temperature=temperature
  )
  with pytest.raises(FloatingPointError, match=r'The target .* rows \[0\]'):
    plain.decode([[1]], 3)


def test_a_forbidden_token_is_nothing_wrong():
  plain = arms.decoder(arms.none(), target=constant(0.0, -np.inf, 0.0))
  assert 1 not in plain.decode([[1]], 12)[0].tokens


def test_probabilities_of_a_drafter_that_are_nan_are_raised():
  """Its NaN would reject every draft and leave a residual of NaN."""
  decoder = arms.decoder(
    arms.chain(draft=constant(0.0, np.nan, 0.0)),
    target=constant(0.0, 1.0, 2.0),
  )
  with pytest.raises(FloatingPointError, match=r'A drafter .* rows \[0\]'):
    decoder.decode([[1]], 3)


def test_one_bad_probability_is_raised_though_it_was_not_drawn():
  sound, params = arms.chain(draft=arms.MARKOV_DRAFT)

  def draft(*args):
    tree, proposal = sound.drafter.draft(*args)
    is_drafted = jax.nn.one_hot(tree.tokens, 3) > 0
    bad = jnp.roll(is_drafted, 1, axis=-1)
    return tree._replace(probs=jnp.where(bad, jnp.nan, tree.probs)), proposal

  arm = sound._replace(drafter=twins.twin(sound.drafter, draft=draft))
  decoder = arms.decoder((arm, params), target=arms.MARKOV_TARGET)
  with pytest.raises(FloatingPointError, match=r'A drafter .* rows \[0\]'):
    decoder.decode([[1]], 3)
