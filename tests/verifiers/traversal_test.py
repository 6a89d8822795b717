"""Traversal verification: exact distributions, and how many tokens it keeps."""

import functools

import numpy as np
import pytest

from specjax import testing
from specjax import theory
from specjax import trees
from specjax import verifiers
from specjax.verifiers import traversal
from tests import tiers
from tests.oracles import block
from tests.oracles import enumeration
from tests.oracles import multiround
from tests.oracles import traversal as oracle
from tests.verifiers import exact

PREFIX_TREE = trees.prefix_tree((2, 2))
ONE, TWO = trees.chain(1), trees.chain(2)
CASES = {
  'empty': exact.Case(trees.chain(0)),
  'chain': exact.Case(trees.chain(3)),
  'chain, end invalid': exact.Case(trees.chain(3), valid=(True, True, False)),
  'chain, chosen': exact.Case(trees.chain(3), chosen=(1, 2, 0)),
  'siblings': exact.Case(trees.chains(3, 1)),
  'siblings, one invalid': exact.Case(
    trees.chains(3, 1), valid=(False, True, True)
  ),
  'siblings, chosen': exact.Case(trees.chains(3, 1), 4, chosen=(2, 0, 3)),
  'chains': exact.Case(trees.chains(2, 2), 2),
  'chains, other goal': exact.Case(trees.chains(2, 2), 2, goal=exact.HALF),
  'one, then two': exact.Case(trees.prefix_tree((1, 2))),
  'two, one with two': exact.Case(trees.Topology((-1, -1, 0, 0)), 2),
  'prefix tree, some invalid': exact.Case(
    PREFIX_TREE, 2, valid=(True, True, False, True, True, False)
  ),
  'tree, chosen': exact.Case(PREFIX_TREE, 3, chosen=(2, 1, 0, 1, 2, 1)),
  'mixed drafts': exact.joint({'draft': ONE, 'chosen': ONE, 'other': ONE}),
  'mixed drafts, deep': exact.joint({'draft': TWO, 'other': TWO}),
}
each_case = pytest.mark.parametrize(
  'name',
  tiers.cases(
    CASES,
    *('empty', 'chain', 'siblings, one invalid', 'chains', 'tree, chosen'),
    *('prefix tree, some invalid', 'mixed drafts'),
  ),
)


def traversals(case, **twin):
  """Returns the tests of each draft."""
  return [
    oracle.traverse(
      tokens,
      case.topology.parents,
      probs,
      case.target[np.append(exact.ROOT, tokens)],
      case.is_valid,
      **twin,
    )
    for tokens, probs in zip(case.drafts, case.node_probs)
  ]


@functools.cache
def integrated(name):
  """Each draft has cells of its own, cut by its own breakpoints."""
  case = CASES[name]
  grids = [
    enumeration.cells(oracle.breakpoints(tests, case.topology.num_nodes))
    for tests in traversals(case)
  ]
  return exact.integrate(case, verifiers.Traversal(), *exact.padded(grids))


@each_case
def test_completed_round_has_exactly_the_goal_distribution(name):
  """Enumerates drafts and uniforms, including the bonus token."""
  case, result = CASES[name], integrated(name)
  np.testing.assert_allclose(result.mass.sum(), 1, atol=1e-6)
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)


@each_case
def test_each_draft_ends_as_the_oracle_says(name):
  """After each node, and with each next token."""
  case, outcome = CASES[name], integrated(name).outcome
  num_nodes = case.topology.num_nodes
  last = np.where(
    outcome.num_accepted > 0,
    np.take_along_axis(
      np.pad(outcome.path, ((0, 0), (0, 0), (1, 0))),
      outcome.num_accepted[..., None],
      axis=2,
    )[..., 0],
    -1,
  )
  tokens = np.take_along_axis(
    outcome.tokens, outcome.num_accepted[..., None], axis=2
  )[..., 0]
  endings = np.zeros((len(case.drafts), num_nodes + 1, case.vocab_size))
  draft = np.arange(len(case.drafts))[:, None]
  np.add.at(endings, (draft, last + 1, tokens), integrated(name).mass)
  expected = case.weights[:, None, None] * np.stack(
    [oracle.endings(tests, num_nodes) for tests in traversals(case)]
  )
  np.testing.assert_allclose(endings, expected, atol=1e-6)


@pytest.mark.parametrize('name', ['chain', 'chain, end invalid'])
def test_on_a_chain_it_keeps_as_much_as_block_verification(name):
  """No rule keeps more: each prefix is kept with its share."""
  case = CASES[name]
  num_valid = int(np.cumprod(case.is_valid).sum())
  shares = [
    block.shares(
      tokens[:num_valid],
      probs[:num_valid],
      case.target[np.append(exact.ROOT, tokens)],
    )[1:]
    for tokens, probs in zip(case.drafts, case.node_probs)
  ]
  reach = integrated(name).reach
  np.testing.assert_allclose(
    reach[:num_valid], case.weights @ np.array(shares), atol=1e-6
  )
  assert not reach[num_valid:].any()


@pytest.mark.parametrize(
  'name',
  tiers.cases(
    ['chains', 'one, then two', 'two, one with two', 'mixed drafts, deep'],
    *('chains', 'two, one with two'),
  ),
)
def test_on_a_tree_it_keeps_more_than_the_walk_level_by_level(name):
  """Both test siblings in order, each against what the last one left."""
  case = CASES[name]
  is_joint = isinstance(case, exact.Joint)
  walk = exact.integrate(
    case,
    verifiers.Ensemble() if is_joint else verifiers.resolve('multiround'),
    *exact.walk_cells(case, multiround.breakpoints, sibling_probs=is_joint),
  )
  assert integrated(name).reach.sum() > walk.reach.sum() + 1e-3


def test_no_verifier_keeps_more_than_the_linear_program():
  case = CASES['chains']
  best = theory.best_accepted(case.target, case.draft, 2, 2)
  assert integrated('chains').reach.sum() <= best + 1e-6


BROKEN = {
  'unscaled residual': lambda share, target, draft: (
    oracle.after_rejection(share, target, draft)[0],
    oracle.after_rejection(1.0, target, draft)[1],
  ),
  'mass for the share': lambda share, target, draft: (
    np.maximum(share * target - draft, 0).sum(),
    oracle.after_rejection(share, target, draft)[1],
  ),
}


@pytest.mark.parametrize('update', BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize('name', ['chain', 'mixed drafts, deep'])
def test_check_rejects_wrong_formulas(name, update):
  """In float64, where the right ones are exact."""
  case = CASES[name]

  def completed(**twin):
    num_nodes = case.topology.num_nodes
    probs = np.zeros_like(case.expected)
    for draft, weight, tests in zip(
      case.drafts, case.weights, traversals(case, **twin)
    ):
      endings = weight * oracle.endings(tests, num_nodes)
      for node, row in enumerate(endings, start=-1):
        nodes = np.flatnonzero(case.topology.mask[node + 1])[1:] - 1
        for token, mass in enumerate(row):
          tokens = np.zeros(case.topology.depth + 1, int)
          tokens[: len(nodes) + 1] = [*draft[nodes], token]
          probs += testing.rounds.complete(
            tokens[None], np.array([len(nodes)]), np.array([mass]), case.target
          )
    return probs

  np.testing.assert_allclose(completed(), case.expected, atol=1e-9)
  assert np.abs(completed(update=update) - case.expected).max() > 1e-4


def test_check_rejects_a_parent_that_keeps_its_share(monkeypatch):
  """As if each sibling were the first one."""
  without_child = traversal._without_child

  def broken(share, target, draft):
    return share, without_child(share, target, draft)[1]

  monkeypatch.setattr(traversal, '_without_child', broken)
  with pytest.raises(AssertionError, match='the distribution of the target'):
    testing.check_lossless('traversal', [trees.chain(2)])
