"""Block verification of trees: exact distributions, in two steps.

Which path is chosen is integrated over the uniforms of the priorities; then, of
each draft and path, what is kept, over those of the tests.
"""

import functools
from typing import NamedTuple

import numpy as np
import pytest

from specjax import testing
from specjax import theory
from specjax import trees
from specjax import verifiers
from specjax.couplings import proposals
from tests.verifiers import exact

PREFIX_TREE = trees.prefix_tree((2, 2))
CASES = {
  'siblings': exact.Case(trees.chains(2, 1)),
  'three siblings, one invalid': exact.Case(
    trees.chains(3, 1), valid=(False, True, True)
  ),
  'chains': exact.Case(trees.chains(2, 2), 2),
  'chains, one end invalid': exact.Case(
    trees.chains(2, 2), 2, valid=(True, True, False, True)
  ),
  'chains, other goal': exact.Case(trees.chains(2, 2), 2, goal=exact.half),
  'one, then two': exact.Case(trees.prefix_tree((1, 2))),
  'two, one with two': exact.Case(trees.Topology((-1, -1, 0, 0)), 2),
  'prefix tree, some invalid': exact.Case(
    PREFIX_TREE, 2, valid=(True, True, False, True, True, False)
  ),
  'siblings, chosen': exact.Case(trees.chains(3, 1), 4, chosen=(2, 0, 3)),
  'tree, chosen': exact.Case(PREFIX_TREE, 3, chosen=(2, 1, 0, 1, 2, 1)),
}
each_case = pytest.mark.parametrize('name', CASES)


class Paths(NamedTuple):
  """The paths of all drafts; `n` in all, and `D` their levels."""

  draft: np.ndarray  # [n] which draft
  chance: np.ndarray  # [n] of draft and path
  points: np.ndarray  # [n, ...] uniforms that choose it
  tokens: np.ndarray  # [n, D]
  probs: np.ndarray  # [n, D, V] what its tokens were proposed from
  num_valid: np.ndarray  # [n] tokens that are there


@functools.cache
def paths(case):
  """By enumeration of drafts, and cells of the priorities."""
  width, depth = case.topology.width, case.topology.depth
  own = lambda *args: axes(case, *args)[0] if len(args[2]) else {}
  points, volumes = exact.own_cells(case, own, 3 * width, depth)
  points = points.reshape(*volumes.shape, -1, 2)
  # With tests that all pass, the whole path is kept.
  passing = np.zeros((*volumes.shape, depth + 2, 2))
  numbers = np.concatenate([passing, points], axis=2)
  result = exact.integrate(case, verifiers.block(), numbers, volumes)
  corners = np.concatenate([points[..., 0], points[..., 1]], axis=1)
  found = {}
  for draft, cell in np.argwhere(result.mass > 0):
    num = result.outcome.num_accepted[draft, cell]
    key = draft, tuple(result.outcome.path[draft, cell, :num])
    mass, point = found.get(key, (0.0, corners[draft, cell]))
    found[key] = mass + result.mass[draft, cell], point
  tokens = np.zeros((len(found), depth), int)
  for row, (draft, nodes) in zip(tokens, found):
    row[: len(nodes)] = case.drafts[draft, list(nodes)]
  return Paths(
    draft=np.array([draft for draft, _ in found]),
    chance=np.array([mass for mass, _ in found.values()]),
    points=np.stack([point for _, point in found.values()]),
    tokens=tokens,
    probs=np.stack([proposed(case, *key) for key in found]),
    num_valid=np.array([len(nodes) for _, nodes in found]),
  )


def axes(case, draft, target, tokens, places, width):
  """Breakpoints of what is proposed, by uniform, and its distribution."""
  if case.chosen is None:
    return exact.priority_axes(draft, target, tokens, places, width)
  probs = np.zeros_like(target)
  probs[tokens] = target[tokens] / target[tokens].sum()
  return {0: exact.cumulative(target[tokens])}, probs


def proposed(case, draft, nodes):
  """`[D, V]` what the tokens of a path were proposed from."""
  tokens, parents = case.drafts[draft], np.array(case.topology.parents)
  probs = np.zeros((case.topology.depth, case.vocab_size))
  here, context = [-1], exact.ROOT
  for depth, node in enumerate(nodes):
    of_level = case.topology.depths == depth + 1
    active = np.flatnonzero(of_level & case.is_valid & np.isin(parents, here))
    pair = case.draft[context], case.target[context]
    probs[depth] = axes(case, *pair, tokens[active], active, 0)[1]
    context = tokens[node]
    here = active[tokens[active] == context]
  return probs


def shares(case, found):
  """`[n, D + 1]` of each path, as the formula has them; junk behind its end."""
  columns = [np.ones(len(found.chance))]
  before = np.insert(found.tokens, 0, exact.ROOT, axis=1)
  rows = np.arange(len(found.chance))
  for i, token in enumerate(found.tokens.T):
    target = case.target[before[:, i], token]
    drafted = found.probs[rows, i, token]
    ratio = target / np.where(drafted > 0, drafted, 1.0)
    columns.append(np.minimum(columns[-1] * ratio, 1))
  return np.stack(columns, axis=1)


@functools.cache
def integrated(name):
  """Of each path, over the uniforms of its tests and of the next token."""
  case = CASES[name]
  found = paths(case)
  grids = []
  before = np.insert(found.tokens, 0, exact.ROOT, axis=1)
  for i, share in enumerate(shares(case, found)):
    end = found.num_valid[i]
    tests, draws = [[]], []
    for depth in range(end + 1):
      target = case.target[before[i, depth]]
      weights = target
      if depth < end:
        weights = np.maximum(share[depth] * target - found.probs[i, depth], 0)
      draws.append(exact.cumulative(weights))
      mass = weights.sum() if depth < end else share[end]
      if depth:
        tests.append([mass / (mass + 1 - share[depth])] if mass else [])
    tests += [[]] * (case.topology.depth - end)
    grids.append(exact.cells([np.concatenate(draws), *tests]))
  points, volumes = (exact.padded(part) for part in zip(*grids))
  chosen = np.broadcast_to(
    found.points[:, None, :, None], (*volumes.shape, found.points.shape[1], 2)
  )
  numbers = np.concatenate([points, chosen], axis=2)
  return exact.integrate(
    OfPaths(case, found), verifiers.block(), numbers, volumes
  )


class OfPaths:
  """A case whose drafts are those of the paths, as often as they are."""

  def __init__(self, case, found):
    self.topology, self.target = case.topology, case.target
    self.drafts, self.weights = case.drafts[found.draft], found.chance
    self.verify = case.verify


@each_case
def test_every_draft_has_a_path_and_its_tokens_are_as_proposed(name):
  """The distribution that the tests are made with is the path's own."""
  case = CASES[name]
  found = paths(case)
  np.testing.assert_allclose(found.chance.sum(), 1, atol=1e-6)
  first = np.zeros(case.vocab_size)
  np.add.at(first, found.tokens[:, 0], found.chance)
  np.testing.assert_allclose(first, found.probs[0, 0], atol=1e-6)


@each_case
def test_completed_round_has_exactly_the_goal_distribution(name):
  case = CASES[name]
  result = integrated(name)
  np.testing.assert_allclose(result.mass.sum(), 1, atol=1e-6)
  np.testing.assert_allclose(result.probs, case.want, atol=1e-6)


@each_case
def test_a_path_is_kept_as_often_as_its_share(name):
  case = CASES[name]
  found = paths(case)
  depths = np.arange(1, case.topology.depth + 1)
  there = depths <= found.num_valid[:, None]
  reach = found.chance @ np.where(there, shares(case, found)[:, 1:], 0)
  np.testing.assert_allclose(integrated(name).reach, reach, atol=1e-6)


@pytest.mark.parametrize('name', ['chains', 'chains, other goal'])
def test_no_verifier_keeps_more_than_the_linear_program(name):
  """And the tree walk with `otm`, which has the same path, keeps less."""
  case = CASES[name]
  args = case.target, case.draft, 2, 2
  kept = integrated(name).reach.sum()
  walk = theory.acceptance_by_depth(*args, 'otm').sum()
  assert walk <= kept + 1e-6 <= theory.best_accepted(*args) + 2e-6
  np.testing.assert_allclose(
    kept, theory.acceptance_by_depth(*args, 'block').sum(), atol=1e-5
  )


@pytest.mark.parametrize('name', ['chains', 'one, then two'])
def test_check_rejects_tests_against_the_drafter(name, monkeypatch):
  """As if the path were a chain that the drafter has drawn."""
  propose = proposals.propose

  def broken(uniforms, candidates, active, draft, target):
    args = uniforms, candidates, active, draft, target
    return propose(*args)._replace(probs=draft)

  monkeypatch.setattr(proposals, 'propose', broken)
  with pytest.raises(AssertionError, match='the distribution of the target'):
    testing.check_lossless('block', [CASES[name].topology])
