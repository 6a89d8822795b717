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
from tests import tiers
from tests.oracles import block
from tests.oracles import candidates
from tests.oracles import enumeration
from tests.oracles import otm
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
  'chains, other goal': exact.Case(trees.chains(2, 2), 2, goal=exact.HALF),
  'one, then two': exact.Case(trees.prefix_tree((1, 2))),
  'two, one with two': exact.Case(trees.Topology((-1, -1, 0, 0)), 2),
  'prefix tree, some invalid': exact.Case(
    PREFIX_TREE, 2, valid=(True, True, False, True, True, False)
  ),
  'siblings, chosen': exact.Case(trees.chains(3, 1), 4, chosen=(2, 0, 3)),
  'tree, chosen': exact.Case(PREFIX_TREE, 3, chosen=(2, 1, 0, 1, 2, 1)),
}
each_case = pytest.mark.parametrize(
  'name',
  tiers.cases(CASES, 'chains', 'prefix tree, some invalid', 'tree, chosen'),
)


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
  """Enumerates the drafts and the cells of the priorities."""
  depth = case.topology.depth
  choose = [functools.partial(choices, case)] * depth
  points, volumes = exact.walk_cells(case, choose, only_sampled=False)
  points = points.reshape(*volumes.shape, -1, 2)
  # All tests pass, so the full path is accepted.
  passing = np.zeros((*volumes.shape, depth + 2, 2))
  numbers = np.concatenate([passing, points], axis=2)
  result = exact.integrate(case, verifiers.Block(), numbers, volumes)
  corners = np.concatenate([points[..., 0], points[..., 1]], axis=1)
  path_masses = {}
  for draft, cell in np.argwhere(result.mass > 0):
    num = result.outcome.num_accepted[draft, cell]
    key = draft, tuple(result.outcome.path[draft, cell, :num])
    mass, point = path_masses.get(key, (0.0, corners[draft, cell]))
    path_masses[key] = mass + result.mass[draft, cell], point
  tokens = np.zeros((len(path_masses), depth), int)
  for row, (draft, nodes) in zip(tokens, path_masses):
    row[: len(nodes)] = case.drafts[draft, list(nodes)]
  return Paths(
    draft=np.array([draft for draft, _ in path_masses]),
    chance=np.array([mass for mass, _ in path_masses.values()]),
    points=np.stack([point for _, point in path_masses.values()]),
    tokens=tokens,
    probs=np.stack([proposed(case, *key) for key in path_masses]),
    num_valid=np.array([len(nodes) for _, nodes in path_masses]),
  )


def choices(case, draft, target, tokens, slots, width):
  """Returns the breakpoints of the proposal at one level, by uniform."""
  if case.chosen is None:
    return otm.breakpoints(draft, target, tokens, slots, width)[2:]
  steps = [candidates.cumulative(target[tokens])] if len(tokens) else [[]]
  return steps + [[]] * (3 * width - 1)


def proposal(case, draft, target, tokens):
  """`[V]` what the token that is proposed is distributed as."""
  if case.chosen is None:
    return otm.proposal(otm.make_plan(draft, target, len(tokens)), draft)
  probs = np.zeros_like(target)
  probs[tokens] = target[tokens] / target[tokens].sum()
  return probs


def proposed(case, draft, nodes):
  """Returns `[D, V]`, the distributions that a path was proposed from."""
  tokens, parents = case.drafts[draft], np.array(case.topology.parents)
  probs = np.zeros((case.topology.depth, case.vocab_size))
  active_nodes, context = [-1], exact.ROOT
  for depth, node in enumerate(nodes):
    of_level = case.topology.depths == depth + 1
    active = np.flatnonzero(
      of_level & case.is_valid & np.isin(parents, active_nodes)
    )
    pair = case.draft[context], case.target[context]
    probs[depth] = proposal(case, *pair, tokens[active])
    context = tokens[node]
    active_nodes = active[tokens[active] == context]
  return probs


def path_arrays(case, case_paths):
  """Yields `(tokens [L], probs [L, V], targets [L + 1, V])`."""
  parent_tokens = np.insert(case_paths.tokens, 0, exact.ROOT, axis=1)
  for i, end in enumerate(case_paths.num_valid):
    targets = case.target[parent_tokens[i, : end + 1]]
    yield case_paths.tokens[i, :end], case_paths.probs[i, :end], targets


@functools.cache
def integrated(name):
  """Integrates each path over the uniforms of its tests and the next token."""
  case = CASES[name]
  case_paths = paths(case)
  grids = [
    enumeration.cells(block.breakpoints(*path, case.topology.depth))
    for path in path_arrays(case, case_paths)
  ]
  points, volumes = exact.padded(grids)
  priority_points = np.broadcast_to(
    case_paths.points[:, None, :, None],
    (*volumes.shape, case_paths.points.shape[1], 2),
  )
  numbers = np.concatenate([points, priority_points], axis=2)
  drafts = case.drafts[case_paths.draft], case_paths.chance
  return exact.integrate(
    case, verifiers.Block(), numbers, volumes, drafts=drafts
  )


@each_case
def test_every_draft_has_a_path_and_its_tokens_are_as_proposed(name):
  """The tests use the distribution that the path was sampled from."""
  case = CASES[name]
  case_paths = paths(case)
  np.testing.assert_allclose(case_paths.chance.sum(), 1, atol=1e-6)
  first_token_probs = np.zeros(case.vocab_size)
  np.add.at(first_token_probs, case_paths.tokens[:, 0], case_paths.chance)
  np.testing.assert_allclose(
    first_token_probs, case_paths.probs[0, 0], atol=1e-6
  )


@each_case
def test_completed_round_has_exactly_the_goal_distribution(name):
  case = CASES[name]
  result = integrated(name)
  np.testing.assert_allclose(result.mass.sum(), 1, atol=1e-6)
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)


@each_case
def test_a_path_is_kept_as_often_as_its_share(name):
  case = CASES[name]
  case_paths = paths(case)
  reach = np.zeros(case.topology.depth)
  for chance, path in zip(case_paths.chance, path_arrays(case, case_paths)):
    reach[: len(path[0])] += chance * block.shares(*path)[1:]
  np.testing.assert_allclose(integrated(name).reach, reach, atol=1e-6)


@pytest.mark.parametrize(
  'name', tiers.cases(['chains', 'chains, other goal'], 'chains')
)
def test_no_verifier_keeps_more_than_the_linear_program(name):
  """The tree walk with `otm`, on the same path, accepts fewer tokens."""
  case = CASES[name]
  args = case.target, case.draft, 2, 2
  num_kept = integrated(name).reach.sum()
  walk = theory.acceptance_by_depth(*args, 'otm').sum()
  assert walk <= num_kept + 1e-6 <= theory.best_accepted(*args) + 2e-6
  np.testing.assert_allclose(
    num_kept, theory.acceptance_by_depth(*args, 'block').sum(), atol=1e-5
  )


@pytest.mark.parametrize(
  'name', tiers.cases(['chains', 'one, then two'], 'chains')
)
def test_check_rejects_tests_against_the_drafter(name, monkeypatch):
  """As if the path were a chain that the drafter has drawn."""
  propose = proposals.propose

  def broken(uniforms, candidates, active, draft, target):
    args = uniforms, candidates, active, draft, target
    return propose(*args)._replace(probs=draft)

  monkeypatch.setattr(proposals, 'propose', broken)
  with pytest.raises(AssertionError, match='the distribution of the target'):
    testing.check_lossless('block', [CASES[name].topology])
