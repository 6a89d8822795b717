"""Shared noise: the law of a race, how often two races agree, and one text.

How often races agree is known in closed form: given that the target's race is
won by token `i` at time `t`, each other token `j` is ahead of `i` in the
draft's race independently of the others.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import base
from specjax import drafters
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.testing import distributions
from tests import arms
from tests import parts
from tests import sizes

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


def agreement(draft, target, num):
  """Returns the probability that the target's winner leads the draft's race.

  Args:
    draft: `[V]`.
    target: `[V]`.
    num: how many of the first tokens of the draft's race are drafted.
  """
  grid, weights = np.polynomial.laguerre.laggauss(60)
  total = 0.0
  for i in np.flatnonzero((draft > 0) & (target > 0)):
    others = np.delete(np.arange(len(draft)), i)
    # Token `j` arrives after `t target[j]`, as it has not won; it is ahead of
    # `i` if it arrives before `t draft[j] target[i] / draft[i]`.
    latest = draft[others] * target[i] / draft[i]
    gap = np.maximum(latest - target[others], 0)
    ahead = -np.expm1(-grid[:, None] * gap)
    counts = np.zeros((len(grid), len(others) + 1))
    counts[:, 0] = 1
    for column in ahead.T[..., None]:
      counts = counts * (1 - column) + np.roll(counts, 1, axis=1) * column
    total += target[i] * weights @ counts[:, :num].sum(axis=1)
  return total


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
  foretold = agreement(DRAFT, TARGET, num)
  error = 5 * np.sqrt(foretold * (1 - foretold) / POSITIONS)
  assert abs((drafted == winner).any(1).mean() - foretold) < error
  of_others = (np.roll(drafted, 1, axis=0) == winner).any(1).mean()
  assert foretold - of_others > 0.05


def test_one_draft_agrees_at_least_as_often_as_the_bound():
  """Daliri et al. (2025): `1 - TV` over `1 + TV`; at most as `maximal`."""
  rng = np.random.default_rng(0)
  for draft, target in rng.dirichlet(np.full(6, 0.5), size=(50, 2)):
    tv = np.abs(draft - target).sum() / 2
    rate = agreement(draft, target, 1)
    assert (1 - tv) / (1 + tv) - 1e-9 <= rate <= 1 - tv + 1e-9
  np.testing.assert_allclose(agreement(TARGET, TARGET, 1), 1, atol=1e-9)


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
  ],
)
def test_what_would_make_texts_differ_is_refused(options, arm_options, words):
  arm, params = drafting(trees.chain(2))
  arm = arm._replace(**arm_options)
  with pytest.raises(ValueError, match=f'shared_noise needs .*{words}'):
    decoder((arm, params), **options)


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
