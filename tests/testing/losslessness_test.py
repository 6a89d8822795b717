"""The library's check of losslessness: what it accepts, and what it finds."""

import jax
import jax.numpy as jnp
import pytest

from specjax import couplings
from specjax import testing
from specjax import trees
from specjax import verifiers
from tests import parts
from tests import tiers


@pytest.mark.parametrize(
  'name', tiers.cases(['batch', 'block', 'kseq', 'ensemble'], 'batch')
)
def test_lossless_verifiers_are_accepted(name):
  testing.check_lossless(name)


def seldom_wrong(key, *case):
  """The maximal coupling, but for one time in ten: without its residual."""
  which, key = jax.random.split(key)
  wrong = jax.random.uniform(which) < 0.1
  pairs = zip(parts.Resampling()(key, *case), couplings.Maximal()(key, *case))
  return tuple(jnp.where(wrong, bad, good) for bad, good in pairs)


@pytest.mark.parametrize(
  ('verifier', 'topology'),
  [
    ('greedy', trees.chain(1)),
    (verifiers.Lossy(0.3), trees.chain(2)),
    (verifiers.TreeWalk(parts.Resampling()), trees.chains(2, 1)),
    (verifiers.TreeWalk(parts.FunctionCoupling(seldom_wrong)), trees.chain(2)),
  ],
  ids=['greedy', 'lossy', 'resampling', 'seldom wrong'],
)
def test_others_are_refused_in_a_sentence(verifier, topology):
  words = 'must have the distribution of the target: the tokens .* have prob'
  with pytest.raises(AssertionError, match=words):
    testing.check_lossless(verifier, [topology])


def test_a_topology_that_is_refused_is_not_passed_over():
  with pytest.raises(ValueError, match='needs chains'):
    testing.check_lossless('batch', [trees.prefix_tree((2, 2))])
