"""The bandit `Goodput`: what it believes, what it loses, and in the loop."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import bandits
from specjax import base
from specjax import trees
from specjax.testing import distributions
from specjax.testing import toys
from tests import arms
from tests import tiers

DEPTHS = 0, 1, 2, 4, 8
DEEPEST = max(DEPTHS)
MOST_ROWS = 32


def build(costs=(1.0, 1.2, 1.4, 1.8, 2.6), **options):
  return bandits.Goodput(len(costs), costs, DEPTHS, **options)


def levels(reached, passed):
  return base.Levels(jnp.float32(reached), jnp.float32(passed))


def test_beliefs_are_counts_of_levels():
  """A round that shows level 3 teaches all arms of its kind, and no other."""
  bandit = build(kinds=(0, 0, 0, 0, 1))
  state = bandit.update(
    bandit.init(),
    jnp.int32(3),
    jnp.float32(0),
    levels=levels([8, 5, 2, 0, 0, 0, 0, 0], [5, 2, 0, 0, 0, 0, 0, 0]),
  )
  np.testing.assert_array_equal(state.passed[0], [5, 2, 0, 0, 0, 0, 0, 0])
  np.testing.assert_array_equal(state.failed[0], [3, 3, 2, 0, 0, 0, 0, 0])
  assert not state.passed[1].any() and not state.failed[1].any()


def test_what_was_seen_long_ago_counts_less():
  bandit = build(discount=0.5)
  state, arm = bandit.init(), jnp.int32(4)
  for _ in range(3):
    state = bandit.update(
      state, arm, jnp.float32(1), levels=levels([1] * 8, [1] * 8)
    )
  np.testing.assert_allclose(state.passed, 1.75)
  assert bandit.update(state, arm, jnp.float32(1)) is state


def emitted(chances):
  """`[A]` tokens of a round of each arm, of one row."""
  return 1 + np.array([np.cumprod(chances)[:depth].sum() for depth in DEPTHS])


@functools.partial(jax.jit, static_argnames='num_rounds')
def simulate_rounds(bandit, chances, num_rows, num_rounds, key):
  """Returns `[T]` arms and tokens of rounds, for at most `MOST_ROWS` rows.

  `chances` are `[T, D]`.
  """
  exists = np.arange(MOST_ROWS) < num_rows

  def step(state, inputs):
    key, chances = inputs
    select_key, key = jax.random.split(key)
    arm = bandit.select(select_key, state)
    depth = jnp.asarray(DEPTHS)[arm]
    passed = jax.random.uniform(key, (MOST_ROWS, DEEPEST)) < chances[None]
    kept = jnp.minimum(jnp.cumprod(passed, axis=1).sum(axis=1), depth)
    level = jnp.arange(DEEPEST)[None]
    deepest = jnp.where(exists, jnp.minimum(kept + 1, depth), 0)
    kept = jnp.where(exists, kept, 0)
    seen = base.Levels(
      *(
        (level < counts[:, None]).astype(jnp.float32).sum(axis=0)
        for counts in (deepest, kept)
      )
    )
    state = bandit.update(state, arm, jnp.float32(0), levels=seen)
    return state, (arm, kept.sum() + num_rows)

  keys = jax.random.split(key, num_rounds)
  return jax.lax.scan(step, bandit.init(), (keys, chances))[1]


PLAIN = (1.0, 1.7, 2.2, 3.2, 5.0), 0.5
DEEP = (1.0, 1.1, 1.2, 1.4, 1.8), 0.9
MIDDLE = (1.0, 1.3, 1.5, 1.9, 2.8), 0.7
CLOSE = (1.0, 1.55, 1.9, 2.6, 4.0), 0.6


@pytest.mark.parametrize(
  ('costs', 'chance'),
  tiers.cases([PLAIN, DEEP, MIDDLE, CLOSE], DEEP, CLOSE),
  ids=['plain', 'deep', 'middle', 'close'],
)
def test_it_loses_at_most_three_percent(costs, chance):
  """Compares tokens per second with the best arm and plain decoding.

  A run has 600 rounds.
  """
  bandit, chances = build(costs), np.full((600, DEEPEST), chance, np.float32)
  keys = jax.random.split(jax.random.key(0), 12)
  run = functools.partial(simulate_rounds, bandit, chances)
  runs = jax.vmap(
    jax.vmap(lambda num_rows, key: run(num_rows, 600, key), (None, 0)),
    (0, None),
  )
  num_rows = np.array([1, 8, 32])
  selected, tokens = runs(num_rows, keys)
  seconds = np.array(costs)[np.asarray(selected)].sum(axis=2)
  rates = np.asarray(tokens).sum(axis=2) / seconds / num_rows[:, None]
  for rate in rates.mean(axis=1):
    assert rate >= 0.97 * (emitted(chances[0]) / costs).max()
    assert rate >= 0.97 / costs[0]


def test_it_follows_what_changes():
  """Uses drafts that become bad at round 400."""
  costs, _ = MIDDLE
  bandit = build(costs, discount=0.99)
  chances = np.repeat(np.float32([[0.9] * 8, [0.1] * 8]), 400, axis=0)
  selected, _ = simulate_rounds(bandit, chances, 8, 800, jax.random.key(1))
  shares = lambda part: np.bincount(part, minlength=5) / len(part)
  assert shares(np.asarray(selected)[300:400])[3:].sum() > 0.9
  assert shares(np.asarray(selected)[600:])[0] > 0.8


@pytest.mark.parametrize(
  ('discount', 'longest'), [(1.0, 400 // 20), (0.99, 100 // 20)]
)
def test_an_arm_stays_for_a_twentieth_of_the_rounds(discount, longest):
  """Uses two arms that stay equally likely, because no level is observed."""
  bandit = bandits.Goodput(2, (1.0, 1.0), (1, 1), (0, 1), discount=discount)

  def step(state, key):
    arm = bandit.select(key, state)
    no_levels = levels([0.0], [0.0])
    return bandit.update(state, arm, jnp.float32(0), levels=no_levels), arm

  keys = jax.random.split(jax.random.key(5), 420)
  _, selected = jax.lax.scan(step, bandit.init(), keys)
  changes = np.flatnonzero(np.diff(np.asarray(selected))) + 1
  assert min(np.diff(changes[changes < 40])) == 1
  stay_lengths = np.diff(changes[changes > 400 - 4 * longest])
  assert len(stay_lengths) and min(stay_lengths) >= longest * 0.8


def test_costs_are_data():
  """A sweep over tables of costs is one array."""
  key, state = jax.random.key(0), build().init()
  sure = levels([1e6] * 8, [0.9e6] * 8)
  state = build().update(state, jnp.int32(4), jnp.float32(0), levels=sure)
  tables = [costs for costs, _ in (PLAIN, DEEP, MIDDLE, CLOSE)]
  selected = [int(build(costs).select(key, state)) for costs in tables]
  select_by_costs = jax.vmap(lambda costs: build(costs).select(key, state))
  assert select_by_costs(jnp.array(tables)).tolist() == selected
  assert len({*selected}) > 1


def test_beliefs_are_drawn_in_a_branch_of_the_program():
  """Checks that a round in which an arm stays draws nothing."""
  bandit = build()
  program = jax.make_jaxpr(bandit.select)(jax.random.key(0), bandit.init())
  draws = [equation for equation in program.eqns if 'random' in str(equation)]
  assert [equation.primitive.name for equation in draws] == ['cond']
  draw_branch, stay_branch = sorted(
    map(str, draws[0].params['branches']), key=len
  )[::-1]
  assert 'random' in draw_branch and 'random' not in stay_branch


def test_reading_prompts_is_a_cost_of_each_token():
  """By hand: drafts of two emit 2.71 tokens in 1.5 s, and read for 0.4 each."""
  sure = levels([1e6, 0.9e6], [0.9e6, 0.81e6])

  def selected(reading):
    bandit = bandits.Goodput(2, (1.0, 1.5), (0, 2), prefill_costs=reading)

    state = bandit.update(
      bandit.init(), jnp.int32(1), jnp.float32(0), levels=sure
    )
    return int(bandit.select(jax.random.key(0), state))

  assert [selected((0.0, cost)) for cost in (0.0, 0.4, 0.5)] == [1, 1, 0]
  # What all arms pay changes nothing.
  assert selected((7.0, 7.4)) == 1


LENGTHS = 0, 1, 3


def decoder(costs, target, draft, **options):
  """A decoder of plain decoding and of chains of one and of three tokens."""
  model = specjax.models.Markov(3)
  chains = [arms.chain(length, (model, draft)) for length in LENGTHS[1:]]
  return arms.decoder(
    arms.none(),
    *chains,
    bandit=bandits.Goodput(3, costs, LENGTHS),
    target=(model, target),
    **options,
  )


def decode(decoder, prompts, new, **options):
  """Returns the final bandit and the results."""
  state = decoder.init(prompts, new, **options)
  state = specjax.decode(decoder.round_fn, decoder.params, state)
  return state.bandit, decoder.results(prompts, state)


def check_counts(bandit, results):
  """A token of every round, and one of each level that was passed."""
  seen = jax.tree.map(lambda leaf: float(np.asarray(leaf).sum()), bandit)
  rounds = sum(result.pulls.sum() for result in results)
  emitted = sum(len(result.tokens) for result in results)
  assert seen.passed == emitted - rounds
  accepted = sum(result.accepted.sum() for result in results)
  assert emitted - rounds < accepted  # Some row ended with a draft.
  drafted = sum(result.drafted.sum() for result in results)
  assert seen.passed + seen.failed <= drafted


def test_the_loop_counts_what_is_emitted():
  target, draft = toys.markov(1, 3)[1], toys.markov(2, 3)[1]
  prompts = [[0], [1, 2], [2]] * 4
  free = decoder((1.0, 1.0, 1.0), target, draft, max_length=256)
  check_counts(*decode(free, prompts, 7))


def test_what_is_not_drafted_is_worth_nothing():
  """Nothing to look up in rows that never repeat a token."""
  table = np.roll(np.eye(8, dtype=np.float32), 1, axis=1)
  lookup = arms.decoder(
    arms.lookup(2),
    bandit=bandits.Goodput(1, (1.0,), (2,)),
    target=(specjax.models.Markov(8), table),
  )
  bandit, _ = decode(lookup, [[0]] * 3, 4)
  np.testing.assert_array_equal(bandit.failed, [[12, 0]])
  assert not bandit.passed.any()


def test_where_drafts_are_free_or_never_pay():
  table = toys.markov(1, 3)[1]
  for costs, best in (((1.0, 1.0, 1.0), 2), ((1.0, 9.0, 9.0), 0)):
    chains = decoder(costs, table, table, max_length=256)
    _, results = decode(chains, [[0]] * 12, 200)
    pulls = sum(result.pulls for result in results)
    assert pulls.argmax() == best and pulls[best] > 0.8 * pulls.sum()


@pytest.mark.slow
def test_the_loop_has_the_target_distribution():
  """Uses a bandit for every row; the drafts depend only on the past."""
  rng = np.random.default_rng(12)
  target = distributions.random_table(rng, 3, 3, low=0.2)
  draft = distributions.random_table(rng, 3, 3, low=0.05)
  rows = decoder((1.0, 1.1, 1.3), target, draft, per_row=True)
  bandit, results = decode(rows, [[2, 0]] * 20000, 3, seed=4)
  check_counts(bandit, results)
  pulls = sum(result.pulls for result in results)
  assert pulls.min() > 0.05 * pulls.sum()
  probs = distributions.sequence_probs(target, 0, 3)
  assert distributions.chi_square(arms.tokens(results), probs) > 1e-4


@pytest.mark.parametrize(
  ('args', 'words'),
  [
    (((1.0, 1.0), DEPTHS), 'must have an entry for each of 5 arms, got 2, 5'),
    (((1.0,) * 4 + (0.0,), DEPTHS), 'costs must be > 0 and finite'),
    (((1.0,) * 5, (0, 1, 2, 4, -1)), 'depths must be >= 0'),
    ((1.0, DEPTHS), 'costs must be a sequence, got 1.0'),
    (((1.0,) * 5, 4), 'depths must be a sequence, got 4'),
    (((1.0,) * 5, DEPTHS, (0, 0, 0, 0, -1)), 'kinds must be >= 0'),
    (((1.0,) * 5, DEPTHS, None, (1.0,)), 'got 5, 5, 5 and 1'),
    (((1.0,) * 5, DEPTHS, None, (-1.0,) * 5), 'prefill_costs must be >= 0'),
  ],
)
def test_bad_arguments_are_refused(args, words):
  with pytest.raises(ValueError, match=words):
    bandits.Goodput(5, *args)
  with pytest.raises(ValueError, match='discount must lie in'):
    build(discount=0.0)


@pytest.mark.parametrize(
  ('one', 'other', 'is_top'),
  [
    (trees.chain(2), trees.chain(4), True),
    (trees.chain(0), trees.chain(4), True),
    (trees.chains(4, 2), trees.chains(4, 3), True),
    (trees.chains(4, 2), trees.chains(2, 3), False),
    (trees.prefix_tree((2, 1)), trees.prefix_tree((2, 2)), False),
    (trees.chain(4), trees.chain(2), False),
  ],
)
def test_the_top_of_a_tree(one, other, is_top):
  assert one.is_top_of(other) == is_top
