"""Static shapes of draft trees.

Nodes are numbered level by level, root excluded; the root, which is the last
committed token, has index -1 as a parent. In a model's block the root comes
first, so node `n` is entry `n + 1`.
"""

from collections.abc import Sequence
import dataclasses
import functools

import jax
import numpy as np


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Topology:
  """Which node hangs below which.

  Attributes:
    parents: parent of each node; -1 is the root. A parent comes before its
      children, and levels are contiguous.
  """

  parents: tuple[int, ...]

  def __post_init__(self):
    for node, parent in enumerate(self.parents):
      if not -1 <= parent < node:
        raise ValueError(
          f'The parent of node {node} must lie in [-1, {node - 1}], got '
          f'{parent}.'
        )
    if any(np.diff(self.depths) < 0):
      raise ValueError(
        f'Nodes must be numbered level by level, got parents {self.parents}.'
      )

  @property
  def num_nodes(self) -> int:
    """`N`, the nodes without the root."""
    return len(self.parents)

  @property
  def depth(self) -> int:
    """`D`, the longest path below the root."""
    return int(self.depths.max(initial=0))

  @functools.cached_property
  def depths(self) -> np.ndarray:
    """`[N]` distance of each node from the root, at least 1."""
    depths = []
    for parent in self.parents:
      depths.append(1 if parent < 0 else depths[parent] + 1)
    return np.array(depths, np.int32)

  @functools.cached_property
  def levels(self) -> tuple[np.ndarray, ...]:
    """Nodes of each depth from 1 to `D`."""
    return tuple(
      np.flatnonzero(self.depths == depth + 1) for depth in range(self.depth)
    )

  @functools.cached_property
  def leaves(self) -> np.ndarray:
    """Nodes without children."""
    return np.setdiff1d(np.arange(self.num_nodes), self.parents)

  @functools.cached_property
  def leaf_entries(self) -> np.ndarray:
    """Block entries without children; of the empty tree, the root."""
    parents = np.array(self.parents, np.int32)
    return np.setdiff1d(np.arange(self.num_nodes + 1), parents + 1)

  @functools.cached_property
  def mask(self) -> np.ndarray:
    """`[N + 1, N + 1]` true where the column is the row or its ancestor."""
    mask = np.eye(self.num_nodes + 1, dtype=bool)
    for node, parent in enumerate(self.parents):
      mask[node + 1] |= mask[parent + 1]
    return mask

  @functools.cached_property
  def offsets(self) -> np.ndarray:
    """`[N + 1]` position of root and nodes relative to the root."""
    return np.concatenate([[0], self.depths]).astype(np.int32)

  def cut(self, depth: int) -> 'Topology':
    """Returns the tree without what lies deeper than `depth`."""
    return Topology(self.parents[: np.count_nonzero(self.depths <= depth)])


def chain(length: int) -> Topology:
  """One path of `length` nodes; 0 is the empty tree of plain decoding."""
  if length < 0:
    raise ValueError(f'length must be >= 0, got {length}.')
  return Topology(tuple(range(-1, length - 1)))


def chains(num_chains: int, length: int) -> Topology:
  """`num_chains` paths of `length` nodes from the root, level by level."""
  _check_positive('num_chains', num_chains)
  _check_positive('length', length)
  return Topology(
    tuple(
      -1 if node < num_chains else node - num_chains
      for node in range(num_chains * length)
    )
  )


def prefix_tree(factors: tuple[int, ...]) -> Topology:
  """Every node of depth `i` has `factors[i]` children (SpecTr, Algorithm 4)."""
  if not factors:
    raise ValueError('factors must name at least one level.')
  parents, level = [], [-1]
  for factor in factors:
    _check_positive('factors', factor)
    first = len(parents)
    parents += [parent for parent in level for _ in range(factor)]
    level = range(first, len(parents))
  return Topology(tuple(parents))


def join(
  topologies: Sequence[Topology],
) -> tuple[Topology, tuple[np.ndarray, ...]]:
  """Puts trees side by side under one root.

  Returns:
    The tree, whose levels are those of the first tree, then of the second, and
    so on; and for each tree, `[N]` what its nodes are numbered there.
  """
  depths = np.concatenate([topology.depths for topology in topologies])
  number = np.argsort(np.argsort(depths, kind='stable'))
  ends = np.cumsum([topology.num_nodes for topology in topologies])
  nodes = tuple(np.split(number, ends[:-1]))
  parents = np.zeros_like(number)
  for topology, own in zip(topologies, nodes):
    parents[own] = np.append(own, -1)[np.array(topology.parents, int)]
  return Topology(tuple(parents.tolist())), nodes


def _check_positive(name, value):
  if value < 1:
    raise ValueError(f'{name} must be >= 1, got {value}.')
