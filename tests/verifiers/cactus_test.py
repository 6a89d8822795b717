"""Cactus: what it keeps and replaces, exactly.

The verifier as it runs, by enumeration of drafts and uniforms.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from specjax import base
from specjax import couplings
from specjax import trees
from specjax import verifiers
from specjax.verifiers import cactus
from tests import parts
from tests.oracles import maximal
from tests.verifiers import exact

CASES = {
  'one': exact.Case(trees.chain(1), 4),
  'two': exact.Case(trees.chain(2)),
  'end invalid': exact.Case(trees.chain(2), valid=(True, False)),
}
DELTAS = 0.0, 0.05, 0.5, 1.0


def raised(target, token, delta):
  """Returns the target, in which a token is more likely."""
  prob = target[token]
  if prob in (0, 1):
    return target
  top = min(prob + np.sqrt(2 * delta * prob * (1 - prob)), 1)
  probs = target * (1 - top) / (1 - prob)
  probs[token] = top
  return probs


def token_probs(draft, target, delta, raise_probability=raised):
  """Returns the distribution of a token, over all tokens that are drafted."""
  probs = np.zeros(len(draft))
  for token in np.flatnonzero(draft):
    favored = raise_probability(target, token, delta)
    kept = min(draft[token], favored[token])
    probs[token] += kept
    if kept < draft[token]:
      excess = np.maximum(favored - draft, 0)
      probs += (draft[token] - kept) * excess / excess.sum()
  return probs


@functools.cache
def integrated(case, delta, verifier=None):
  """Integrates the verifier, or another one with the same breakpoints."""

  def breakpoints(draft, target, tokens, *args):
    if not len(tokens):
      return maximal.breakpoints(draft, target, tokens, *args)
    favored = raised(target, tokens[0], delta)
    accept, draws = maximal.breakpoints(draft, favored, tokens, *args)
    # If nothing exceeds the draft, it samples from the raised target.
    return [accept, np.append(draws, np.cumsum(favored)[:-1])]

  plain = lambda draft, target, tokens, *args: maximal.breakpoints(
    draft, target, tokens[:0], *args
  )
  parameters = () if verifier else (delta,)
  grid = exact.walk_cells(case, exact.union(breakpoints, plain))
  return exact.integrate(
    case, verifier or verifiers.Cactus, *grid, parameters=parameters
  )


def check_endings(name, delta, verifier=None):
  """The rejected draft, its replacement and the bonus token, by position."""
  case = CASES[name]
  num_valid = int(case.is_valid.sum())
  entries = np.pad(case.drafts, ((0, 0), (1, 0)), constant_values=exact.ROOT)
  endings = np.zeros((*entries.shape, case.vocab_size))
  for row, (path, weight) in enumerate(zip(entries, case.weights)):
    reached = weight
    for position in range(num_valid):
      draft, target = case.draft[path[position]], case.target[path[position]]
      token = path[position + 1]
      favored = raised(target, token, delta)
      accept = min(1, favored[token] / draft[token])
      excess = np.maximum(favored - draft, 0)
      if accept < 1:
        replacement = excess / excess.sum()
        endings[row, position] = reached * (1 - accept) * replacement
      reached *= accept
    endings[row, num_valid] = reached * case.target[path[num_valid]]
  actual = integrated(case, delta, verifier).endings(case.vocab_size)
  np.testing.assert_allclose(actual, endings, atol=1e-6)


@pytest.mark.parametrize('name', CASES)
@pytest.mark.parametrize('delta', DELTAS)
def test_every_position_follows_the_rule(name, delta):
  check_endings(name, delta)


def test_delta_zero_is_lossless():
  case = CASES['two']
  result = integrated(case, 0.0)
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)


def test_more_is_accepted_with_a_larger_delta():
  reach = [integrated(CASES['two'], delta).reach for delta in DELTAS]
  assert (np.diff(reach, axis=0) > -1e-6).all()
  assert (reach[-1] > reach[0] + 0.05).all()


def pairs():
  """Returns drafts and targets `[n, V]`, with zeros and certain tokens."""
  rng = np.random.default_rng(2)
  both = rng.dirichlet(np.full(12, 0.4), size=(2, 40))
  both[:, :10] *= rng.random((2, 10, 12)) < 0.6
  both[:, 10:13] = np.eye(12)[:6].reshape(2, 3, 12)
  both[1, 13] = both[0, 13]
  both[1, 14:16] = np.eye(12)[:2]
  return both / both.sum(-1, keepdims=True)


@pytest.mark.parametrize('delta', DELTAS)
def test_token_probs_are_means_over_drafted_tokens(delta):
  draft, target = pairs()
  oracle = lambda *options: np.stack(
    [token_probs(*rows, delta, *options) for rows in zip(draft, target)]
  )
  verifier = verifiers.Cactus(delta)
  probs, rejection = jax.jit(jax.vmap(verifier.token_probs))(
    draft.astype(np.float32), target.astype(np.float32)
  )
  expected = oracle()
  np.testing.assert_allclose(probs, expected, atol=2e-6)
  rejected = np.maximum(expected - draft, 0).sum(1)
  np.testing.assert_allclose(rejection, rejected, atol=2e-6)
  if delta:
    # As if all other tokens kept their probabilities.
    broken = lambda target, token, delta: np.where(
      np.arange(12) == token, raised(target, token, delta), target
    )
    assert np.abs(np.asarray(probs) - oracle(broken)).max() > 1e-3


def test_token_probs_are_those_of_the_verifier():
  case = CASES['one']
  mass = integrated(case, 0.5)
  tokens = mass.outcome.tokens[..., 0]
  actual = np.bincount(tokens.ravel(), mass.mass.ravel(), case.vocab_size)
  draft, target = case.draft[exact.ROOT], case.target[exact.ROOT]
  np.testing.assert_allclose(actual, token_probs(draft, target, 0.5), atol=1e-6)


def with_the_target_s_residual(delta):
  """Accepts as it should, and replaces as if nothing were raised."""

  def coupling(key, candidates, active, draft, target):
    token = candidates[jnp.argmax(active)]
    favored = cactus.raise_probability(target, token, delta)
    probs = jnp.where(
      active.any(), target.at[token].set(favored[token]), target
    )
    return couplings.Maximal()(key, candidates, active, draft, probs)

  return verifiers.TreeWalk(parts.FunctionCoupling(coupling))


def without_the_square_root(delta):
  """Raises a probability by the budget itself."""

  def coupling(key, candidates, active, draft, target):
    token = candidates[jnp.argmax(active)]
    top = jnp.minimum(target[token] + delta, 1)
    others = target * (1 - top) / (1 - target[token])
    probs = jnp.where(active.any(), others.at[token].set(top), target)
    return couplings.Maximal()(key, candidates, active, draft, probs)

  return verifiers.TreeWalk(parts.FunctionCoupling(coupling))


@pytest.mark.parametrize(
  'broken', [with_the_target_s_residual, without_the_square_root]
)
def test_check_rejects_broken_twins(broken):
  with pytest.raises(AssertionError, match='Not equal to tolerance'):
    check_endings('one', 0.05, broken(0.05))


def _divergence(top, prob, delta=0.0):
  """The divergence of a raised probability from the target, beyond `delta`."""
  rest = (1 - top) * np.log((1 - top) / (1 - prob))
  return top * np.log(top / prob) + rest - delta


@pytest.mark.parametrize('delta', [1e-5, 1e-4])
def test_the_divergence_is_the_budget_to_second_order(delta):
  """Compares with the largest probability at which it is, by a root."""
  rng = np.random.default_rng(0)
  for target in rng.dirichlet(np.full(6, 4.0), 20):
    token = int(rng.integers(6))
    prob = target[token]
    probs = cactus.raise_probability(
      jnp.asarray(target, jnp.float32), token, delta
    )
    np.testing.assert_allclose(probs.sum(), 1, atol=1e-6)
    largest = optimize.brentq(_divergence, prob, 1 - 1e-9, (prob, delta))
    gain = float(probs[token]) - prob
    np.testing.assert_allclose(gain, largest - prob, rtol=0.15)


@pytest.mark.parametrize('token', [0, 1])
def test_greedy_targets_stay_as_they_are(token):
  target = jnp.float32([1.0, 0.0, 0.0])
  probs = jax.jit(cactus.raise_probability)(target, token, 1.0)
  np.testing.assert_array_equal(probs, target)


def test_a_negative_delta_raises():
  with pytest.raises(ValueError, match=r'delta of Cactus must be >= 0, got -0'):
    verifiers.Cactus(-0.1)
  assert not isinstance(verifiers.Cactus(0.5), base.Coupling)
