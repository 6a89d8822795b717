"""What is accepted of several chains, in theory and by the verifiers."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import theory
from specjax import transport
from specjax import trees
from specjax import verifiers
from specjax.testing import rounds
from specjax.theory import picks
from tests import oracles
from tests import tiers
from tests.oracles import candidates
from tests.oracles import greedy_block
from tests.oracles import traversal

DRAFT, TARGET = (rounds.normalize(table) for table in rounds.tables(3))


@pytest.mark.parametrize('name', picks.PICKS)
def test_picks_are_those_of_the_oracle(name):
  """Compares picks with the oracle, whose rows `couplings_test` checks."""
  for draft, target in zip(DRAFT, TARGET):
    for num in (1, 2, 3):
      np.testing.assert_array_equal(
        picks.tuples(3, num), candidates.tuples(3, num)
      )
      actual = picks.PICKS[name](draft, target, num)
      expected = oracles.ORACLES[name].rows(draft, target, num)
      np.testing.assert_allclose(actual, expected, atol=1e-6)


# The others are compared exactly, for two chains (`verifiers/`).
@pytest.mark.parametrize(
  'rule', tiers.cases(['otm', 'block', 'traversal'], 'block')
)
def test_verifiers_accept_as_often_as_is_foretold(rule):
  """Runs 100,000 rounds of 3 chains of 3, within 4.5 standard errors."""
  case = rounds.Case(trees.chains(3, 3))
  size = 100_000
  rng = np.random.default_rng(3)
  tokens = np.full((size, 10), rounds.ROOT, np.int32)
  for node, parent in enumerate(case.topology.parents):
    below = case.draft[tokens[:, parent]].cumsum(axis=1)
    tokens[:, node] = (rng.random((size, 1)) > below).sum(axis=1).clip(0, 2)
  run = functools.partial(case.verify, verifiers.resolve(rule))
  outcome = jax.jit(jax.vmap(run))(
    jax.random.split(jax.random.key(1), size), jnp.asarray(tokens[:, :-1])
  )
  acceptance = (np.asarray(outcome.num_accepted)[:, None] > np.arange(3)).mean(
    0
  )
  expected = theory.acceptance_by_depth(case.target, case.draft, 3, 3, rule)
  error = np.sqrt(expected * (1 - expected) / size)
  assert (np.abs(acceptance - expected) < 4.5 * error + 1e-6).all()


@pytest.mark.parametrize('seed', range(4))
def test_no_rule_accepts_more_than_the_best(seed):
  """For one chain, block and traversal verification are optimal."""
  rng = np.random.default_rng(seed)
  target, noise = rng.dirichlet(np.ones(2), size=(2, 2))
  draft = 0.4 * target + 0.6 * noise
  accepted = lambda num, rule: theory.acceptance_by_depth(
    target, draft, num, 3, rule
  ).sum()
  for num in (1, 2, 3):
    best = theory.best_accepted(target, draft, num, 3)
    assert all(accepted(num, rule) <= best + 1e-6 for rule in theory.RULES)
    assert accepted(num, 'block') >= accepted(num, 'otm') - 1e-6
  best = theory.best_accepted(target, draft, 1, 3)
  for rule in 'block', 'traversal':
    assert accepted(1, rule) == pytest.approx(best, abs=1e-6)


def test_selected_chains_have_their_distribution():
  """Enumerates two chains of two tokens."""
  probs = dict.fromkeys(itertools.product(range(3), repeat=2), 0.0)
  chain_prob = lambda chain: DRAFT[0, chain[0]] * DRAFT[chain[0], chain[1]]
  for pair in itertools.product(probs, repeat=2):
    selected = greedy_block.select(TARGET, DRAFT, np.array(pair))
    probs[tuple(selected)] += chain_prob(pair[0]) * chain_prob(pair[1])
  for chain, prob, _ in greedy_block.prefixes(TARGET, DRAFT, 2, 2):
    ours = sum(p for path, p in probs.items() if path[: len(chain)] == chain)
    assert prob == pytest.approx(ours, abs=1e-12)


@pytest.mark.parametrize('num_chains', [1, 2, 4])
def test_greedy_block_verification_accepts_as_much_as_the_oracle(num_chains):
  args = TARGET, DRAFT, num_chains, 3
  actual = theory.acceptance_by_depth(*args, 'greedy_block').sum()
  expected = greedy_block.accepted(*args)
  assert actual == pytest.approx(expected, abs=1e-9)


def test_block_and_greedy_block_verification_are_one_rule_for_one_chain():
  """For two chains, either may accept more, and neither the most."""
  gains, gaps = [], []
  for seed in range(6):
    rng = np.random.default_rng(seed)
    target, draft = rng.dirichlet(np.ones(3), size=(2, 3))
    blocks = [
      theory.acceptance_by_depth(target, draft, num, 2, 'block').sum()
      for num in (1, 2)
    ]
    greedy = [greedy_block.accepted(target, draft, num, 2) for num in (1, 2)]
    assert greedy[0] == pytest.approx(blocks[0], abs=1e-6)
    best = theory.best_accepted(target, draft, 2, 2)
    gains.append(greedy[1] - blocks[1])
    gaps.append(best - max(greedy[1], blocks[1]))
  assert min(gains) < -0.01 and max(gains) > 0.001
  assert min(gaps) > -1e-6 and max(gaps) > 0.01


def traversal_by_enumeration(num_chains, length, update=None):
  """Returns `[L]`, the acceptance by depth over all sets of chains."""
  topology = trees.chains(num_chains, length)
  parents, depths = np.array(topology.parents), np.array(topology.depths)
  reached = np.zeros(length)
  for tokens in itertools.product(range(3), repeat=topology.num_nodes):
    entries = np.append(0, tokens)  # The root is a context that ends with 0.
    probs = DRAFT[entries[parents + 1]]
    weight = probs[range(len(tokens)), tokens].prod()
    tests = traversal.traverse(
      tokens,
      parents,
      probs,
      TARGET[entries],
      np.ones(len(tokens), bool),
      update=update,
    )
    ends = traversal.endings(tests, len(tokens)).sum(axis=1)[1:]
    reached += weight * np.array(
      [ends[depths > d].sum() for d in range(length)]
    )
  return reached


@pytest.mark.parametrize(
  ('num_chains', 'length'),
  tiers.cases([(1, 3), (2, 2), (3, 2), (2, 3)], (1, 3), (2, 2)),
)
def test_traversal_accepts_as_much_as_all_sets_of_chains(num_chains, length):
  actual = theory.acceptance_by_depth(
    TARGET, DRAFT, num_chains, length, 'traversal'
  )
  expected = traversal_by_enumeration(num_chains, length)
  np.testing.assert_allclose(actual, expected, atol=1e-9)


def test_enumeration_rejects_a_parent_that_keeps_its_share():
  keep_share = lambda share, *rows: (
    share,
    traversal.after_rejection(share, *rows)[1],
  )
  broken = traversal_by_enumeration(2, 2, keep_share)
  actual = theory.acceptance_by_depth(TARGET, DRAFT, 2, 2, 'traversal')
  assert np.abs(actual - broken).max() > 1e-3


def test_of_chains_of_one_token_the_best_is_the_optimal_transport():
  best = theory.best_accepted(TARGET, DRAFT, 3, 1)
  solution = transport.solve_linear_program(DRAFT[0], TARGET[0], 3)
  assert best == pytest.approx(solution.acceptance, abs=1e-8)
  acceptance = theory.acceptance_by_depth(TARGET, DRAFT, 3, 1, 'otm')
  assert acceptance == pytest.approx([best], abs=1e-6)


def test_chains_by_hand():
  """Uses a chain of two tokens, each kept with probability 1 - TV = 1/2."""
  target, draft = np.full((2, 2), 0.5), np.array([[1.0, 0.0], [1.0, 0.0]])
  acceptance = theory.acceptance_by_depth(target, draft, 1, 2, 'maximal')
  assert acceptance == pytest.approx([0.5, 0.25])
  # Equal chains accept as much as one of them.
  acceptance = theory.acceptance_by_depth(target, draft, 3, 2, 'otm')
  assert acceptance == pytest.approx([0.5, 0.25], abs=1e-6)


@pytest.mark.parametrize(
  ('args', 'words'),
  [
    ((TARGET, DRAFT, 0, 2), 'num_chains must be >= 1, got 0'),
    ((TARGET, DRAFT, 2, 0), 'length must be >= 1, got 0'),
    ((TARGET, DRAFT, 2, 2, 3), r'start must lie in \[0, 2\], got 3'),
    ((TARGET[0], DRAFT, 2, 2), r'target must be a table \[V, V\], got shape'),
    ((TARGET, 2 * DRAFT, 2, 2), 'Rows of draft must sum to 1'),
    ((TARGET, np.eye(2), 2, 2), 'draft and target must be of one size'),
    ((TARGET, DRAFT, 20, 3), 'exceed'),
  ],
)
def test_bad_arguments_are_refused(args, words):
  *common, start = args if len(args) == 5 else (*args, 0)
  with pytest.raises(ValueError, match=words):
    theory.best_accepted(*common, start)
  with pytest.raises(ValueError, match=words):
    theory.acceptance_by_depth(*common, start=start)


def test_rules_that_judge_no_tuples_have_no_limit_of_them():
  accepted = theory.acceptance_by_depth(TARGET, DRAFT, 20, 2, 'traversal')
  assert (np.diff(accepted) < 0).all() and accepted[0] <= 1


def test_an_unknown_rule_is_refused():
  with pytest.raises(ValueError, match='rule'):
    theory.acceptance_by_depth(TARGET, DRAFT, 2, 2, 'greedy')


ACCEPTED = np.array([[0.6, 0.2, 0.05], [0.5, 0.1, 0.1], [0.7, 0.0, 0.0]])


def every_tree(num_nodes, depth, width):
  """Parents of all trees, numbered level by level."""
  for parents in itertools.product(*(range(-1, i) for i in range(num_nodes))):
    try:
      tree = trees.Topology(parents)
    except ValueError:
      continue
    counts = np.bincount(np.array(parents) + 1)
    if tree.depth <= depth and counts.max() <= width:
      yield tree


@pytest.mark.parametrize('num_nodes', [1, 2, 3, 4, 5])
def test_no_tree_of_as_many_nodes_keeps_more(num_nodes):
  tree = theory.best_tree(ACCEPTED, num_nodes)
  assert tree.num_nodes == num_nodes
  most = max(
    theory.kept_tokens(ACCEPTED, candidate)
    for candidate in every_tree(num_nodes, 3, 3)
  )
  assert theory.kept_tokens(ACCEPTED, tree) == pytest.approx(most)


def test_trees_by_hand():
  assert theory.best_tree(ACCEPTED, 3) == trees.chain(3)
  # Then 0.2, of the second sibling, and its first child.
  assert theory.best_tree(ACCEPTED, 5).parents == (-1, -1, 0, 1, 2)
  kept = 0.6 + 0.6 * 0.5 + 0.6 * 0.5 * 0.7
  assert theory.kept_tokens(ACCEPTED, trees.chain(3)) == pytest.approx(kept)
  # A complete tree of this depth would have more nodes than floats count.
  deep = np.tile([0.5, 0.1], (2000, 1))
  assert theory.best_tree(deep, 2) == trees.chain(2)


@pytest.mark.parametrize(
  ('acceptance', 'num_nodes', 'words'),
  [
    ([0.5], 1, r'acceptance must be a table \[D, W\], got shape \(1,\)'),
    ([[0.5, 0.6]], 1, 'the sums of acceptance must lie in'),
    ([[0.2, 0.6]], 1, 'acceptance must not grow from one sibling'),
    ([[-0.2]], 1, r'acceptance must lie in \[0, 1\]'),
    ([[0.5, 0.2]], 3, r'num_nodes must lie in \[1, 2\], got 3'),
  ],
)
def test_acceptances_that_cannot_be_are_refused(acceptance, num_nodes, words):
  with pytest.raises(ValueError, match=words):
    theory.best_tree(acceptance, num_nodes)


def test_a_tree_that_is_too_large_is_refused():
  with pytest.raises(ValueError, match='acceptance must cover a tree of depth'):
    theory.kept_tokens([[0.5]], trees.chain(2))
