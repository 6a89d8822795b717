"""Block verification: exact distributions, and that no verifier keeps more."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import optimize

from specjax import base
from specjax import testing
from specjax import trees
from specjax import verifiers
from tests.oracles import block as oracle
from tests.oracles import enumeration
from tests.verifiers import exact

CASES = {
  'empty': exact.Case(trees.chain(0)),
  '1 of 2': exact.Case(trees.chain(1), 2),
  '1 of 3': exact.Case(trees.chain(1)),
  '2 of 2': exact.Case(trees.chain(2), 2),
  '2 of 3': exact.Case(trees.chain(2)),
  '3 of 2': exact.Case(trees.chain(3), 2),
  '3 of 3': exact.Case(trees.chain(3)),
  'end invalid': exact.Case(trees.chain(3), valid=(True, True, False)),
  'middle invalid': exact.Case(trees.chain(3), valid=(True, False, True)),
  'all invalid': exact.Case(trees.chain(2), valid=(False, False)),
  'deterministic': exact.Case(trees.chain(3), chosen=(1, 2, 0)),
  'other goal': exact.Case(trees.chain(3), goal=exact.HALF),
}
each_case = pytest.mark.parametrize('name', CASES)


def num_valid(case):
  return int(np.cumprod(case.is_valid).sum())


@functools.cache
def path_of(name):
  """Returns `(tokens [L], probs [L, V], targets [L + 1, V])` per draft."""
  case = CASES[name]
  end = num_valid(case)
  paths = []
  for tokens, probs in zip(case.drafts, case.node_probs):
    contexts = np.insert(tokens, 0, exact.ROOT)[: end + 1]
    paths.append((tokens[:end], probs[:end], case.target[contexts]))
  return paths


def formula(name, **twin):
  """Returns `[n, D + 1, V]`: P(draft, number accepted, next token)."""
  case = CASES[name]
  endings = np.zeros(
    (len(case.drafts), case.topology.depth + 1, case.vocab_size)
  )
  for ending, path, weight in zip(endings, path_of(name), case.weights):
    ending[: num_valid(case) + 1] = weight * oracle.endings(*path, **twin)
  return endings


def rounds(case):
  """All drafts, accepted and next tokens: `[m, L + 1]` tokens, `[m]` kept."""
  size = len(case.drafts), case.topology.depth + 1, case.vocab_size
  draft, num, token = (index.ravel() for index in np.indices(size))
  tokens = np.pad(case.drafts, ((0, 0), (0, 1)))[draft]
  tokens[np.arange(len(num)), num] = token
  return tokens, num


@functools.cache
def integrated(name):
  """Each draft has cells of its own, cut by its own breakpoints."""
  case = CASES[name]
  grids = [
    enumeration.cells(oracle.breakpoints(*path, case.topology.depth))
    for path in path_of(name)
  ]
  return exact.integrate(case, verifiers.Block(), *exact.padded(grids))


@each_case
def test_completed_round_has_exactly_the_goal_distribution(name):
  """Enumerates drafts and uniforms, including the bonus token."""
  case = CASES[name]
  result = integrated(name)
  np.testing.assert_allclose(result.mass.sum(), 1, atol=1e-6)
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)
  accepted = (
    np.arange(case.topology.depth) < result.outcome.num_accepted[..., None]
  )
  draft_tokens = np.broadcast_to(case.drafts[:, None], accepted.shape)
  assert (result.outcome.tokens[..., :-1] == draft_tokens)[accepted].all()
  assert (result.outcome.path == np.arange(case.topology.depth)).all()


@each_case
def test_each_draft_ends_as_the_formulas_say(name):
  case = CASES[name]
  np.testing.assert_allclose(
    integrated(name).endings(case.vocab_size), formula(name), atol=1e-6
  )


@pytest.mark.parametrize('twin', [{'last': False}, {'scaled': False}], ids=str)
@pytest.mark.parametrize('name', ['3 of 3', 'other goal'])
def test_check_rejects_wrong_formulas(name, twin):
  """The first failure as the end, and a residual whose target is not scaled."""
  case = CASES[name]
  completed = lambda **twin: testing.rounds.complete(
    *rounds(case), formula(name, **twin).ravel(), case.target
  )
  np.testing.assert_allclose(completed(), case.expected, atol=1e-9)
  assert np.abs(completed(**twin) - case.expected).max() > 1e-3


@each_case
def test_a_prefix_is_accepted_as_often_as_its_share(name):
  """Never less often than by the tree walk, which tests token by token.

  There, a prefix survives with the product of `min(goal / draft, 1)`.
  """
  case = CASES[name]
  share = np.array([oracle.shares(*path)[1:] for path in path_of(name)])
  reach = integrated(name).reach
  np.testing.assert_allclose(
    reach[: num_valid(case)], case.weights @ share, atol=1e-6
  )
  assert not reach[num_valid(case) :].any()
  token_pass_probs = np.array([pass_probs(*path) for path in path_of(name)])
  walk = case.weights @ token_pass_probs.cumprod(axis=1)
  np.testing.assert_allclose(reach[: len(walk[:1])], walk[:1], atol=1e-6)
  # A deterministic draft's ratios do not exceed 1: there is nothing to gain.
  margin = 0 if case.chosen else 1e-3
  assert (reach[1 : len(walk)] >= walk[1:] + margin - 1e-6).all()


def pass_probs(tokens, probs, targets):
  """Returns `[L]`, the probability that each token passes the ordinary test."""
  index = np.arange(len(tokens)), tokens
  return np.minimum(targets[index] / probs[index], 1)


def best_accepted(case):
  """Returns the largest expected number of accepted tokens for this draft.

  Solves a linear program over the probabilities of `rounds`. Those with the
  same draft sum to its probability, and the completed rounds follow the goal
  distribution.
  """
  tokens, num = rounds(case)
  owner = np.repeat(np.eye(len(case.drafts)), len(num) // len(case.drafts), 1)
  weight = np.ones(1)
  completed = np.stack(
    [
      testing.rounds.complete(
        row[None], num_accepted[None], weight, case.target
      )
      for row, num_accepted in zip(tokens, num)
    ],
    axis=1,
  )
  solution = optimize.linprog(
    -num,
    A_eq=np.concatenate([owner, completed])[:-1],  # One of them is redundant.
    b_eq=np.append(case.weights, case.expected)[:-1],
    bounds=[
      (0, 0 if num_accepted > num_valid(case) else None) for num_accepted in num
    ],
    method='highs',
  )
  assert solution.success
  return -solution.fun


@each_case
def test_no_verifier_accepts_more(name):
  """Even one that knows both models behind every prefix."""
  best = best_accepted(CASES[name])
  np.testing.assert_allclose(integrated(name).reach.sum(), best, atol=1e-6)


def verify(uniforms, tokens, probs, target_probs):
  """One row's outcome at chosen uniforms, on a chain."""
  tokens = jnp.array(tokens, jnp.int32)
  tree = base.DraftTree(
    tokens,
    trees.chain(len(tokens)),
    jnp.ones(len(tokens), bool),
    jnp.array(probs),
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(jax.random, 'uniform', lambda key, *_: key)
    return jax.jit(verifiers.Block())(
      jnp.array(uniforms), tree, jnp.array(target_probs)
    )


def test_a_token_of_target_mass_zero_is_never_emitted():
  """At uniform 0, `<=` would accept it."""
  outcome = verify([0.0, 0.0, 0.0], [0], [[1.0, 0.0]], [[0.0, 1.0], [1.0, 0.0]])
  assert outcome.num_accepted == 0 and outcome.tokens[0] == 1


def test_equal_probs_accept_everything():
  """Where all residuals are 0, and the uniforms as large as they get."""
  probs = [[0.5, 0.5]] * 3
  outcome = verify([np.float32(1 - 2**-24)] * 4, [0, 1], probs[:2], probs)
  assert outcome.num_accepted == 2 and outcome.tokens.tolist() == [0, 1, 1]
