"""What bandits receive: rewards of all arms, and what is carried over.

Oracles: the models themselves, without a cache, on whole texts; closed forms of
constant acceptance.
"""

import collections
import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import components
from specjax import trees
from specjax.decoding import drivers
from specjax.testing import toys
from tests import arms
from tests import sizes
from tests import tiers
from tests.decoding import arms_test


def counting_up(length=2):
  """The deterministic drafter that goes on with the next tokens by number."""

  def propose(params, context):
    last_tokens = context.lengths[:, None] - 1
    last_tokens = jnp.take_along_axis(context.tokens, last_tokens, axis=1)
    tokens = (last_tokens + 1 + np.arange(length)[None]) % toys.VOCAB
    return tokens, jnp.ones_like(tokens, dtype=bool)

  return arms.arm(arms.Proposing(trees.chain(length), propose))


@components.component
class Recorder(specjax.bandits.Uniform):
  """Selects arms at random; its state is the last rewards of all arms."""

  learns_from_rewards = True

  def init(self):
    return jnp.full(self.num_arms, -1.0)

  def update(self, state, arm, reward, /, *, rewards, **extra):
    return rewards

  def update_all(self, state, rewards):
    return rewards


MODELS = arms.TARGET, arms.DRAFT, arms.OTHER


@jax.jit
def whole_text_probs(params, text):
  """Probabilities of three models after every token, without a cache."""
  return [
    jax.nn.softmax(model.extend(param, None, text).logits)
    for (model, _), param in zip(MODELS, params)
  ]


def acceptance_of_text(text):
  """`[slot][B, S]`: 1 - TV, or the target's mass of what is proposed."""
  params = [params for _, params in MODELS]
  target, *drafts = np.asarray(whole_text_probs(params, text))
  acceptances = [np.minimum(target, draft).sum(-1) for draft in drafts]
  proposed = (np.asarray(text)[..., None] + 1) % toys.VOCAB
  mass = np.take_along_axis(target, proposed, axis=2)[..., 0]
  return [*acceptances, mass, np.zeros_like(mass)]


def varied_lengths():
  """Arms of two models, a deterministic one, and plain decoding."""
  return [
    arms.chain(3, chunk=2),
    arms.chain(1, chunk=2),
    arms.chain(2, arms.OTHER),
    counting_up(2),
    arms.none(),
  ]


def test_arms_that_draft_in_different_ways_have_their_own_rewards():
  """A model drafts as the target does, or its likeliest token."""
  several = (
    arms.model(trees.chain(2), arms.TARGET, 0.0, 'maximal'),
    arms.model(trees.chain(2), arms.TARGET),
    arms.model(trees.chain(1), arms.TARGET),
  )
  options = {'bandit': Recorder(3)}
  assert len(arms.decoder(*several, **options).round_fn.slots) == 1
  decoder = arms.decoder(*several, **options, feedback='full')
  with pytest.raises(ValueError, match='drafters of one StateSlot'):
    specjax.decoding.make_round(
      arms.TARGET[0],
      [arm for arm, _ in several],
      Recorder(3),
      feedback='full',
      slots=[0, 0, 0],
    )
  assert [slot.arms for slot in decoder.round_fn.slots] == [(0,), (1, 2)]
  state = decoder.init(sizes.PROMPTS, 9)
  _, infos = specjax.trace(decoder.round_fn, decoder.params, state, 3)
  unlike, like, _ = np.moveaxis(infos.rewards[infos.live], -1, 0)
  assert (unlike < like).all()


@pytest.mark.slow
@pytest.mark.parametrize('per_row', [False, True])
def test_every_arm_is_rewarded_by_what_was_committed(per_row):
  """Compares rewards with full texts; stop tokens and limits cut rows."""
  depths, slot_of = np.array([3, 1, 2, 2, 0]), [0, 0, 1, 2, 3]
  estimated = arms.decoder(
    *varied_lengths(),
    bandit=Recorder(5),
    feedback='full',
    per_row=per_row,
    stop_tokens=[9],
  )
  prompts = sizes.PROMPTS * 3
  start = estimated.init(prompts, [5, 14, 9, 20] * 3)
  lengths = np.array(start.lengths)
  state, infos = specjax.trace(estimated.round_fn, estimated.params, start, 24)
  assert state.done.all() and not infos.live[-1].any()
  stopped = np.asarray(state.lengths < state.limits)
  assert stopped.any() and not stopped.all()
  infos, by_slot = jax.device_get(infos), acceptance_of_text(state.tokens)
  latest_rewards = np.full((len(prompts), len(depths)), -1.0)
  history = collections.defaultdict(list)  # Probabilities by row and slot.
  unequal = 0
  for rewards, live, arm, num in zip(
    infos.rewards, infos.live, infos.arm, infos.num_emitted
  ):
    for row in np.flatnonzero(live):
      chances_of_slot = []
      for slot in range(4):
        num_known = num[row]
        if slot == slot_of[arm[row]]:
          num_known = min(num_known, depths[arm[row]])
        root = lengths[row] - 1
        chance = by_slot[slot][row, root : root + num_known]
        history[row, slot].append(chance)
        chances_of_slot.append(chance)
      for i, depth in enumerate(depths):
        chance = chances_of_slot[slot_of[i]]
        # The weight of a round decays by 31/32 per later token.
        accepted, count = 0.0, 0.0
        for probs in history[row, slot_of[i]]:
          decay = (31 / 32) ** len(probs)
          accepted = decay * accepted + probs.sum()
          count = decay * count + len(probs)
        estimates = np.full(3, (accepted + 1) / (count + 2))
        chain = np.append(chance, estimates)[:depth]
        expected = np.cumprod(chain).sum() / 3
        np.testing.assert_allclose(rewards[row, i], expected, atol=2e-5)
        unequal += len(chance) != depth
      latest_rewards[row] = rewards[row]
    if not per_row and live.any():
      latest_rewards[:] = rewards[live].mean(0)
    lengths = lengths + num
  assert unequal
  # The bandit received the same rewards, from live rows only.
  expected = latest_rewards if per_row else latest_rewards[0]
  np.testing.assert_allclose(state.bandit, expected, atol=1e-6)


@pytest.mark.parametrize('temperature', tiers.cases([0.5, 0.0], 0.5))
def test_raw_acceptance_is_that_of_probabilities_before_temperature(
  temperature,
):
  """Checks the selected arm and the other arm."""
  estimated = arms.decoder(
    *[arms.chain(1, model, temperature) for model in (arms.DRAFT, arms.OTHER)],
    bandit=Recorder(2),
    feedback='full',
    per_row=True,
    temperature=temperature,
    reward=specjax.rewards.BlockDivergence(),
  )
  start = estimated.init(sizes.PROMPTS, 9)
  lengths = np.array(start.lengths)
  state, infos = specjax.trace(estimated.round_fn, estimated.params, start, 9)
  infos, by_slot = jax.device_get(infos), acceptance_of_text(state.tokens)
  num_different = 0
  for i in range(9):
    for row in np.flatnonzero(infos.live[i]):
      root, num = lengths[row] - 1, infos.num_emitted[i, row]
      selected = infos.arm[i, row]
      acceptances, other_acceptances = (
        by_slot[arm][row, root : root + num] for arm in (selected, 1 - selected)
      )
      # The only draft follows the root.
      for actual in (
        infos.raw_acceptance[i, row],
        infos.rewards[i, row, selected],
      ):
        np.testing.assert_allclose(actual, acceptances[0], atol=2e-5)
      np.testing.assert_allclose(
        infos.rewards[i, row, 1 - selected], other_acceptances.mean(), atol=2e-5
      )
      num_different += abs(infos.acceptance[i, row] - acceptances[0]) > 0.05
    lengths = lengths + infos.num_emitted[i]
  assert num_different, 'temperature makes no difference here'


# Rows that are shifts of one another, so that the chance is the same anywhere:
# 0.9 and 0.6.
TABLES = [
  np.array([np.roll(probs, x) for x in range(3)], np.float32)
  for probs in ([0.6, 0.3, 0.1], [0.5, 0.3, 0.2], [0.2, 0.3, 0.5])
]


def test_expected_rounds_are_as_long_as_those_that_are_played():
  """With constant acceptance, the expectation is the sum of its powers.

  The estimate is exact if the text is as long as the arm's rounds. Otherwise it
  uses the recent acceptance rate and converges to the expectation.

  Each arm runs about 10000 rounds: a mean that is off by 0.04 tokens from 3.4
  or 2.0 fails with probability 0.97 (the bound is 4 standard errors of at most
  0.012).
  """
  model = specjax.models.Markov(3)
  decoder = arms.decoder(
    arms.chain(3, (model, TABLES[1])),
    arms.chain(2, (model, TABLES[2])),
    bandit='uniform',
    target=(model, TABLES[0]),
    per_row=True,
    feedback='full',
    max_length=256,
  )
  start = decoder.init([[0]] * 500, 200)
  _, infos = jax.device_get(
    specjax.trace(decoder.round_fn, decoder.params, start, 40)
  )
  assert infos.live.all()
  for arm, (chance, length) in enumerate([(0.9, 3), (0.6, 2)]):
    expected = sum(chance**i for i in range(length + 1))
    estimate = 1 + 3 * infos.rewards[..., arm]
    is_exact = (infos.arm != arm) & (infos.num_emitted >= length)
    np.testing.assert_allclose(estimate[is_exact], expected, atol=1e-5)
    np.testing.assert_allclose(estimate[20:], expected, atol=0.15)
    lengths = infos.num_emitted[infos.arm == arm]
    error = lengths.std() / np.sqrt(lengths.size)
    assert lengths.size > 9000
    assert abs(lengths.mean() - expected) < 4 * error
    # The acceptance that a round reports for its selected arm is constant.
    np.testing.assert_allclose(
      infos.acceptance[infos.arm == arm], chance, atol=1e-5
    )


# What bandits learn.


def learner(**options):
  return arms.decoder(
    *[arms.chain(2, toys.markov(seed)) for seed in (0, 1)],
    bandit='ucb1',
    target=arms_test.MARKOV,
    **options,
  )


def final(decoder, **options):
  """The state after two prompts of 12 tokens."""
  start = decoder.init([[1]] * 2, 12, **options)
  return specjax.decode(decoder.round_fn, decoder.params, start)


def test_what_was_learnt_is_carried_over_if_asked():
  """One bandit counts the rounds of two consecutive batches."""
  state = final(learner())
  rounds = int(state.num_rounds)
  assert state.bandit.pulls.sum() == rounds
  bandit_state = jax.device_get(state.bandit)
  next_state = final(learner(), bandit_state=bandit_state, seed=1)
  np.testing.assert_array_equal(
    next_state.bandit.pulls.sum(), rounds + next_state.num_rounds
  )
  assert (next_state.bandit.pulls >= bandit_state.pulls).all()
  assert (next_state.bandit.rewards >= bandit_state.rewards).all()
  fresh = final(learner(), seed=1)
  assert fresh.bandit.pulls.sum() == fresh.num_rounds


def test_without_a_reward_nothing_is_learnt_in_the_loop():
  state = final(learner(reward=None))
  assert state.num_rounds > 0 and not state.bandit.pulls.any()


def test_an_arm_that_takes_long_is_played_less(monkeypatch):
  """Replaces the clock by one that the drafters set: 1 and 10 ms per draft.

  Both arms emit the same tokens and differ only in time.
  """
  now = [0.0]

  def take(seconds):
    now[0] += seconds

  def clock():
    jax.effects_barrier()
    return now[0]

  monkeypatch.setattr(
    drivers, 'time', types.SimpleNamespace(perf_counter=clock)
  )
  timed = arms.decoder(
    *[
      arms_test.watched(
        arms.chain(2, arms_test.MARKOV), functools.partial(take, seconds)
      )
      for seconds in (0.01, 0.001)
    ],
    bandit='ucb1',
    target=arms_test.MARKOV,
    reward=None,
    max_length=256,
  )
  start = timed.init([[1]], 180)
  learn = drivers.throughput_learner(specjax.bandits.UCB1(2), max_rate=3000)
  rounds = specjax.stream(timed.round_fn, timed.params, start, learn=learn)
  for i, (state, _) in enumerate(rounds):
    # Each round but the one that compiles updates the bandit.
    assert state.bandit.pulls.sum() == i + 1
  # The last round may be cut by the limit; all others emit 3 tokens.
  assert i + 1 == 60
  slow, fast = state.bandit.pulls.tolist()
  assert 0 < slow < fast / 3
  expected = [slow * 0.1, fast * 1.0]
  np.testing.assert_allclose(state.bandit.rewards, expected, rtol=1e-4)
  np.testing.assert_array_equal(state.counters.pulls, [[slow, fast]])


@pytest.mark.parametrize('max_rate', [-1.0, 0.0, np.nan])
def test_a_rate_that_is_not_positive_is_refused(max_rate):
  with pytest.raises(ValueError, match='max_rate must be > 0'):
    drivers.throughput_learner(specjax.bandits.UCB1(2), max_rate)


@pytest.mark.parametrize(
  'build',
  [
    lambda tree: specjax.drafters.TokenRecycling(tree, toys.VOCAB),
    lambda tree: specjax.drafters.Autoregressive(
      arms.DRAFT[0], tree, arms.GREEDY, distinct=True
    ),
  ],
)
def test_siblings_are_part_of_an_estimate(build):
  """Of two likeliest tokens, one is accepted more often than the first."""
  one, several = (build(trees.prefix_tree((n, 1))).slot for n in (1, 2))
  assert one.key(estimates=False) == several.key(estimates=False)
  assert one.key(estimates=True) != several.key(estimates=True)
