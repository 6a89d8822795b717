"""Lossy verification with a fixed beta: what it keeps and says, exactly.

The verifier as it runs, by enumeration of drafts and uniforms.
"""

import functools

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import couplings
from specjax import goals
from specjax import trees
from specjax import verifiers
from tests import parts
from tests.oracles import candidates
from tests.oracles import maximal
from tests.verifiers import exact

CASES = {
  'two': exact.Case(trees.chain(2)),
  'end invalid': exact.Case(trees.chain(2), valid=(True, False)),
}
RULES = [(0.0, 1.0), (0.3, 1.0), (0.3, 0.7), (0.6, 0.8), (0.3, 1.2)]
# Leaves nothing of the target behind a rejection.
EXTREME = (0.3, 50.0)


@functools.cache
def integrated(case, alpha, beta, verifier):
  """Integrates the verifier, or another one with the same breakpoints."""

  def lenient(draft, target, *args):
    kept_probs = np.minimum(draft, target / (1 - alpha))
    probs = np.maximum(kept_probs, target / beta)
    accept, draws = maximal.breakpoints(draft, probs, *args)
    # If the residual of the target is 0, it samples from the goal.
    return [accept, np.append(draws, candidates.cumulative(probs))]

  def plain(draft, target, tokens, *args):
    return maximal.breakpoints(draft, target, tokens[:0], *args)

  parameters = () if verifier else (alpha, beta)
  grid = exact.walk_cells(case, exact.union(lenient, plain))
  return exact.integrate(
    case, verifier or verifiers.Lossy, *grid, parameters=parameters
  )


def replaced(draft, target, alpha, beta):
  """Returns the distribution `[..., V]` that replaces a rejected draft."""
  weights = np.maximum(target / beta - draft, 0)
  kept_probs = np.minimum(draft, target / (1 - alpha))
  has_mass = weights.sum(-1, keepdims=True) > 0
  weights = np.where(has_mass, weights, np.maximum(kept_probs, target / beta))
  return weights / weights.sum(-1, keepdims=True)


def check_distribution(case, alpha, beta, verifier=None):
  """The first token has the distribution of the formula."""
  draft, target = case.draft[exact.ROOT], case.target[exact.ROOT]
  kept_probs = np.minimum(draft, target / (1 - alpha))
  expected = kept_probs + (1 - kept_probs.sum()) * replaced(
    draft, target, alpha, beta
  )
  if beta == 1:
    excess = np.maximum(target - draft, 0)
    expected = kept_probs + (1 - kept_probs.sum()) * excess / excess.sum()
  if verifier is None:
    closed_form, rejection = verifiers.Lossy(alpha, beta).token_probs(
      np.float32(draft), np.float32(target)
    )
    np.testing.assert_allclose(closed_form, expected, atol=1e-6)
    np.testing.assert_allclose(rejection, 1 - kept_probs.sum(), atol=1e-6)
  result = integrated(case, alpha, beta, verifier)
  np.testing.assert_allclose(result.mass.sum(), 1, atol=1e-6)
  probs = result.probs.reshape(case.vocab_size, -1).sum(axis=1)
  np.testing.assert_allclose(probs, expected, atol=1e-6)


@pytest.mark.parametrize(('alpha', 'beta'), [*RULES, EXTREME])
def test_a_token_has_exactly_the_distribution_of_the_rule(alpha, beta):
  check_distribution(exact.Case(trees.chain(1), 4), alpha, beta)


def test_of_several_candidates_one_is_tried():
  check_distribution(exact.Case(trees.chains(2, 1)), 0.3, 1.0)


def without_lenience(alpha, beta):
  """Accepts as it should, and replaces as if nothing were lossy."""
  del beta
  return verifiers.Lossy(alpha, 1.0)


def normalised(alpha, beta):
  """A lossless step against the goal, as if its mass were 1."""
  goal = goals.Lossy(alpha, beta)

  def coupling(key, candidates, active, draft, target):
    probs = goal(target, draft, base.RawProbs(target, draft))
    probs = jnp.where(active.any(), probs / probs.sum(), target)
    return couplings.Maximal()(key, candidates, active, draft, probs)

  return verifiers.TreeWalk(parts.FunctionCoupling(coupling))


@pytest.mark.parametrize(
  ('broken', 'beta'), [(without_lenience, 1.5), (normalised, 1.0)]
)
def test_check_rejects_broken_twins(broken, beta):
  with pytest.raises(AssertionError, match='Not equal to tolerance'):
    check_distribution(
      exact.Case(trees.chain(1), 4), 0.3, beta, broken(0.3, beta)
    )


@pytest.mark.parametrize(
  ('name', 'alpha', 'beta'),
  [('two', *rule) for rule in RULES] + [('end invalid', 0.3, 1.2)],
)
def test_every_position_follows_the_rule(name, alpha, beta):
  """Checks the rejected draft, its replacement and the bonus token."""
  case = CASES[name]
  num_valid = int(case.is_valid.sum())
  entries = np.pad(case.drafts, ((0, 0), (1, 0)), constant_values=exact.ROOT)
  draft, target = case.draft[entries], case.target[entries]
  endings = np.zeros_like(target)
  reached = case.weights
  for position in range(num_valid):
    token = (np.arange(len(entries)), position, entries[:, position + 1])
    accept = np.minimum(1, target[token] / ((1 - alpha) * draft[token]))
    replacement = replaced(draft[:, position], target[:, position], alpha, beta)
    endings[:, position] = (reached * (1 - accept))[:, None] * replacement
    reached = reached * accept
  endings[:, num_valid] = reached[:, None] * target[:, num_valid]
  actual = integrated(case, alpha, beta, None).endings(case.vocab_size)
  np.testing.assert_allclose(actual, endings, atol=1e-6)


def test_what_was_not_sampled_is_verified_without_loss():
  case = exact.Case(trees.chain(2), chosen=(1, 2))
  result = integrated(case, 0.3, 2.0, None)
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)


def test_alpha_zero_is_lossless():
  result = integrated(CASES['two'], 0.0, 1.0, None)
  np.testing.assert_allclose(result.probs, CASES['two'].expected, atol=1e-6)


@pytest.mark.parametrize(
  ('arguments', 'words'),
  [
    ((-0.1,), r'alpha of Lossy must be >= 0, got -0\.1'),
    ((1.0,), r'alpha of Lossy must be < 1, got 1\.0'),
    ((np.nan,), 'alpha of Lossy must be >= 0, got nan'),
    ((0.25, 0.7), r'beta of Lossy must be >= 1 - alpha = 0\.75, got 0\.7'),
    ((0.25, np.nan), 'beta of Lossy must be >= 1 - alpha = 0.75, got nan'),
  ],
)
def test_bad_arguments_are_refused(arguments, words):
  with pytest.raises(ValueError, match=words):
    verifiers.Lossy(*arguments)
