"""The tree walk: exact distributions on tiny Markov models; greedy walks."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import couplings
from specjax import theory
from specjax import trees
from specjax import verifiers
from specjax.drafters import siblings
from specjax.testing import verifiers as testing_verifiers
from specjax.transport import division
from tests import oracles
from tests import parts
from tests import tiers
from tests.oracles import maximal
from tests.oracles import multiround
from tests.verifiers import exact

ORACLES = oracles.ORACLES

PREFIX_TREE = trees.prefix_tree((2, 2))
CASES = {
  'empty': exact.Case(trees.chain(0)),
  'chain': exact.Case(trees.chain(2)),
  'chain, end invalid': exact.Case(trees.chain(2), valid=(True, False)),
  'chain, all invalid': exact.Case(trees.chain(2), valid=(False, False)),
  'chain, deterministic': exact.Case(trees.chain(2), chosen=(1, 2)),
  'siblings': exact.Case(trees.chains(3, 1)),
  'siblings, one invalid': exact.Case(
    trees.chains(3, 1), valid=(False, True, True)
  ),
  'siblings, deterministic': exact.Case(trees.chains(2, 1), chosen=(2, 1)),
  'siblings, deterministic, first invalid': exact.Case(
    trees.chains(2, 1), chosen=(2, 1), valid=(False, True)
  ),
  'chains': exact.Case(trees.chains(2, 2), 2),
  'prefix tree': exact.Case(PREFIX_TREE, 2),
  'prefix tree, some invalid': exact.Case(
    PREFIX_TREE, 2, valid=(True, True, False, True, True, False)
  ),
  'ragged': exact.Case(trees.Topology((-1, -1, 1))),
  'chain, other goal': exact.Case(trees.chain(2), goal=exact.HALF),
  'prefix tree, other goal': exact.Case(PREFIX_TREE, 2, goal=exact.HALF),
}


def integrate(case, coupling='maximal', breakpoints=None, **options):
  """Of the tree walk; by default at the breakpoints of the coupling's oracle.

  The options are those of `exact.walk_cells`.
  """
  breakpoints = breakpoints or ORACLES[coupling].breakpoints
  verifier = verifiers.resolve(coupling)
  return exact.integrate(
    case, verifier, *exact.walk_cells(case, breakpoints, **options)
  )


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_completed_round_has_exactly_the_goal_distribution(case):
  """By enumeration of drafts and uniforms; the bonus token is included."""
  probs, outcome, _ = integrate(case)
  np.testing.assert_allclose(probs, case.expected, atol=1e-6)
  check_paths(case, outcome)


def test_maximal_accepts_as_often_as_theory_foretells():
  case = CASES['chains']
  foretold = theory.acceptance_by_depth(
    case.target, case.draft, 2, 2, 'maximal'
  )
  np.testing.assert_allclose(integrate(case).reach, foretold, atol=1e-6)


def check_paths(case, outcome):
  """Checks that accepted tokens are proposed nodes on the path."""
  valid = np.append(case.is_valid, False)
  depths = np.append(case.topology.depths, 0)
  tokens = np.pad(case.drafts, ((0, 0), (0, 1)))[:, None]
  for depth in range(case.topology.depth):
    is_accepted = depth < outcome.num_accepted
    node = outcome.path[..., depth]
    assert valid[node[is_accepted]].all()
    assert (depths[node[is_accepted]] == depth + 1).all()
    draft_tokens = np.take_along_axis(tokens, node[..., None], axis=2)[..., 0]
    assert (draft_tokens == outcome.tokens[..., depth])[is_accepted].all()


def draws_from_the_target(draft, target, tokens, slots, width):
  """Returns the breakpoints of a draw from the target."""
  return maximal.breakpoints(draft, target, tokens[:0], slots, width)


@pytest.mark.parametrize('name', ['chain', 'siblings', 'prefix tree'])
def test_check_rejects_a_coupling_without_residual(name):
  case = CASES[name]
  breakpoints = exact.union(maximal.breakpoints, draws_from_the_target)
  probs = integrate(case, parts.Resampling(), breakpoints).probs
  assert probs.sum() == pytest.approx(1, abs=1e-6)
  assert np.abs(probs - case.expected).max() > 1e-3


FORKS = {
  'three siblings, one invalid': exact.Case(
    trees.chains(3, 1), valid=(True, False, True)
  ),
  'two chains': exact.Case(trees.chains(2, 2), 2),
  'two, two each': exact.Case(PREFIX_TREE, 2),
  'other goal': exact.Case(PREFIX_TREE, 2, goal=exact.HALF),
  'some invalid': CASES['prefix tree, some invalid'],
  'one, then two': exact.Case(trees.prefix_tree((1, 2))),
  'two, one with two': exact.Case(trees.Topology((-1, -1, 0, 0))),
}
# Three uniforms of each candidate are many cells.
FEW_FORKS = {
  'two chains': FORKS['two chains'],
  'some invalid': CASES['prefix tree, some invalid'],
  'one, then two': exact.Case(trees.prefix_tree((1, 2)), 2),
  'two, one with two': exact.Case(trees.Topology((-1, -1, 0, 0)), 2),
}
# A new coupling has few forks, until it is said to have more.
ALL_FORKS = ('kseq', 'multiround')
TRIED = sorted(set(ORACLES) - {'maximal', 'otm_table'})


@pytest.mark.parametrize(
  ('name', 'fork'),
  tiers.cases(
    (
      (name, fork)
      for name in TRIED
      for fork in (FORKS if name in ALL_FORKS else FEW_FORKS)
    ),
    ('kseq', 'two chains'),
    *((name, 'some invalid') for name in TRIED),
  ),
)
def test_all_candidates_of_a_tree_have_exactly_the_goal_distribution(
  name, fork
):
  """Siblings of one token share their children, as many i.i.d. candidates.

  And one of the first is accepted as often as the oracle foretells, and at
  every depth of two chains, as often as theory does.
  """
  case = (FORKS if name in ALL_FORKS else FEW_FORKS)[fork]
  result = integrate(case, name)
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)
  check_paths(case, result.outcome)
  pair = case.draft[exact.ROOT], case.target[exact.ROOT]
  num = case.is_valid[list(case.topology.levels[0])].sum()
  accepted = oracles.acceptance(name, *pair, num)
  np.testing.assert_allclose(result.reach[0], accepted, atol=1e-6)
  if fork == 'two chains':
    foretold = theory.acceptance_by_depth(case.target, case.draft, 2, 2, name)
    np.testing.assert_allclose(result.reach, foretold, atol=1e-6)


def undivided(*args):
  """Returns a k-Seq that tests each candidate as if it were the only one."""
  divide = division.divide
  divide_once = lambda draft, target, num: divide(
    draft, target, jnp.minimum(num, 1)
  )
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(division, 'divide', divide_once)
    return couplings.KSeq()(*args)


def undivided_breakpoints(draft, target, tokens, slots, width):
  """Returns breakpoints of the tests and of a draw from the residual of one."""
  steps = [
    oracles.kseq.breakpoints(draft, target, tokens[i : i + 1], [slot], width)
    for i, slot in enumerate(slots)
  ]
  empty_steps = oracles.kseq.breakpoints(draft, target, tokens[:0], [], width)
  return [np.concatenate(arrays) for arrays in zip(*steps, empty_steps)]


@pytest.mark.parametrize(
  'fork', tiers.cases(['two, two each', 'one, then two'], 'one, then two')
)
def test_check_rejects_undivided_tests_on_a_prefix_tree(fork):
  case = FORKS[fork]
  coupling = parts.FunctionCoupling(undivided)
  probs = integrate(case, coupling, undivided_breakpoints).probs
  assert probs.sum() == pytest.approx(1, abs=1e-6)
  assert np.abs(probs - case.expected).max() > 0.01


def believing(name):
  """A coupling that takes all candidates for samples of the draft."""
  coupling = couplings.COUPLINGS[name]()
  return parts.FunctionCoupling(
    lambda key, candidates, active, *probs: coupling(
      key, candidates, jnp.ones_like(active), *probs
    )
  )


SIBLINGS = exact.Case(trees.chains(3, 1), 4, chosen=(2, 0, 3))
CHOSEN_TREE = exact.Case(PREFIX_TREE, 3, chosen=(2, 1, 0, 1, 2, 1))


@pytest.mark.parametrize(
  ('name', 'case'),
  tiers.cases(
    itertools.product(TRIED, [SIBLINGS, CHOSEN_TREE]),
    ('kseq', CHOSEN_TREE),
    *((name, SIBLINGS) for name in TRIED),
  ),
)
def test_different_siblings_not_sampled_have_exactly_the_goal_distribution(
  case, name
):
  """They are no i.i.d. candidates; one is accepted where the goal picks it."""
  result = integrate(case, name)
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)
  root_nodes = list(case.chosen[: len(case.topology.levels[0])])
  np.testing.assert_allclose(
    result.reach[0], case.target[exact.ROOT, root_nodes].sum(), atol=1e-6
  )


@pytest.mark.parametrize(
  'name', tiers.cases(['kseq', 'multiround'], 'multiround')
)
def test_check_rejects_siblings_that_pass_for_samples(name):
  """The assumed draft distribution has no mass on the other siblings."""

  def breakpoints(draft, target, tokens, slots, width):
    del draft, tokens, slots
    draft, tokens = np.eye(4)[2], np.array([2] * width)
    return ORACLES[name].breakpoints(draft, target, tokens, range(width), width)

  breakpoints_of_both = exact.union(breakpoints, ORACLES[name].breakpoints)
  probs = integrate(SIBLINGS, believing(name), breakpoints_of_both).probs
  assert np.abs(probs - SIBLINGS.expected).max() > 0.01


ONE, TWO = trees.chain(1), trees.chain(2)
JOINTS = {
  'two': exact.joint({'draft': ONE, 'other': ONE}),
  'two, the other way round': exact.joint({'other': ONE, 'draft': ONE}),
  'chosen first': exact.joint({'chosen': ONE, 'draft': ONE}),
  'chosen last': exact.joint({'draft': ONE, 'chosen': ONE}),
  'siblings, then chosen': exact.joint(
    {'draft': trees.chains(2, 1), 'chosen': ONE}
  ),
  'three': exact.joint({'draft': ONE, 'chosen': ONE, 'other': ONE}),
  'three, first invalid': exact.joint(
    {'draft': ONE, 'chosen': ONE, 'other': ONE}, valid=(False, True, True)
  ),
  'three, one of them deeper': exact.joint(
    {'draft': ONE, 'other': ONE, 'chosen': TWO}
  ),
  'deep': exact.joint({'draft': TWO, 'other': TWO}),
  'deep, chosen': exact.joint({'draft': TWO, 'chosen': TWO}),
  'deep, one end invalid': exact.joint(
    {'draft': TWO, 'other': TWO}, valid=(True, True, False, True)
  ),
  'a tree and a chain': exact.joint({'draft': PREFIX_TREE, 'chosen': TWO}, 2),
}


@pytest.mark.parametrize(
  'name',
  tiers.cases(
    JOINTS,
    *('chosen last', 'siblings, then chosen', 'three, first invalid'),
    *('deep, one end invalid', 'a tree and a chain'),
  ),
)
def test_candidates_of_mixed_drafts_have_exactly_the_target_distribution(name):
  """And the first of them as often as each residual, in turn, says."""
  case = JOINTS[name]
  result = exact.integrate(
    case,
    verifiers.Ensemble(),
    *exact.walk_cells(case, multiround.breakpoints, sibling_probs=True),
  )
  np.testing.assert_allclose(result.probs, case.expected, atol=1e-6)
  check_paths(case, result.outcome)
  root_nodes = [node for node in case.topology.levels[0] if case.is_valid[node]]
  drafts = case.tables[root_nodes, exact.ROOT]
  _, rejected = multiround.residuals(
    drafts, case.target[exact.ROOT], len(root_nodes)
  )
  np.testing.assert_allclose(result.reach[0], 1 - rejected.prod(), atol=1e-6)


def breakpoints_by_the_first(draft, target, tokens, slots, width):
  """Returns breakpoints of all candidates under the draft of the first one."""
  draft = np.atleast_2d(draft)[0]
  return multiround.breakpoints(draft, target, tokens, slots, width)


@pytest.mark.parametrize('name', ['two', 'chosen last', 'three', 'deep'])
def test_check_rejects_that_all_candidates_pass_for_the_first(name):
  """As they do for a walk without their own probabilities."""
  case = JOINTS[name]
  probs = integrate(
    case, 'multiround', breakpoints_by_the_first, sibling_probs=True
  ).probs
  assert probs.sum() == pytest.approx(1, abs=1e-6)
  assert np.abs(probs - case.expected).max() > 0.01


@pytest.mark.parametrize(
  ('walk', 'coupling', 'words'),
  [
    (verifiers.Ensemble, couplings.KSeq(), r'as Multiround does, got KSeq\(\)'),
    (verifiers.Distinct, couplings.KSeq(), r'as OTMDistinct is, got KSeq\(\)'),
    (verifiers.TreeWalk, 'kseq', "must be a Coupling, .* got 'kseq'"),
    (verifiers.resolve, couplings.KSeq, 'must be a Verifier, a Coupling or a'),
  ],
)
def test_a_coupling_that_a_walk_cannot_use_is_refused(walk, coupling, words):
  with pytest.raises(ValueError, match=words):
    walk(coupling)


@pytest.mark.parametrize(
  ('topology', 'drafts', 'best', 'path', 'tokens'),
  [
    # `best` is the target's choice after the root and after each node.
    (trees.chain(0), [], [6], [], [6]),
    (trees.chain(3), [4, 2, 7], [4, 2, 7, 1], [0, 1, 2], [4, 2, 7, 1]),
    (trees.chain(3), [4, 2, 7], [4, 2, 5, 1], [0, 1], [4, 2, 5]),
    (trees.chain(3), [4, 2, 7], [3, 2, 7, 1], [], [3]),
    # The second chain agrees, then neither does.
    (trees.chains(2, 2), [1, 2, 3, 4], [2, 3, 4, 0, 7], [1, 3], [2, 4, 7]),
    (trees.chains(2, 2), [1, 2, 3, 4], [2, 3, 3, 0, 7], [1], [2, 3]),
    # Both chains agree at first, so either may go on.
    (trees.chains(2, 2), [1, 1, 3, 4], [1, 4, 4, 0, 7], [0, 3], [1, 4, 7]),
    (
      trees.prefix_tree((2, 2)),
      [1, 2, 3, 4, 5, 6],
      [2, 0, 6, 0, 0, 0, 7],
      [1, 5],
      [2, 6, 7],
    ),
    # A leaf above the last level ends the walk with its bonus token.
    (trees.Topology((-1, -1, 1)), [1, 2, 3], [1, 5, 3, 7], [0], [1, 5]),
  ],
)
def test_greedy_walk_is_as_worked_out_by_hand(
  topology, drafts, best, path, tokens
):
  drafts = jnp.array(drafts, jnp.int32)
  tree = base.DraftTree(drafts, topology, drafts >= 0, None)
  verify = jax.jit(verifiers.TreeWalk(couplings.Greedy()))
  outcome = verify(jax.random.key(0), tree, jnp.eye(8)[jnp.array(best)])
  assert outcome.num_accepted == len(path)
  assert outcome.path.shape == (topology.depth,)
  assert outcome.path[: len(path)].tolist() == path
  assert outcome.tokens.shape == (topology.depth + 1,)
  assert outcome.tokens[: len(tokens)].tolist() == tokens
  assert {leaf.dtype for leaf in outcome} == {jnp.dtype('int32')}


def test_unknown_verifier_raises_with_the_known_names():
  """Those of couplings included."""
  words = r"Unknown verifier 'nope'\. Known: .*batch, .*kseq, .*otm_distinct"
  with pytest.raises(ValueError, match=words):
    verifiers.resolve('nope')


def test_a_coupling_stands_for_the_tree_walk_with_it():
  walk = verifiers.TreeWalk(couplings.KSeq())
  assert verifiers.resolve('kseq') == walk
  assert verifiers.resolve(couplings.KSeq()) == walk


@pytest.mark.parametrize(
  ('platform', 'coupling', 'chosen'),
  [
    *(('cuda', name, False) for name in ('maximal', 'kseq', 'otm')),
    *(('default', name, True) for name in ('maximal', 'greedy')),
  ],
)
@pytest.mark.parametrize(
  'topology',
  tiers.cases(
    [trees.chains(2, 3), PREFIX_TREE, trees.Topology((-1, -1, 1))], PREFIX_TREE
  ),
  ids=['chains', 'prefix tree', 'ragged'],
)
def test_walks_of_all_platforms_are_the_same(
  monkeypatch, platform, coupling, chosen, topology
):
  tree, target = testing_verifiers.random_trees(topology)
  if chosen:  # Siblings are different, and some are the most likely tokens.
    order = jnp.argsort(-target, axis=-1).astype(jnp.int32)
    parents = np.array(topology.parents) + 1
    tokens = order[:, parents, siblings.ranks(topology.parents)]
    tree = tree._replace(tokens=tokens, probs=None)
  keys = jax.random.split(jax.random.key(1), len(target))
  verify = jax.vmap(verifiers.resolve(coupling))
  expected = jax.jit(lambda *args: verify(*args))(keys, tree, target)
  monkeypatch.setattr(
    jax.lax,
    'platform_dependent',
    lambda *args, default, **branches: branches.get(platform, default)(*args),
  )
  actual = jax.jit(lambda *args: verify(*args))(keys, tree, target)
  num = np.asarray(expected.num_accepted)
  assert len(set(num.tolist())) > 1
  np.testing.assert_array_equal(actual.num_accepted, num)
  for row, accepted in enumerate(num):
    for expected_entries, actual_entries in (
      (expected.path[row, :accepted], actual.path[row, :accepted]),
      (
        expected.tokens[row, : accepted + 1],
        actual.tokens[row, : accepted + 1],
      ),
    ):
      np.testing.assert_array_equal(expected_entries, actual_entries)


@pytest.mark.parametrize(
  'coupling', tiers.cases(['greedy', 'maximal'], 'maximal')
)
def test_a_walk_of_chosen_tokens_is_that_of_other_platforms(
  monkeypatch, coupling
):
  """Covers equal siblings and rows with different numbers of nodes."""
  num_rows, parents = 64, jnp.array([-1, -1, -1, 0, 1, 2, 3, 4], jnp.int32)
  draw = np.random.default_rng(0)
  num_nodes = draw.integers(0, 9, (num_rows, 1))
  exists = jnp.asarray(np.arange(8) < num_nodes)
  bounds = trees.Bounds(num_nodes=8, depth=3, width=3)
  topology = trees.dynamic(
    jnp.broadcast_to(parents, (num_rows, 8)), exists, bounds
  )
  assert topology.is_valid.all() and (topology.offsets < 0).any()
  # With only tokens 0 and 1, most siblings and their successors are equal.
  tokens = jnp.asarray(draw.integers(0, 2, (num_rows, 8)), jnp.int32)
  table = jnp.array([[0.4, 0.5, 0.1], [0.6, 0.4, 0.0], [0.1, 0.2, 0.7]])
  target = table[jnp.pad(tokens, ((0, 0), (1, 0)), constant_values=2)]
  target = target.at[:, 0].set(table[0])
  tree = base.DraftTree(tokens, topology, exists, None)
  keys = jax.random.split(jax.random.key(0), num_rows)
  outcomes = {}
  for platform in ('cpu', 'default'):
    monkeypatch.setattr(
      jax.lax,
      'platform_dependent',
      lambda *args, platform=platform, default, **branches: branches.get(
        platform, default
      )(*args),
    )
    verify = jax.jit(jax.vmap(lambda *args: verifiers.resolve(coupling)(*args)))
    outcomes[platform] = jax.device_get(verify(keys, tree, target))
  expected, actual = outcomes.values()
  np.testing.assert_array_equal(actual.num_accepted, expected.num_accepted)
  assert set(expected.num_accepted.tolist()) == {0, 1, 2, 3}
  depths = np.asarray(topology.depths)
  for row, num in enumerate(expected.num_accepted):
    np.testing.assert_array_equal(
      actual.tokens[row, : num + 1], expected.tokens[row, : num + 1]
    )
    path = actual.path[row, :num]
    np.testing.assert_array_equal(tokens[row, path], actual.tokens[row, :num])
    assert depths[row, path].tolist() == list(range(1, num + 1))
