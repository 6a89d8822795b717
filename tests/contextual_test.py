"""The bandit `LinUCB`: its regressions, what it reads, and in the loop."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import bandits
from specjax import base
from tests import arms
from tests import sizes
from tests import twins

_MAX_MATCH = 3


def _match_length(tokens):
  """Returns how many tokens of the end an earlier place has, up to 3."""
  text = list(tokens)
  for num in range(_MAX_MATCH, 0, -1):
    # A match is followed by at least one token of the text.
    ends = range(num, len(text))
    if any(text[end - num : end] == text[-num:] for end in ends):
      return num
  return 0


def _one_hot(length):
  return np.eye(_MAX_MATCH + 1)[length]


def _check_regressions(bandit):
  """Solves the regressions anew in every round, with float64."""
  num_arms, alpha, ridge, rounds = (
    bandit.num_arms,
    bandit.alpha,
    bandit.ridge,
    60,
  )
  rng = np.random.default_rng(0)
  data = [([], []) for _ in range(num_arms)]
  weights = rng.uniform(size=(num_arms, bandit.num_features)) / 4
  state, select, update = (
    bandit.init(),
    jax.jit(bandit.select),
    jax.jit(bandit.update),
  )
  selected = set()
  for _ in range(rounds):
    x = np.append(rng.dirichlet(np.ones(_MAX_MATCH + 1)), rng.uniform())
    state = state._replace(features=jnp.asarray(x, jnp.float32))
    bounds = []
    for features, rewards in data:
      gram = ridge * np.eye(len(x))
      moment = np.zeros(len(x))
      for row, reward in zip(features, rewards):
        gram, moment = gram + np.outer(row, row), moment + (1 - reward) * row
      radius = np.sqrt(x @ np.linalg.solve(gram, x))
      bounds.append(alpha * radius - np.linalg.solve(gram, moment) @ x)
    arm = int(select(jax.random.key(0), state))
    assert bounds[arm] > max(bounds) - 1e-5
    selected.add(arm)
    reward = float(np.clip(weights[arm] @ x + rng.normal(scale=0.05), 0, 1))
    data[arm][0].append(x)
    data[arm][1].append(reward)
    state = update(state, jnp.int32(arm), jnp.float32(reward))
  assert len(selected) == num_arms


_BANDIT = bandits.LinUCB(3, 0.3, 0.5, max_match=_MAX_MATCH)


def test_arms_are_those_of_ridge_regressions():
  _check_regressions(_BANDIT)


def _without_radius(key, state):
  """Selects by the estimated loss only."""
  return dataclasses.replace(_BANDIT, alpha=0.0).select(key, state)


def _learning_rewards(state, arm, reward, /, **extra):
  """Estimates rewards, of which the smallest is then selected."""
  return _BANDIT.update(state, arm, 1 - reward, **extra)


def _updating_all(state, arm, reward, /, **extra):
  """Adds the round to the regressions of all arms."""
  del arm, extra
  return _BANDIT.update_all(state, jnp.full(_BANDIT.num_arms, reward))


def _keeping_inverses(state, arm, reward, /, **extra):
  """Never narrows the radius."""
  new = _BANDIT.update(state, arm, reward, **extra)
  return new._replace(inverse=state.inverse)


@pytest.mark.parametrize(
  'method',
  [
    {'select': _without_radius},
    {'update': _learning_rewards},
    {'update': _updating_all},
    {'update': _keeping_inverses},
  ],
)
def test_check_rejects_other_regressions(method):
  with pytest.raises(AssertionError):
    _check_regressions(twins.twin(_BANDIT, **method))


def test_features_are_matches_of_live_rows_and_the_last_acceptance():
  bandit = bandits.LinUCB(2, max_match=_MAX_MATCH)
  rows = [[1, 2, 3], [1, 2, 1], [1, 2, 3, 1, 2], [5, 5, 5, 5, 5, 5]]
  lengths = [_match_length(row) for row in rows]
  assert lengths == [0, 1, 2, 3]
  tokens = np.zeros((len(rows), 8), np.int32)
  for row, text in zip(tokens, rows):
    row[: len(text)] = text
  context = specjax.Context(
    jnp.asarray(tokens), jnp.asarray([len(text) for text in rows], jnp.int32)
  )
  levels = base.Levels(jnp.float32([4, 2, 0]), jnp.float32([2, 1, 0]))
  undrafted = base.Levels(jnp.zeros(3), jnp.zeros(3))
  state = bandit.init()
  for shown in (levels, undrafted):
    state = bandit.update(state, jnp.int32(0), jnp.float32(0.5), levels=shown)
  for live in ([1, 1, 1, 1], [0, 1, 0, 1], [0, 0, 0, 0]):
    live = np.array(live, bool)
    features = bandit.read_text(state, context, jnp.asarray(live)).features
    matches = sum((_one_hot(num) for num in np.array(lengths)[live]), 0.0)
    expected = matches / max(live.sum(), 1) * np.ones(_MAX_MATCH + 1)
    np.testing.assert_allclose(features[:-1], expected, rtol=1e-6)
    np.testing.assert_allclose(features[-1], 0.5)


def _mean_reward(bandit, num_rounds=2000):
  """Returns the mean reward where arm 1 pays only after matches."""
  rewards = jnp.float32([[0.5, 0.2], [0.5, 0.8]])  # by match and arm

  def step(state, key):
    key, match_key = jax.random.split(key)
    length = jax.random.choice(match_key, jnp.array([0, 2]))
    features = jnp.append(jax.nn.one_hot(length, _MAX_MATCH + 1), 0.0)
    if isinstance(bandit, bandits.LinUCB):
      state = state._replace(features=features)
    arm = bandit.select(key, state)
    mean = rewards[(length > 0).astype(int), arm]
    reward = jax.random.bernoulli(key, mean).astype(jnp.float32)
    return bandit.update(state, arm, reward), mean

  keys = jax.random.split(jax.random.key(3), num_rounds)
  return float(jax.lax.scan(step, bandit.init(), keys)[1].mean())


def test_the_best_arm_of_each_context_is_found():
  """No bandit without a context can exceed a mean of 0.5 by much here."""
  oracle = 0.65
  assert _mean_reward(bandits.LinUCB(2, max_match=_MAX_MATCH)) > 0.95 * oracle
  assert _mean_reward(bandits.UCB1(2, 0.25)) < 0.85 * oracle


@pytest.mark.parametrize('per_row', [False, True])
def test_the_loop_selects_by_the_text_of_each_round(per_row):
  """Repeats all selections on the host, from the tokens of every round."""
  bandit = bandits.LinUCB(2, max_match=_MAX_MATCH)
  decoder = arms.decoder(
    arms.chain(2), arms.lookup(3), bandit=bandit, per_row=per_row
  )
  state = decoder.init(sizes.PROMPTS, sizes.NEW)
  num_groups = len(sizes.PROMPTS) if per_row else 1
  beliefs = [bandit.init()] * num_groups
  seen = set()
  for _ in range(6):
    tokens, lengths, done = jax.device_get(
      (state.tokens, state.lengths, state.done)
    )
    state, infos = specjax.trace(decoder.round_fn, decoder.params, state, 1)
    info = jax.device_get(jax.tree.map(lambda leaf: leaf[0], infos))
    groups = np.array_split(np.arange(len(tokens)), num_groups)
    for i, rows in enumerate(groups):
      live = ~done[rows]
      if not live.any():
        continue
      matches = [_match_length(tokens[row, : lengths[row]]) for row in rows]
      share = np.mean([_one_hot(n) for n in np.array(matches)[live]], axis=0)
      features = jnp.append(jnp.float32(share), beliefs[i].recent)
      seen.add(tuple(share))
      belief = beliefs[i]._replace(features=features)
      arm = bandit.select(jax.random.key(0), belief)
      assert (info.arm[rows][live] == arm).all()
      num_drafted = np.minimum(info.tree_depth, info.num_emitted)[rows]
      passed = (info.num_emitted[rows] - 1)[live].sum()
      reached = num_drafted[live].sum()
      levels = base.Levels(jnp.float32([reached]), jnp.float32([passed]))
      reward = jnp.float32(info.reward[rows][live].mean())
      beliefs[i] = bandit.update(belief, arm, reward, levels=levels)
  assert len(seen) > 1


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'alpha': -0.1}, 'alpha must'),
    ({'ridge': 0.0}, 'ridge must'),
    ({'max_match': 0}, 'max_match must be >= 1, got 0'),
  ],
)
def test_an_argument_out_of_range_raises(options, message):
  with pytest.raises(ValueError, match=message):
    bandits.LinUCB(2, **options)


def test_sweeps_over_the_radius_share_a_program():
  num_compiled = []

  @functools.partial(jax.jit)
  def select(bandit):
    num_compiled.append(1)
    return bandit.select(jax.random.key(0), bandit.init())

  for alpha in (0.1, 0.2, 0.4):
    select(bandits.LinUCB(2, alpha))
  assert len(num_compiled) == 1
