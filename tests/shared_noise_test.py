"""Shared noise: the law of a race, how often two races agree, and one text."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import drafters
from specjax import sampling as sampling_lib
from specjax import theory
from specjax import trees
from specjax import verifiers
from specjax.testing import distributions
from tests import arms
from tests import parts
from tests import sizes
from tests.oracles import races

SHARED = specjax.Sampling(shared_noise=True)
TARGET = np.array([0.1, 0.4, 0.3, 0.2])
DRAFT = np.array([0.5, 0.2, 0.0, 0.3])
POSITIONS = 100_000


@functools.cache
def times(vocab_size=4, num=POSITIONS):
  """Returns `[T, V]` the noise of the first positions of one row."""
  noise = base.Noise(jax.random.key(5)[None], jnp.zeros(1, jnp.int32))
  return jax.jit(sampling_lib.race_times, static_argnums=2)(
    noise, np.arange(num), vocab_size
  )[0]


def ranked(probs, noise):
  """Returns `[T, V]` the tokens of each race, the winner first."""
  probs = jnp.broadcast_to(jnp.asarray(probs, jnp.float32), noise.shape)
  scores = jax.jit(sampling_lib.race)(noise, probs)
  return np.asarray(jax.lax.top_k(scores, scores.shape[1])[1])


def test_the_winner_is_a_sample():
  """A divergence of 0.0005 fails with chance 0.99."""
  winners = ranked(TARGET, times())[:, :1]
  assert distributions.chi_square(winners, TARGET) > 1e-4
  assert distributions.chi_square(winners, TARGET[::-1]) < 1e-6


def test_winners_of_successive_positions_are_independent():
  pairs = ranked(TARGET, times())[:, 0].reshape(-1, 2)
  assert (
    distributions.chi_square(pairs, np.outer(TARGET, TARGET).ravel()) > 1e-4
  )


def test_the_first_tokens_are_samples_without_replacement():
  order = ranked(TARGET, times())[:, :2]
  remaining = 1 - TARGET[:, None]
  probs = TARGET[:, None] * TARGET[None] / remaining * (1 - np.eye(4))
  assert distributions.chi_square(order, probs.ravel()) > 1e-4


@pytest.mark.parametrize('num', [1, 2])
def test_races_agree_as_often_as_foretold(num):
  """Up to five standard errors; another position's noise agrees less often."""
  drafted = ranked(DRAFT, times())[:, :num]
  winner = ranked(TARGET, times())[:, :1]
  foretold = races.agreement(DRAFT, TARGET, num).sum()
  error = 5 * np.sqrt(foretold * (1 - foretold) / POSITIONS)
  assert abs((drafted == winner).any(1).mean() - foretold) < error
  of_others = (np.roll(drafted, 1, axis=0) == winner).any(1).mean()
  assert foretold - of_others > 0.05


def test_one_draft_agrees_at_least_as_often_as_the_bound():
  """Daliri et al. (2025): `1 - TV` over `1 + TV`; at most as `maximal`."""
  rng = np.random.default_rng(0)
  for draft, target in rng.dirichlet(np.full(6, 0.5), size=(50, 2)):
    tv = np.abs(draft - target).sum() / 2
    rate = races.agreement(draft, target, 1).sum()
    assert (1 - tv) / (1 + tv) - 1e-9 <= rate <= 1 - tv + 1e-9
  same = races.agreement(TARGET, TARGET, 1).sum()
  np.testing.assert_allclose(same, 1, atol=1e-9)


@pytest.mark.parametrize('num', [1, 2, 3, 4, 6])
def test_acceptance_is_that_of_races_by_quadrature(num):
  """Follows the paths of two tokens, one after the other."""
  target, draft = np.random.default_rng(1).dirichlet(np.ones(4), size=(2, 4))
  draft[2] = DRAFT  # One token is never drafted.
  for start in range(4):
    first = races.agreement(draft[start], target[start], num)
    second = sum(
      prob * races.agreement(draft[token], target[token], 1).sum()
      for token, prob in enumerate(first)
    )
    actual = theory.shared_noise_acceptance(target, draft, num, 2, start)
    np.testing.assert_allclose(actual, [first.sum(), second], atol=1e-6)


def test_chains_are_accepted_as_often_as_foretold():
  """First rounds of 4,096 rows, within 4.5 standard errors.

  Rates for one chain more or less differ by far more.
  """
  models = arms.MARKOV_TARGET, arms.MARKOV_DRAFT
  foretold = [
    theory.shared_noise_acceptance(
      *(np.float64(table) for _, table in models), num, 2
    )
    for num in (1, 2, 3)
  ]
  chains = specjax.Decoder(
    *arms.MARKOV_TARGET,
    [drafting(trees.chains(2, 2), arms.MARKOV_DRAFT)],
    sampling=SHARED,
    max_length=8,
  )
  state = chains.init([[0]] * 4096, 4)
  _, infos = specjax.trace(chains.round_fn, chains.params, state, 1)
  accepted = np.asarray(infos.num_accepted)[0, :, None] > np.arange(2)
  error = 4.5 * np.sqrt(foretold[1] * (1 - foretold[1]) / 4096)
  assert (np.abs(accepted.mean(0) - foretold[1]) < error).all()
  for other in foretold[0], foretold[2]:
    assert (np.abs(other - foretold[1]) > 2 * error).any()


@pytest.mark.parametrize(
  ('size', 'num', 'words'),
  [(3, 0, 'num_chains must be >= 1, got 0'), (60, 4, 'tuples .* exceed')],
)
def test_bad_arguments_of_acceptance_are_refused(size, num, words):
  with pytest.raises(ValueError, match=words):
    theory.shared_noise_acceptance(np.eye(size), np.eye(size), num, 2)


def test_noise_is_exact_where_unlikely_tokens_win(monkeypatch):
  """A token of a large vocabulary wins by times of about its mass.

  A float32 uniform has no numbers between 0 and 2**-23: with 256,000 tokens,
  one of 0 would win in every thirtieth race.
  """
  last = 2**32 - 1
  words = [
    (0, 0),
    (0, 9),
    (0, last),
    (1, 5),
    (700, 7),
    (2**31, 3),
    (last, last),
  ]
  noise = base.Noise(jax.random.key(0)[None], jnp.zeros(1, jnp.int32))
  fake = lambda key, shape, dtype: jnp.array(words, dtype).T
  monkeypatch.setattr(jax.random, 'bits', fake)
  drawn = sampling_lib.race_times(noise, np.arange(1), len(words))[0, 0]
  high, low = np.float64(words).T
  uniforms = (high + (low + 0.5) / 2**32) / 2**32
  np.testing.assert_allclose(drawn[:-1], -np.log1p(-uniforms[:-1]), rtol=1e-6)
  assert (drawn > 0).all()
  # Even the largest noise, infinity, lets no token of mass 0 win.
  scores = sampling_lib.race(drawn[-1:].repeat(2), jnp.array([0.0, 1.0]))
  assert jnp.argmax(scores) == 1


def test_shared_noise_at_temperature_0_is_refused():
  with pytest.raises(ValueError, match='must be False .*, got True'):
    specjax.Sampling(0.0, shared_noise=True)


@pytest.mark.parametrize(
  ('options', 'arm_options', 'words'),
  [
    ({'feedback': 'full'}, {}, "feedback 'bandit', .* got 'full'"),
    ({}, {'goal': parts.FunctionGoal(lambda target, *_: target)}, 'goal'),
    ({}, {'verifier': verifiers.OverAcceptance()}, 'lossless verifiers'),
  ],
)
def test_what_would_make_texts_differ_is_refused(options, arm_options, words):
  arm, params = drafting(trees.chain(2))
  arm = arm._replace(**arm_options)
  with pytest.raises(ValueError, match=f'shared_noise needs .*{words}'):
    decoder((arm, params), **options)


def test_a_warm_start_with_shared_noise_is_refused():
  bandit = specjax.BANDITS['ucb1'](1)
  message = 'warm_start must be 0 with shared noise, .* got 3'
  with pytest.raises(ValueError, match=message):
    decoder(drafting(trees.chain(2)), bandit=bandit, warm_start=3)


def drafting(topology, draft=arms.DRAFT, how=SHARED, verifier='greedy'):
  """Returns an arm that drafts a tree with a model."""
  model, params = draft
  drafter = drafters.Autoregressive(model, topology, how)
  return specjax.Arm(drafter, verifiers.resolve(verifier)), params


def decoder(*decoder_arms, **options):
  return specjax.Decoder(
    *arms.TARGET,
    decoder_arms,
    sampling=SHARED,
    max_length=sizes.BUFFER,
    **options,
  )


@functools.cache
def plain_tokens():
  """Returns the texts without a drafter."""
  return arms.tokens(decoder(arms.none()).decode(sizes.PROMPTS, sizes.NEW))


@pytest.mark.parametrize(
  'arm',
  [
    drafting(trees.chain(3)),
    drafting(trees.prefix_tree((2, 2)), arms.OTHER, verifier='otm'),
    arms.lookup(verifier='maximal'),
  ],
  ids=['chain', 'tree', 'lookup'],
)
def test_a_seed_gives_one_text_with_every_drafter_and_with_none(arm):
  """Whether or not the drafter shares the noise, and with any verifier."""
  results = decoder(arm).decode(sizes.PROMPTS, sizes.NEW)
  assert arms.tokens(results) == plain_tokens()
  accepted = np.concatenate([result.accepted for result in results])
  assert 0 < accepted.sum()


def test_the_target_as_its_own_drafter_is_always_accepted():
  """All four tokens of each round come from the noise of their positions."""
  results = decoder(drafting(trees.chain(3), arms.TARGET)).decode(
    sizes.PROMPTS, sizes.NEW
  )
  assert arms.tokens(results) == plain_tokens()
  assert [result.rounds for result in results] == [sizes.NEW // 4] * sizes.ROWS


@pytest.mark.slow
def test_a_bandit_changes_no_token():
  chosen = decoder(
    drafting(trees.chain(3)),
    drafting(trees.chain(1), arms.OTHER),
    bandit=arms.Adversary(2),
    per_row=True,
  )
  results = chosen.decode(sizes.PROMPTS, sizes.NEW)
  assert arms.tokens(results) == plain_tokens()
