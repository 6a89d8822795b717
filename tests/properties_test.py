"""Hard distributions, on one device and on eight: all finite, possible, alike.

As a program, this writes what each case gives on all devices of its process:
`python -m tests.properties_test FOLDER`.
"""

from collections.abc import Callable
import functools
import itertools
import pathlib
import subprocess
import sys
from typing import Any
from typing import NamedTuple

import jax
import numpy as np
import pytest

import specjax
from specjax import couplings
from specjax import transport
from specjax import trees
from specjax import verifiers
from specjax.transport import division
from specjax.transport import priorities
from specjax.transport import rejection
from tests import tiers
from tests import xla

NUM_DEVICES = 8
WIDTH = 3  # Candidates of a coupling.
# More tokens than a plan has atoms.
LARGE = priorities.NUM_ATOMS + 44
# Pairs of distributions by size of the vocabulary; multiples of the devices.
SCALES = {
  'few': {5: 2048},
  'many': {5: 100_000, LARGE: 1000},
}
# A linear program for each pair, and none for many tokens; integrals.
COSTLY = {
  'otm_table': {'few': {5: 16}, 'many': {5: 64}},
  **dict.fromkeys(
    couplings.DISTINCT_COUPLINGS,
    {'few': {5: 128}, 'many': {5: 1000, LARGE: 16}},
  ),
}
TREES = {
  'empty': trees.chain(0),
  'chain': trees.chain(3),
  'chains': trees.chains(2, 2),
  'prefix tree': trees.prefix_tree((2, 2)),
}
# Siblings may have distributions of their own.
OF_OWN_PROBS = (*couplings.DISTINCT_COUPLINGS, 'ensemble')
# Keeps drafts that the target has no mass for.
OFF_TARGET = ('over_acceptance',)


class Case(NamedTuple):
  """What runs on each row, and what must hold of the rows and their results."""

  run: Callable[..., Any]
  rows: tuple[np.ndarray, ...]  # each `[R, ...]`
  check: Callable[..., None]


# Hard distributions.


def hard_probs(rng, num, size):
  """Draws `[R, V]` unnormalized float64: peaked, tiny, zero, tied, one-hot."""
  flat = rng.dirichlet(np.ones(size), num)
  is_kept = rng.random((num, size)) < 0.5
  kinds = [
    flat,
    rng.dirichlet(np.full(size, 0.01), num),
    10.0 ** rng.uniform(-38, 0, (num, size)),
    rng.integers(1, 4, (num, size)),
    np.where(is_kept.any(1, keepdims=True), flat * is_kept, flat),
    np.eye(size)[rng.integers(size, size=num)],
    np.ones((num, size)),
  ]
  return np.stack(kinds)[rng.integers(len(kinds), size=num), np.arange(num)]


def hard_pairs(rng, num, size):
  """Drafts and targets, `[R, V]` float32: any, disjoint, equal or nearly so."""
  pair = hard_probs(rng, 2 * num, size).reshape(2, num, size)
  kind = rng.integers(5, size=(num, 1))
  side = rng.random((num, size)) < 0.5
  side[:, 0], side[:, -1] = True, False
  disjoint = np.where(np.stack([side, ~side]), pair + 1e-30, 0)
  pair = np.where(kind == 1, disjoint, pair)
  pair[1] = np.where(kind >= 3, pair[0], pair[1])
  pair = (pair / pair.sum(-1, keepdims=True)).astype(np.float32)
  # Sums that are off by ulps, then probabilities that differ by them.
  pair *= np.float32(1) + 2.0**-23 * rng.integers(-3, 4, (2, num, 1))
  ulps = rng.integers(-2, 3, (num, size)) * (pair[1] > 1e-30)
  neighbors = (pair[0].view(np.int32) + ulps.astype(np.int32)).view(np.float32)
  pair[1] = np.where(kind == 4, neighbors, pair[1])
  return pair.astype(np.float32)


def draws(rng, probs, num):
  """Draws `[R, num]` int32 tokens from `probs` `[R, V]`, or any with mass."""
  any_token = (probs >= np.finfo(np.float32).tiny).astype(float)
  chances = np.where(rng.random((len(probs), 1)) < 0.5, probs, any_token)
  edges = np.cumsum(chances, axis=1)
  points = rng.random((len(probs), num, 1)) * edges[:, None, -1:]
  return (edges[:, None] > points).argmax(-1).astype(np.int32)


def keys(rng, num):
  return rng.integers(2**32, size=(num, 2), dtype=np.uint32)


# What is run, and checked.


def num_rows(name, scale):
  """How many, by the size of the vocabulary."""
  return COSTLY.get(name, SCALES)[scale]


def coupling_case(name, scale, size):
  coupling = specjax.COUPLINGS[name]()
  rng = np.random.default_rng(size)
  num = num_rows(name, scale)[size]
  draft, target = hard_pairs(rng, num, size)
  candidates = draws(rng, draft, WIDTH)
  active = rng.random((num, WIDTH)) < rng.choice([0.5, 1.0], (num, 1))

  def run(key, *args):
    return coupling(jax.random.wrap_key_data(key), *args)

  def check(key, candidates, active, draft, target, token, accepted):
    assert ((0 <= token) & (token < size)).all()
    assert (np.take_along_axis(target, token[:, None], 1) > 0).all()
    is_candidate = (active & (candidates == token[:, None])).any(1)
    np.testing.assert_array_equal(accepted, is_candidate)

  return Case(run, (keys(rng, num), candidates, active, draft, target), check)


def tree_rows(rng, topology, num, size, sibling_probs):
  """Key, tokens, valid, distributions of all nodes and of all entries.

  They depend on the depth alone, so that nodes of the same tokens agree.
  """
  depth, parents = topology.depth, np.array(topology.parents, int)
  pairs = [hard_pairs(rng, num, size) for _ in range(depth + 1)]
  levels = topology.depths - 1
  drafts = [pairs[level][0] for level in levels]
  if sibling_probs:
    drafts = [hard_pairs(rng, num, size)[0] for _ in levels]
  tokens = [draws(rng, probs, 1)[:, 0] for probs in drafts]
  valid = rng.random((num, topology.num_nodes)) < 0.9
  for node, parent in enumerate(parents):
    valid[:, node] &= valid[:, parent] | (parent < 0)
  stack = lambda rows, shape, dtype: (
    np.stack(rows, 1) if rows else np.zeros((num, 0, *shape), dtype)
  )
  return (
    keys(rng, num),
    stack(tokens, (), np.int32),
    valid,
    stack(drafts, (size,), np.float32),
    np.stack([pairs[level][1] for level in topology.offsets], 1),
  )


def verifier_case(name, tree, sampled, scale, size):
  topology = TREES[tree]
  verify = verifiers.resolve(name)
  rng = np.random.default_rng(topology.num_nodes)
  num = num_rows(name, scale)[size]
  rows = tree_rows(rng, topology, num, size, name in OF_OWN_PROBS)

  def run(key, tokens, valid, probs, target_probs):
    proposal = specjax.DraftTree(
      tokens, topology, valid, probs if sampled else None
    )
    return verify(jax.random.wrap_key_data(key), proposal, target_probs)

  def check(key, tokens, valid, probs, targets, path, num_accepted, outcome):
    row, entry = np.arange(num), np.zeros(num, int)
    parents = np.array([*topology.parents, -1], int)
    assert ((0 <= num_accepted) & (num_accepted <= topology.depth)).all()
    for depth in range(topology.depth + 1):
      live = depth <= num_accepted
      token = outcome[:, depth]
      assert ((0 <= token) & (token < size))[live].all()
      mass = targets[row, entry, np.where(live, token, 0)]
      kept = depth < num_accepted
      off_target = kept if name in OFF_TARGET else False
      assert ((mass > 0) | off_target)[live].all()
      if not kept.any():
        break
      node = np.where(kept, path[:, min(depth, topology.depth - 1)], 0)
      entry = np.where(kept, node + 1, entry)
      assert valid[row, node][kept].all()
      for above in range(depth, -1, -1):  # Or a twin that spells the same.
        assert (tokens[row, node] == outcome[:, above])[kept].all()
        node = parents[node]

  return Case(run, rows, check)


def parts(draft, target, num_drafts):
  """Returns the parts of couplings and tables, by name."""
  args = draft, target, num_drafts
  ranking = priorities.compute(*args)
  return {
    'plan': ranking,
    'proposal': ranking.distribution(draft),
    'division': division.divide(*args),
    'rejection': rejection.reject(draft, target),
    'optimal': transport.optimal_acceptance(*args),
    'otm': transport.otm_acceptance(*args),
    'kseq': transport.kseq_acceptance(*args),
    'multiround': transport.multiround_acceptance(*args),
    'union': transport.union_bound(*args),
  }


def parts_case(scale, size):
  rng = np.random.default_rng(size)
  num = SCALES[scale][size]
  draft, target = hard_pairs(rng, num, size)
  num_drafts = rng.choice(np.array([1, 2, 3, 64], np.int32), num)

  def check(draft, target, num_drafts, *leaves):
    for leaf in leaves:
      assert np.isfinite(leaf).all()
    part = jax.tree.unflatten(structure, leaves)
    np.testing.assert_allclose(part['proposal'].sum(1), 1, atol=1e-5)
    assert part['proposal'].min() >= 0
    best = part['optimal']
    assert 0 <= best.min() and best.max() <= 1
    assert (best <= part['union'] + 1e-6).all()
    for rule in ('otm', 'kseq', 'multiround'):
      assert (part[rule] <= best + 1e-6).all(), rule

  rows = draft, target, num_drafts
  structure = jax.tree.structure(
    jax.eval_shape(parts, *(array[0] for array in rows))
  )
  return Case(parts, rows, check)


# These get all trees.
WALKS = ('batch', 'block', 'traversal', 'tree_walk')
# 'distinct' is one of the couplings that are its own.
OF_TREES = [
  *(name for name in specjax.VERIFIERS if name != 'distinct'),
  *couplings.DISTINCT_COUPLINGS,
]
GROUPS = [*specjax.COUPLINGS, *OF_TREES, 'parts']


def takes(name, tree, sampled):
  """Whether a verifier has no objection to such trees; all take a chain."""
  topology = TREES[tree]
  probs = np.ones((topology.num_nodes + 1, 1), np.float32)
  tokens = np.zeros(topology.num_nodes, np.int32)
  proposal = specjax.DraftTree(
    tokens, topology, tokens == 0, probs[1:] if sampled else None
  )
  verify = verifiers.resolve(name)
  try:
    jax.eval_shape(verify, jax.random.key(0), proposal, probs)
  except ValueError:
    assert (tree, sampled) != ('chain', True)
    return False
  return True


def cases(group, scale):
  """Yields the label and the case of all that a name stands for."""
  if group in specjax.COUPLINGS:
    for size in num_rows(group, scale):
      yield f'{group} {size}', coupling_case(group, scale, size)
  elif group in OF_TREES:
    kinds = [
      (tree, sampled)
      for tree, sampled in itertools.product(TREES, (False, True))
      if takes(group, tree, sampled)
    ]
    kinds = kinds if scale == 'many' else kinds[-1:]
    if group not in WALKS:  # Tree walks, which differ in their coupling.
      kinds = [kind for kind in kinds if kind[0] in ('chain', 'prefix tree')]
    for (tree, sampled), size in itertools.product(
      kinds, num_rows(group, scale)
    ):
      if size == LARGE and (tree, sampled) not in (('chain', True), kinds[-1]):
        continue  # Their walks differ; the others' are theirs.
      label = f'{group} {tree} {size}' + ('' if sampled else ' chosen')
      yield label, verifier_case(group, tree, sampled, scale, size)
  else:
    for size in SCALES[scale]:
      yield f'{group} {size}', parts_case(scale, size)


def run(case, devices):
  """Returns the leaves `[R, ...]` of a case, with rows spread over devices.

  One device receives the rows in as many parts, because XLA may sum in another
  order where there are more rows.
  """
  mesh = jax.sharding.Mesh(np.array(devices), ('rows',))
  spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec('rows'))
  run_rows = jax.jit(jax.vmap(case.run))
  num_parts = NUM_DEVICES // mesh.size
  parts = []
  for part_rows in zip(*(np.split(rows, num_parts) for rows in case.rows)):
    outputs = run_rows(*(jax.device_put(rows, spread) for rows in part_rows))
    parts.append(map(np.asarray, jax.tree.leaves(outputs)))
  return [np.concatenate(leaves) for leaves in zip(*parts)]


@functools.cache
def on_one_device(group, scale):
  """Case and leaves by label, on one CPU."""
  cpu = jax.devices('cpu')[:1]
  return {label: (case, run(case, cpu)) for label, case in cases(group, scale)}


def write_sharded(folder):
  """Writes the leaves of few cases of each kind on all devices."""
  assert len(jax.devices()) == NUM_DEVICES
  for group in GROUPS:
    for label, case in cases(group, 'few'):
      leaves = run(case, jax.devices())
      np.savez(pathlib.Path(folder) / f'{label}.npz', *leaves)


@pytest.mark.parametrize(
  ('group', 'scale'),
  tiers.cases(
    itertools.product(GROUPS, ('few', 'many')),
    *((group, 'few') for group in (*specjax.COUPLINGS, 'block', 'parts')),
  ),
)
def test_hard_distributions_give_possible_tokens(group, scale):
  for case, leaves in on_one_device(group, scale).values():
    case.check(*case.rows, *leaves)


@pytest.mark.slow
def test_rows_do_not_depend_on_the_number_of_devices(tmp_path):
  """Bit for bit, though XLA compiles another program for more devices."""
  subprocess.run(
    [sys.executable, '-m', 'tests.properties_test', tmp_path],
    cwd=pathlib.Path(__file__).parents[1],
    env=xla.environment(NUM_DEVICES),
    check=True,
  )
  for group in GROUPS:
    for label, (_, leaves) in on_one_device(group, 'few').items():
      with np.load(tmp_path / f'{label}.npz') as sharded:
        for index, leaf in enumerate(leaves):
          np.testing.assert_array_equal(
            sharded[f'arr_{index}'], leaf, err_msg=f'{label}, leaf {index}'
          )


if __name__ == '__main__':
  write_sharded(sys.argv[1])
