"""The distribution of every verifier with true keys, a key a row.

A million rounds over 4 tokens: a chi-square divergence of 0.0001 of the first
three tokens from their distribution fails with chance 0.99.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import trees
from specjax import verifiers
from specjax.testing import distributions
from tests import parts
from tests.verifiers import exact

pytestmark = pytest.mark.slow

TOPOLOGIES = {
  'chain': trees.chain(3),
  'chains': trees.chains(3, 2),
  'prefix tree': trees.prefix_tree((2, 2)),
}
VOCAB_SIZE, LENGTH = 4, 3
ROWS = 100_000  # Verified in one call; a million would take gigabytes.


@functools.cache
def uniforms(size):
  """`[size, N + LENGTH]` for the drafts and what completes the rounds."""
  return np.random.default_rng(10).random((size, 6 + LENGTH))


def sample(rows, uniform):
  return np.argmax(np.cumsum(rows, 1) > uniform * rows.sum(1, keepdims=True), 1)


@functools.cache
def sample_drafts(name, size):
  """Returns the case and sampled drafts `[size, N]`."""
  case = exact.Case(TOPOLOGIES[name], VOCAB_SIZE)
  columns = uniforms(size).T[..., None]
  drafts = np.full((size, case.topology.num_nodes + 1), exact.ROOT, np.int32)
  for node, parent in enumerate(case.topology.parents):
    drafts[:, node] = sample(case.draft[drafts[:, parent]], columns[node])
  return case, drafts[:, :-1]


def p_value(verifier, name, size=1000000):
  """Returns the p-value of `size` rounds, completed from the target."""
  case, drafts = sample_drafts(name, size)
  columns = uniforms(size).T[..., None]
  verify = functools.partial(case.verify, verifiers.resolve(verifier))
  verify = jax.jit(jax.vmap(verify))
  keys = jax.random.split(jax.random.key(11), size)
  rows = [slice(i, i + ROWS) for i in range(0, size, ROWS)]
  outcomes = [verify(keys[part], jnp.asarray(drafts[part])) for part in rows]
  join = lambda name: np.concatenate([getattr(o, name) for o in outcomes])
  tokens, num = join('tokens'), join('num_accepted')
  for depth in range(1, LENGTH):
    completion = sample(case.target[tokens[:, depth - 1]], columns[-depth])
    tokens[:, depth] = np.where(depth <= num, tokens[:, depth], completion)
  probs = distributions.sequence_probs(case.target, exact.ROOT, LENGTH)
  return distributions.chi_square(tokens[:, :LENGTH], probs)


@pytest.mark.parametrize(
  ('verifier', 'name'),
  [
    ('block', 'chain'),
    ('block', 'prefix tree'),
    ('batch', 'chains'),
    ('maximal', 'chains'),
    ('kseq', 'prefix tree'),
    ('multiround', 'chains'),
    ('otm', 'prefix tree'),
  ],
)
def test_completed_round_has_the_target_distribution(verifier, name):
  assert p_value(verifier, name) > 1e-4


def test_linear_program_has_the_target_distribution():
  """On the host, so fewer rounds: divergence 0.001 for the same chance."""
  assert p_value('otm_table', 'chains', 100000) > 1e-4


@pytest.mark.parametrize('name', ['chains', 'prefix tree'])
def test_check_rejects_a_coupling_without_residual(name):
  verifier = verifiers.TreeWalk(parts.Resampling())
  assert p_value(verifier, name, 100000) < 1e-6
