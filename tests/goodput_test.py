"""The bandit `goodput`: what it believes, what it loses, and in the loop."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import bandits
from specjax import base
from specjax import trees
from specjax import verifiers
from specjax.testing import distributions
from specjax.testing import toys

DEPTHS = 0, 1, 2, 4, 8
DEEPEST = max(DEPTHS)


def build(costs=(1.0, 1.2, 1.4, 1.8, 2.6), **options):
  return bandits.BANDITS['goodput'](len(costs), costs, DEPTHS, **options)


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


@functools.partial(
  jax.jit, static_argnames=('bandit', 'num_rows', 'num_rounds')
)
def play(bandit, chances, num_rows, num_rounds, key):
  """`[T]` arms and tokens of rounds; `chances` are `[T, D]`."""

  def step(state, inputs):
    key, chances = inputs
    own, key = jax.random.split(key)
    arm = bandit.select(own, state)
    depth = jnp.asarray(DEPTHS)[arm]
    passed = jax.random.uniform(key, (num_rows, DEEPEST)) < chances[None]
    kept = jnp.minimum(jnp.cumprod(passed, axis=1).sum(axis=1), depth)
    level = jnp.arange(DEEPEST)[None]
    deepest = jnp.minimum(kept + 1, depth)
    seen = base.Levels(
      *(
        (level < each[:, None]).astype(jnp.float32).sum(axis=0)
        for each in (deepest, kept)
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


@pytest.mark.parametrize('num_rows', [1, 8, 32])
@pytest.mark.parametrize(
  ('costs', 'chance'),
  [PLAIN, DEEP, MIDDLE, CLOSE],
  ids=['plain', 'deep', 'middle', 'close'],
)
def test_it_loses_at_most_three_percent(costs, chance, num_rows):
  """Of the best arm's tokens a second, and of plain decoding's; 600 rounds."""
  bandit, chances = build(costs), np.full((600, DEEPEST), chance, np.float32)
  keys = jax.random.split(jax.random.key(0), 12)
  run = functools.partial(play, bandit, chances, num_rows, 600)
  arms, tokens = jax.vmap(run)(keys)
  seconds = np.array(costs)[np.asarray(arms)].sum(axis=1)
  rate = (np.asarray(tokens).sum(axis=1) / seconds).mean() / num_rows
  assert rate >= 0.97 * (emitted(chances[0]) / costs).max()
  assert rate >= 0.97 / costs[0]


def test_it_follows_what_changes():
  """Drafts that were good are bad from round 400 on."""
  costs, _ = MIDDLE
  bandit = build(costs, discount=0.99)
  chances = np.repeat(np.float32([[0.9] * 8, [0.1] * 8]), 400, axis=0)
  arms, _ = play(bandit, chances, 8, 800, jax.random.key(1))
  shares = lambda part: np.bincount(part, minlength=5) / len(part)
  assert shares(np.asarray(arms)[300:400])[3:].sum() > 0.9
  assert shares(np.asarray(arms)[600:])[0] > 0.8


@pytest.mark.parametrize(
  ('discount', 'longest'), [(1.0, 400 // 20), (0.99, 100 // 20)]
)
def test_an_arm_stays_for_a_twentieth_of_the_rounds(discount, longest):
  """Of two arms that are always as likely, as nothing is seen of them."""
  bandit = bandits.BANDITS['goodput'](
    2, (1.0, 1.0), (1, 1), (0, 1), discount=discount
  )

  def step(state, key):
    arm = bandit.select(key, state)
    nothing = levels([0.0], [0.0])
    return bandit.update(state, arm, jnp.float32(0), levels=nothing), arm

  keys = jax.random.split(jax.random.key(5), 420)
  _, arms = jax.lax.scan(step, bandit.init(), keys)
  changes = np.flatnonzero(np.diff(np.asarray(arms))) + 1
  assert min(np.diff(changes[changes < 40])) == 1
  late = np.diff(changes[changes > 400 - 4 * longest])
  assert len(late) and min(late) >= longest * 0.8


def test_beliefs_are_drawn_in_a_branch_of_the_program():
  """A round in which an arm stays pays for no draw."""
  bandit = build()
  program = jax.make_jaxpr(bandit.select)(jax.random.key(0), bandit.init())
  draws = [each for each in program.eqns if 'random' in str(each)]
  assert [each.primitive.name for each in draws] == ['cond']
  drawn, stays = sorted(map(str, draws[0].params['branches']), key=len)[::-1]
  assert 'random' in drawn and 'random' not in stays


def test_reading_prompts_is_a_cost_of_each_token():
  """By hand: drafts of two emit 2.71 tokens in 1.5 s, and read for 0.4 each."""
  for reading, best in (((0.0, 0.0), 1), ((0.0, 0.4), 1), ((0.0, 0.5), 0)):
    bandit = bandits.BANDITS['goodput'](
      2, (1.0, 1.5), (0, 2), reading_costs=reading
    )
    sure = levels([1e6, 0.9e6], [0.9e6, 0.81e6])
    state = bandit.update(
      bandit.init(), jnp.int32(1), jnp.float32(0), levels=sure
    )
    assert bandit.select(jax.random.key(0), state) == best
  common = bandits.BANDITS['goodput'](
    2, (1.0, 1.5), (0, 2), reading_costs=(7.0, 7.4)
  )
  assert common.select(jax.random.key(0), state) == 1


def arm(length):
  if not length:
    drafter = specjax.DRAFTERS['none']()
  else:
    drafter = specjax.DRAFTERS['autoregressive'](
      specjax.MODELS['markov'](3), trees.chain(length)
    )
  return specjax.Arm(drafter, verifiers.resolve('maximal'))


def decoder(costs, target, draft, **options):
  lengths = (0, 1, 3)
  return specjax.Decoder(
    specjax.MODELS['markov'](3),
    target,
    [(arm(length), draft if length else None) for length in lengths],
    bandit=bandits.BANDITS['goodput'](3, costs, lengths),
    **options,
  )


@pytest.mark.parametrize('per_row', [False, True])
def test_the_loop_counts_what_is_emitted(per_row):
  target, draft = toys.markov(1, 3)[1], toys.markov(2, 3)[1]
  made = decoder((1.0, 1.0, 1.0), target, draft, per_row=per_row)
  prompts = [[0], [1, 2], [2]] * 4
  state = specjax.decode(made.round_fn, made.params, made.init(prompts, 7))
  results = made.results(prompts, state)
  seen = jax.tree.map(lambda leaf: leaf.sum(), state.bandit)
  # A token of every round, and one of each level that was passed.
  rounds = sum(result.pulls.sum() for result in results)
  emitted = sum(len(result.tokens) for result in results)
  assert float(seen.passed) == emitted - rounds
  accepted = sum(result.accepted.sum() for result in results)
  assert emitted - rounds < accepted  # Some row ended with a draft.
  drafted = sum(result.drafted.sum() for result in results)
  assert float(seen.passed + seen.failed) <= drafted


def test_what_is_not_drafted_is_worth_nothing():
  """Nothing to look up in rows that never repeat a token."""
  made = specjax.Decoder(
    specjax.MODELS['markov'](8),
    np.roll(np.eye(8, dtype=np.float32), 1, axis=1),
    [
      (
        specjax.Arm(
          specjax.DRAFTERS['prompt_lookup'](2), verifiers.resolve('maximal')
        ),
        None,
      )
    ],
    bandit=bandits.BANDITS['goodput'](1, (1.0,), (2,)),
  )
  state = made.init([[0]] * 3, 4)
  state = specjax.decode(made.round_fn, made.params, state)
  np.testing.assert_array_equal(state.bandit.failed, [[12, 0]])
  assert not state.bandit.passed.any()


def test_where_drafts_are_free_or_never_pay():
  target, draft = toys.markov(1, 3)[1], toys.markov(1, 3)[1]
  for costs, best in (((1.0, 1.0, 1.0), 2), ((1.0, 9.0, 9.0), 0)):
    made = decoder(costs, target, draft)
    results = made.decode([[0]] * 8, 200)
    pulls = sum(result.pulls for result in results)
    assert pulls.argmax() == best and pulls[best] > 0.8 * pulls.sum()


def test_the_loop_has_the_target_distribution():
  """What is drafted hangs on the past alone; a bandit for every row."""
  rng = np.random.default_rng(12)
  target = distributions.random_table(rng, 3, 3, low=0.2)
  draft = distributions.random_table(rng, 3, 3, low=0.05)
  made = decoder((1.0, 1.1, 1.3), target, draft, per_row=True)
  results = made.decode([[2, 0]] * 20000, 3, seed=4)
  tokens = np.array([result.tokens for result in results])
  pulls = sum(result.pulls for result in results)
  assert pulls.min() > 0.05 * pulls.sum()
  probs = distributions.sequence_probs(target, 0, 3)
  assert distributions.chi_square(tokens, probs) > 1e-4


@pytest.mark.parametrize(
  ('args', 'words'),
  [
    (((1.0, 1.0), DEPTHS), 'must have an entry for each of 5 arms, got 2, 5'),
    (((1.0,) * 4 + (0.0,), DEPTHS), 'costs must be > 0 and finite'),
    (((1.0,) * 5, (0, 1, 2, 4, -1)), 'depths must be >= 0'),
    (((1.0,) * 5, DEPTHS, (0, 0, 0, 0, -1)), 'kinds must be >= 0'),
    (((1.0,) * 5, DEPTHS, None, (1.0,)), 'got 5, 5, 5 and 1'),
    (((1.0,) * 5, DEPTHS, None, (-1.0,) * 5), 'reading_costs must be >= 0'),
  ],
)
def test_bad_arguments_are_refused(args, words):
  with pytest.raises(ValueError, match=words):
    bandits.BANDITS['goodput'](5, *args)
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
