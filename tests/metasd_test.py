"""MetaSD (Kim et al. 2026): its lemmas on simulated rounds.

Where it is known better, the corrected readings: see the docstrings.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import rewards
from specjax import sampling
from specjax import trees
from specjax import verifiers
from specjax.decoding import feedback
from specjax.theory import constant
from tests import optimized
from tests import parts

# Drafters of constant acceptance.

# What target and draft share, and what each says beside it.
_SHARED, _DRAFT, _TARGET = np.array(
  [[0.1, 0.2, 0.3, 0.4], [0.5, 0.5, 0, 0], [0, 0, 0.3, 0.7]], np.float32
)
_CHUNK = 20000


class _Drafter(NamedTuple):
  """Positions agree by `acceptance` plus or minus `spread`, by a fair coin."""

  acceptance: float
  spread: float
  length: int


@functools.partial(optimized.jit, static_argnums=(1, 2, 3))
def _sums(key, drafter, verifier, num_chunks):
  """Returns `[chunks, 2, 2]` sums of BE, BD and their squares over rounds."""
  topology = trees.chain(drafter.length)
  draw = jnp.vectorize(sampling.draw, signature='(u),(v)->()')

  def chunk(key):
    coin_key, draft_key, verify_key = jax.random.split(key, 3)
    shape = _CHUNK, drafter.length
    coins = jax.random.bernoulli(coin_key, shape=(*shape, 1))
    chance = drafter.acceptance + drafter.spread * jnp.where(coins, 1.0, -1.0)
    probs = lambda model_probs: (
      chance * _SHARED[None, None] + (1 - chance) * model_probs[None, None]
    )
    draft, target = probs(_DRAFT), probs(_TARGET)
    tree = base.DraftTree(
      tokens=draw(jax.random.uniform(draft_key, (*shape, 1)), draft),
      topology=topology,
      valid=draft[..., 0] > 0,  # All; XLA would fold a constant for long.
      probs=draft,
    )
    # The bonus token's distribution does not matter here.
    target = jnp.concatenate([target, target[:, :1]], axis=1)
    keys = jax.random.split(verify_key, _CHUNK)
    outcome = jax.vmap(verifier)(keys, tree, target)
    acceptance = feedback.tree_acceptance(
      tree, base.Probs(target, target), outcome
    ).mean
    info = base.RoundInfo(
      arm=jnp.zeros(_CHUNK, jnp.int32),
      live=jnp.ones(_CHUNK, bool),
      tokens=outcome.tokens,
      num_emitted=outcome.num_accepted + 1,
      num_accepted=outcome.num_accepted,
      depth=jnp.full(_CHUNK, drafter.length),
      tree_depth=jnp.full(_CHUNK, drafter.length),
      acceptance=acceptance.processed,
      raw_acceptance=acceptance.raw,
      fidelity=jnp.ones(_CHUNK),
      num_catch_up_tokens=jnp.zeros(_CHUNK, jnp.int32),
    )
    reward_values = jnp.stack(
      [
        rewards.AcceptedFraction()(info),
        rewards.BlockDivergence()(info),
      ]
    )
    return jnp.stack([reward_values.sum(1), (reward_values**2).sum(1)])

  return jax.lax.map(chunk, jax.random.split(key, num_chunks))


def _moments(drafter, verifier, num_chunks):
  """Means and variances `[2]` of BE and BD."""
  sums = np.float64(_sums(jax.random.key(1), drafter, verifier, num_chunks))
  means, squares = sums.mean(0) / _CHUNK
  return means, squares - means**2


@pytest.mark.slow
@pytest.mark.parametrize(
  'drafter',
  [_Drafter(0.3, 0.0, 4), _Drafter(0.6, 0.3, 2), _Drafter(0.8, 0.15, 5)],
)
def test_rewards_of_rounds_have_the_lemmas_moments(drafter):
  """Checks Lemmas 5 to 7 over 6e6 rounds.

  The largest standard errors are 1.8e-4 of the means, 0.5e-4 of the variances
  and 2.6e-4 of the ratio: 1e-3 is 3.8 of them at least, and an error
  of 2e-3 fails with probability 0.999.
  """
  acceptance, spread, length = drafter
  means, variances = _moments(drafter, verifiers.resolve('maximal'), 300)
  statistics = constant.reward_statistics(acceptance, length)
  close = functools.partial(pytest.approx, abs=1e-3)
  assert means[0] == close(statistics.efficiency_mean)
  assert variances[0] == close(statistics.efficiency_variance)
  assert means[1] == close(statistics.divergence_mean)
  assert variances[1] == close(spread**2 / length)
  assert variances[1] < statistics.divergence_variance_bound
  scale = (1 - acceptance**length) / (length * (1 - acceptance))
  assert means[0] / means[1] == close(scale)


def test_moments_reject_a_verifier_that_accepts_too_often():
  """A sample of the target is sometimes the draft token itself."""
  broken = verifiers.TreeWalk(parts.Resampling())
  drafter = _Drafter(0.8, 0.15, 5)
  means, _ = _moments(drafter, broken, 20)
  statistics = constant.reward_statistics(drafter.acceptance, drafter.length)
  assert means[0] > statistics.efficiency_mean + 0.01


def test_fewer_losses_of_divergence_can_need_more_rounds():
  """Checks Lemma 9, and its consequence for the rounds until 200 tokens.

  One policy plays the worst arm once, the other the second-best arm twice; then
  both stay with the best.
  """
  arms, length, num_tokens = (0.1, 0.5, 0.8), 2, 200

  def follow(first):
    """Returns lost divergence, two rounds' accepted tokens, expected rounds."""
    stats = [constant.reward_statistics(arms[arm], length) for arm in first]
    emitted = np.convolve(
      *(constant.block_lengths(arms[arm], length) for arm in first)
    )
    remaining_rounds = [
      constant.expected_rounds(arms[2], length, num_tokens - 2 - num_extra)
      for num_extra in range(len(emitted))
    ]
    return (
      sum(arms[2] - arm_stats.divergence_mean for arm_stats in stats),
      length * sum(arm_stats.efficiency_mean for arm_stats in stats),
      2 + emitted @ remaining_rounds,
    )

  lost_divergence, accepted, rounds = np.array(
    [follow([0, 2]), follow([1, 1])]
  ).T
  np.testing.assert_allclose(lost_divergence, [0.7, 0.6])
  np.testing.assert_allclose(accepted, [1.55, 1.5])
  # A difference of 0.05 tokens, at 2.44 tokens per round.
  assert rounds[1] - rounds[0] == pytest.approx(0.0205, abs=1e-3)
