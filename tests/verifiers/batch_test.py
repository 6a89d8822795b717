"""Batch speculative sampling: exact distributions, and rounds that are lost."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import couplings
from specjax import sampling
from specjax import transport
from specjax import trees
from specjax import verifiers
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
  """Uniforms of the root, and of the levels behind it; and volumes."""
  if not case.topology.num_nodes:
    return exact.walk_cells(case, exact.multiround_axes)
  draft, target = case.draft[exact.ROOT], case.target[exact.ROOT]
  num = len(case.topology.levels[0])
  draws, *tests = exact.multiround_axes(draft, target, width(case), num)
  # Where the misprinted twin steps, too.
  further = exact.left_over(draft, target, width(case) + 1)[-1]
  draws = np.append(draws, exact.cumulative(further))
  levels = [exact.cells([draws, *tests])]
  for depth in range(1, case.topology.depth + 1):
    levels.append(exact.level_cells(case, exact.maximal_axes, depth, (1,)))
  index = np.indices([len(volumes) for _, volumes in levels])
  index = index.reshape(len(levels), -1)
  root, *rest = (points[at] for (points, _), at in zip(levels, index))
  volumes = [volumes[at] for (_, volumes), at in zip(levels, index)]
  return (root, np.stack(rest, 1)), np.prod(volumes, axis=0)


@functools.cache
def integrated(name):
  case = CASES[name]
  return exact.integrate(case, verifiers.batch(), *cells(case))


@pytest.mark.parametrize('name', CASES)
def test_completed_round_has_exactly_the_target_distribution(name):
  """By enumeration of drafts and uniforms; the bonus token is included."""
  case = CASES[name]
  probs, outcome, _ = integrated(name)
  np.testing.assert_allclose(probs, case.want, atol=1e-6)
  # What was accepted is one chain from the root, and was proposed.
  above = np.full(outcome.num_accepted.shape, -1)
  for depth in range(case.topology.depth):
    kept = depth < outcome.num_accepted
    node = outcome.path[..., depth]
    assert case.is_valid[node[kept]].all()
    assert (np.array(case.topology.parents)[node] == above)[kept].all()
    at = np.take_along_axis(case.drafts, node, axis=1)
    assert (at == outcome.tokens[..., depth])[kept].all()
    above = node


@pytest.mark.parametrize('name', SAMPLED)
def test_rounds_are_lost_at_the_root_as_often_as_the_paper_says(name):
  """With the product of r_1 to r_K (Theorem 3)."""
  case = CASES[name]
  draft, target = case.draft[exact.ROOT], case.target[exact.ROOT]
  left = exact.left_over(draft, target, width(case) - 1)
  lost = np.maximum(left - draft, 0).sum(axis=1).prod()
  np.testing.assert_allclose(1 - integrated(name).reach[0], lost, atol=1e-6)
  foretold = transport.multiround_acceptance(draft, target, width(case))
  np.testing.assert_allclose(integrated(name).reach[0], foretold, atol=1e-6)


@pytest.mark.parametrize('name', ['one chain', 'one chain, end invalid'])
def test_one_chain_is_the_tree_walk(name):
  """Draft by draft: accepted tokens, and the one behind them."""
  case = CASES[name]
  walk = verifiers.tree_walk('maximal')
  walked = exact.integrate(case, walk, *exact.walk_cells(case))
  np.testing.assert_allclose(
    integrated(name).endings(case.vocab_size),
    walked.endings(case.vocab_size),
    atol=1e-6,
  )


MULTIROUND = couplings.multiround


def misprinted(key, candidates, active, draft, target):
  """Line 28 to the letter: one more residual than there were rejections."""
  token, accepted = MULTIROUND(key, candidates, active, draft, target)
  left = target
  for _ in range(len(candidates) + 1):
    left = jnp.maximum(left - draft, 0)
    left /= left.sum()
  return jnp.where(accepted, token, sampling.draw(key[:1], left)), accepted


@pytest.mark.parametrize('name', ['one chain', 'two tokens'])
def test_check_rejects_the_misprint(name):
  """V - 1 rejections leave one token, and a further one nothing else."""
  case = CASES[name]
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(couplings, 'multiround', misprinted)
    misprint = exact.integrate(case, verifiers.batch(), *cells(case))
  np.testing.assert_allclose(misprint.reach, integrated(name).reach, atol=1e-6)
  assert np.abs(misprint.probs - case.want).max() > 1e-3


@pytest.mark.parametrize(
  ('case', 'words'),
  [
    (
      exact.Case(trees.prefix_tree((2, 2)), 2),
      r'needs chains from the root, got a tree with parents \(-1, -1, 0, 0',
    ),
    (
      exact.Case(trees.chains(2, 1), chosen=(1, 0)),
      'needs sampled drafts, got a tree whose probs are None',
    ),
  ],
)
def test_trees_that_are_no_sampled_chains_are_refused(case, words):
  tokens = jnp.asarray(case.drafts[0], jnp.int32)
  with pytest.raises(ValueError, match=words):
    case.verify(verifiers.batch(), jax.random.key(0), tokens)
