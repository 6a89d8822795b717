"""Static shapes of draft trees, written out by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import base
from specjax import trees

# Topology, parents, depths, levels, leaves, mask (rows from the root).
CASES = {
  'empty': (trees.chain(0), (), [], [], [], ['1']),
  'chain': (
    trees.chain(3),
    (-1, 0, 1),
    [1, 2, 3],
    [[0], [1], [2]],
    [2],
    ['1000', '1100', '1110', '1111'],
  ),
  'chains': (
    trees.chains(2, 2),
    (-1, -1, 0, 1),
    [1, 1, 2, 2],
    [[0, 1], [2, 3]],
    [2, 3],
    ['10000', '11000', '10100', '11010', '10101'],
  ),
  'prefix_tree': (
    trees.prefix_tree((2, 2)),
    (-1, -1, 0, 0, 1, 1),
    [1, 1, 2, 2, 2, 2],
    [[0, 1], [2, 3, 4, 5]],
    [2, 3, 4, 5],
    [
      '1000000',
      '1100000',
      '1010000',
      '1101000',
      '1100100',
      '1010010',
      '1010001',
    ],
  ),
  'ragged': (
    trees.Topology((-1, -1, 1)),
    (-1, -1, 1),
    [1, 1, 2],
    [[0, 1], [2]],
    [0, 2],
    ['1000', '1100', '1010', '1011'],
  ),
}


@pytest.mark.parametrize('case', CASES.values(), ids=CASES)
def test_topology_is_as_written_by_hand(case):
  topology, parents, depths, levels, leaves, mask = case
  assert topology.parents == parents
  assert topology.num_nodes == len(parents)
  assert topology.depth == len(levels)
  np.testing.assert_array_equal(topology.depths, depths)
  assert [level.tolist() for level in topology.levels] == levels
  assert topology.leaves.tolist() == leaves
  np.testing.assert_array_equal(
    topology.mask, [[entry == '1' for entry in row] for row in mask]
  )
  np.testing.assert_array_equal(topology.offsets, [0, *depths])
  assert topology.offsets.dtype == topology.depths.dtype == np.int32


def test_builders_agree_where_their_trees_are_the_same():
  assert trees.chains(1, 3) == trees.chain(3) == trees.prefix_tree((1, 1, 1))
  assert trees.chains(3, 1) == trees.prefix_tree((3,))
  assert trees.chains(3, 2) == trees.prefix_tree((3, 1))


@pytest.mark.parametrize('parents', [(0,), (-2,), (-1, 1), (-1, 0, 3)])
def test_parent_that_does_not_come_before_its_child_raises(parents):
  with pytest.raises(ValueError, match='parent of node'):
    trees.Topology(parents)


@pytest.mark.parametrize('parents', [(-1, 0, -1), (-1, -1, 0, 2, 1)])
def test_levels_that_are_not_contiguous_raise(parents):
  with pytest.raises(ValueError, match='level by level'):
    trees.Topology(parents)


@pytest.mark.parametrize(
  ('build', 'name'),
  [
    (lambda: trees.chain(-1), 'length'),
    (lambda: trees.chains(0, 2), 'num_chains'),
    (lambda: trees.chains(2, 0), 'length'),
    (lambda: trees.prefix_tree(()), 'factors'),
    (lambda: trees.prefix_tree((2, 0)), 'factors'),
  ],
)
def test_builder_names_the_bad_argument(build, name):
  with pytest.raises(ValueError, match=name):
    build()


def test_equal_topologies_are_one_key():
  assert len({trees.chain(2), trees.Topology((-1, 0)), trees.chain(3)}) == 2


def test_a_list_of_parents_is_the_same_key():
  assert hash(trees.of_parents([-1, 0])) == hash(trees.of_parents((-1, 0)))
  for parents in ([-1, 0], np.array([-1, 0]), jnp.array([-1, 0])):
    assert trees.of_parents(parents) == trees.chain(2)


@pytest.mark.parametrize(
  'build',
  [
    lambda: trees.chain(2.5),
    lambda: trees.chains(True, 2),
    lambda: trees.prefix_tree((2, 1.5)),
    lambda: trees.of_parents((-1, 0.5)),
    lambda: trees.Bounds(2, 1.5, 1),
  ],
)
def test_sizes_are_integers(build):
  with pytest.raises(ValueError, match='must (be an integer|hold integers)'):
    build()


def test_topology_is_static_under_jit():
  traced = []

  @jax.jit
  def double(tree):
    traced.append(tree.topology)
    return tree._replace(tokens=2 * tree.tokens)

  def tree(topology):
    tokens = jnp.ones((4, topology.num_nodes), jnp.int32)
    return base.DraftTree(tokens, topology, tokens > 0, None)

  for topology in (trees.chain(2), trees.Topology((-1, 0)), trees.chains(2, 1)):
    assert double(tree(topology)).topology == topology
  # Same arrays, other shape of the tree: another program.
  assert traced == [trees.chain(2), trees.chains(2, 1)]


def test_topology_is_static_under_vmap():
  topology = trees.chains(2, 2)
  tokens = jnp.arange(12).reshape(3, 4)
  trees_of_rows = base.DraftTree(tokens, topology, tokens >= 0, None)
  out = jax.vmap(lambda tree: tree.tokens[tree.topology.leaves])(trees_of_rows)
  np.testing.assert_array_equal(out, tokens[:, 2:])
  assert len(jax.tree.leaves(trees_of_rows)) == 2
