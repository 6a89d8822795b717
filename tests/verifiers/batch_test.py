"""Batch speculative sampling: exact distributions, and rounds that are lost."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import couplings
from specjax import sampling
from specjax import theory
from specjax import trees
from specjax import verifiers
from tests import oracles
from tests.oracles import candidates
from tests.oracles import maximal
from tests.oracles import multiround
from tests.verifiers import exact

CASES = {
  'empty': exact.Case(trees.chain(0)),
  'one chain': exact.Case(trees.chain(2)),
  'one chain, end invalid': exact.Case(trees.chain(2), valid=(True, False)),
  'two tokens': exact.Case(trees.chains(2, 1)),
  'two chains': exact.Case(trees.chains(2, 2), 2),
  'two chains, one end invalid': exact.Case(
    trees.chains(2, 2), 2, valid=(True, True, False, True)
  ),
  'three tokens': exact.Case(trees.chains(3, 1)),
  'three tokens, one invalid': exact.Case(
    trees.chains(3, 1), valid=(True, False, True)
  ),
}
SAMPLED = [name for name in CASES if name != 'empty']


def width(case):
  """Chains whose first token is valid."""
  return int(case.is_valid[case.topology.levels[0]].sum())


def cells(case):
  """Returns the uniforms of the root and of later levels, and the volumes."""

  def root(draft, target, tokens, slots, width):
    steps = multiround.breakpoints(draft, target, tokens, slots, width)
    # The misprinted twin draws from one more residual.
    residuals, _ = multiround.residuals(draft, target, len(tokens) + 1)
    return [
      np.append(steps[0], candidates.cumulative(residuals[-1])),
      *steps[1:],
    ]

  def below_root(draft, target, tokens, slots, width):
    """Returns the breakpoints on the accepted chain, which may have ended."""
    steps = [
      maximal.breakpoints(draft, target, tokens[start:], slots, width)
      for start in (*range(len(tokens)), len(tokens))
    ]
    steps = [np.concatenate(axis) for axis in zip(*steps)]
    return steps + [[]] * (width - 1)

  levels = [root] + [below_root] * case.topology.depth
  points, volumes = exact.walk_cells(case, levels)
  return (points[:, :, 0], points[:, :, 1:]), volumes


@functools.cache
def integrated(name):
  case = CASES[name]
  return exact.integrate(case, verifiers.Batch(), *cells(case))


@pytest.mark.parametrize('name', CASES)
def test_completed_round_has_exactly_the_target_distribution(name):
  """Enumerates drafts and uniforms, including the bonus token."""
  case = CASES[name]
  probs, outcome, _ = integrated(name)
  np.testing.assert_allclose(probs, case.expected, atol=1e-6)
  # Accepted tokens form one proposed chain from the root.
  parent = np.full(outcome.num_accepted.shape, -1)
  for depth in range(case.topology.depth):
    is_accepted = depth < outcome.num_accepted
    node = outcome.path[..., depth]
    assert case.is_valid[node[is_accepted]].all()
    assert (np.array(case.topology.parents)[node] == parent)[is_accepted].all()
    draft_tokens = np.take_along_axis(case.drafts, node, axis=1)
    assert (draft_tokens == outcome.tokens[..., depth])[is_accepted].all()
    parent = node


@pytest.mark.parametrize('name', SAMPLED)
def test_rounds_are_lost_at_the_root_as_often_as_the_paper_says(name):
  """The probability is the product of r_1 to r_K (Theorem 3)."""
  case = CASES[name]
  draft, target = case.draft[exact.ROOT], case.target[exact.ROOT]
  _, rejected = multiround.residuals(draft, target, width(case))
  loss_prob = 1 - integrated(name).reach[0]
  np.testing.assert_allclose(loss_prob, rejected.prod(), atol=1e-6)
  foretold = oracles.acceptance('multiround', draft, target, width(case))
  np.testing.assert_allclose(integrated(name).reach[0], foretold, atol=1e-6)


@pytest.mark.parametrize(
  ('name', 'num', 'length'),
  [('two chains', 2, 2), ('three tokens', 3, 1), ('one chain', 1, 2)],
)
def test_chains_are_accepted_as_often_as_theory_foretells(name, num, length):
  case = CASES[name]
  foretold = theory.acceptance_by_depth(
    case.target, case.draft, num, length, 'batch'
  )
  np.testing.assert_allclose(integrated(name).reach, foretold, atol=1e-6)


@pytest.mark.parametrize('name', ['one chain', 'one chain, end invalid'])
def test_one_chain_is_the_tree_walk(name):
  """Draft by draft: accepted tokens, and the one behind them."""
  case = CASES[name]
  walk = verifiers.TreeWalk(couplings.Maximal())
  walked = exact.integrate(case, walk, *exact.walk_cells(case))
  np.testing.assert_allclose(
    integrated(name).endings(case.vocab_size),
    walked.endings(case.vocab_size),
    atol=1e-6,
  )


MULTIROUND = couplings.Multiround()


def misprinted(key, candidates, active, draft, target):
  """Takes line 28 literally: one more residual than rejections."""
  token, accepted = MULTIROUND(key, candidates, active, draft, target)
  residual = target
  for _ in range(len(candidates) + 1):
    residual = jnp.maximum(residual - draft, 0)
    residual /= residual.sum()
  return jnp.where(accepted, token, sampling.draw(key[:1], residual)), accepted


@pytest.mark.parametrize('name', ['one chain', 'two tokens'])
def test_check_rejects_the_misprint(name):
  """V - 1 rejections leave one token, and a further one nothing else."""
  case = CASES[name]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(couplings, 'Multiround', lambda: misprinted)
    # Another object, for which another program is compiled.
    verifier = functools.partial(verifiers.Batch())
    misprint = exact.integrate(case, verifier, *cells(case))
  np.testing.assert_allclose(misprint.reach, integrated(name).reach, atol=1e-6)
  assert np.abs(misprint.probs - case.expected).max() > 1e-3


@pytest.mark.parametrize(
  ('case', 'words'),
  [
    (
      exact.Case(trees.prefix_tree((2, 2)), 2),
      r'needs chains from the root, got a tree with parents \(-1, -1, 0, 0',
    ),
  ],
)
def test_trees_that_are_no_chains_are_refused(case, words):
  tokens = jnp.asarray(case.drafts[0], jnp.int32)
  with pytest.raises(ValueError, match=words):
    case.verify(verifiers.Batch(), jax.random.key(0), tokens)
