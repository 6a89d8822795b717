"""Shapes of draft trees, static or of their own for every row and round.

Nodes are numbered level by level, root excluded; the root, which is the last
committed token, has index -1 as a parent. In a model call the root comes
first, so node `n` is entry `n + 1`.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import functools
import math

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import checks


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Topology:
  """Which node hangs below which, for all rows alike.

  Attributes:
    parents: parent of each node; -1 is the root. A parent comes before its
      children, and levels are contiguous.
  """

  parents: tuple[int, ...]

  def __post_init__(self):
    checks.check_integers('parents', self.parents, -math.inf)
    object.__setattr__(self, 'parents', tuple(map(int, self.parents)))
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
  def width(self) -> int:
    """`W`, the nodes of the widest level."""
    return max(map(len, self.levels), default=0)

  @functools.cached_property
  def depths(self) -> np.ndarray:
    """`[N]` distance of each node from the root, at least 1."""
    depths: list[int] = []
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
    """Entries without children; of the empty tree, the root."""
    parents = np.array(self.parents, np.int32)
    return np.setdiff1d(np.arange(self.num_nodes + 1), parents + 1)

  @functools.cached_property
  def children(self) -> np.ndarray:
    """`[N + 1, N]` which nodes are children of each entry."""
    entries = np.arange(self.num_nodes + 1)[:, None]
    return np.array(self.parents, np.int32) + 1 == entries

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

  @functools.cached_property
  def level_table(self) -> np.ndarray:
    """`[D + 1, W]` nodes of each level; `N` where there is none."""
    table = np.full((self.depth + 1, max(self.width, 1)), self.num_nodes)
    for row, level in zip(table, self.levels):
      row[: len(level)] = level
    return table.astype(np.int32)

  @property
  def is_valid(self) -> bool:
    """True, as `parents` were checked."""
    return True

  def is_top_of(self, other: 'Topology') -> bool:
    """Returns whether the first levels of another tree are this one."""
    num = self.num_nodes
    deeper = (other.depths[num:] > self.depth).all()
    return other.parents[:num] == self.parents and bool(deeper)


@dataclasses.dataclass(frozen=True)
class Bounds:
  """What the trees of a drafter keep to that drafts dynamic ones.

  Attributes:
    num_nodes: `N`, the most nodes.
    depth: `D`, the longest path below the root.
    width: `W`, the most nodes of a level.
  """

  num_nodes: int
  depth: int
  width: int

  def __post_init__(self):
    for field in dataclasses.fields(self):
      checks.check_integers(field.name, getattr(self, field.name), 1)


class DynamicTopology(struct.PyTreeNode):
  """Which node hangs below which, in each row and round.

  The arrays have the axes `[B]` in front, or none where a row is looked at.
  Nodes are numbered as those of a `Topology`; after the last node of a row,
  parents are -1 and depths 0. See `dynamic`, which computes the depths.
  """

  parents: jax.Array  # [..., N] int32, -1 is the root
  depths: jax.Array  # [..., N] int32, from 1 to `depth`; 0 after the last node
  bounds: Bounds = struct.field(pytree_node=False)

  @property
  def num_nodes(self) -> int:
    """`N`, the most nodes of a row."""
    return self.bounds.num_nodes

  @property
  def depth(self) -> int:
    """`D`, the longest path below the root that is allowed."""
    return self.bounds.depth

  @property
  def width(self) -> int:
    """`W`, the most nodes of a level."""
    return self.bounds.width

  @property
  def children(self) -> jax.Array:
    """`[..., N + 1, N]` which nodes are children of each entry."""
    parents = self.parents[..., None, :]
    entries = _expand(np.arange(self.num_nodes + 1)[:, None], parents.ndim)
    hangs = parents + 1 == entries
    return hangs & (self.depths > 0)[..., None, :]

  @property
  def mask(self) -> jax.Array:
    """`[..., N + 1, N + 1]`, as that of `Topology`."""
    children = self.children.swapaxes(-1, -2)
    above = jnp.pad(children, [(0, 0)] * (children.ndim - 2) + [(1, 0), (0, 0)])
    # One step towards the root at most; twice as many with each product.
    reach = above | _expand(np.eye(self.num_nodes + 1, dtype=bool), above.ndim)
    for _ in range(math.ceil(math.log2(self.depth))):
      reach = jnp.matmul(reach.astype(jnp.float32), reach.astype(jnp.float32))
      reach = reach > 0
    return reach

  @property
  def offsets(self) -> jax.Array:
    """`[..., N + 1]` position relative to the root; negative for no node."""
    offsets = jnp.where(self.depths > 0, self.depths, -1)
    return jnp.pad(offsets, [(0, 0)] * (offsets.ndim - 1) + [(1, 0)])

  @property
  def level_table(self) -> jax.Array:
    """`[..., D + 1, W]` nodes of each level; `N` where there is none."""
    depths = self.depths[..., None, :]
    levels = _expand(np.arange(1, self.depth + 2)[:, None], depths.ndim)
    is_above, is_in_level = (depths > 0) & (depths < levels), depths == levels
    index = _expand(np.arange(self.width), depths.ndim)
    nodes = is_above.sum(-1, keepdims=True) + index
    exists = index < is_in_level.sum(-1, keepdims=True)
    return jnp.where(exists, nodes, self.num_nodes).astype(jnp.int32)

  @property
  def is_valid(self) -> jax.Array:
    """`[...]` whether the arrays are those of a tree within the bounds."""
    parents, depths = self.parents, self.depths
    nodes = _expand(np.arange(self.num_nodes), parents.ndim)
    above = jnp.where(
      parents < 0, 0, jnp.take_along_axis(depths, jnp.maximum(parents, 0), -1)
    )
    exists = depths > 0
    hangs = (-1 <= parents) & (parents < nodes) & (depths == above + 1)
    order = jnp.where(exists, depths, self.depth + 1)
    levels = _expand(np.arange(1, self.depth + 1)[:, None], depths.ndim + 1)
    sizes = (depths[..., None, :] == levels).sum(-1)
    return (
      (hangs | ~exists).all(-1)
      & (order[..., 1:] >= order[..., :-1]).all(-1)
      & (0 <= depths).all(-1)
      & (depths <= self.depth).all(-1)
      & (sizes <= self.width).all(-1)
    )


def dynamic(
  parents: jax.Array, exists: jax.Array, bounds: Bounds
) -> DynamicTopology:
  """Builds trees from the parents of their nodes.

  Args:
    parents: `[B, N]` int32, -1 for the root; nodes level by level.
    exists: `[B, N]` bool, true up to the last node of a row.
    bounds: that the trees keep to. A row that does not is flagged.
  """
  parents = jnp.where(exists, parents, -1)
  depths = exists.astype(jnp.int32)
  for _ in range(bounds.depth):  # One more where it is too deep.
    above = jnp.take_along_axis(depths, jnp.maximum(parents, 0), axis=-1)
    depths = jnp.where(exists, jnp.where(parents < 0, 0, above) + 1, 0)
  return DynamicTopology(parents, depths, bounds)


def at_parents(
  topology: Topology | DynamicTopology, entries: jax.Array
) -> jax.Array:
  """Returns `[B, N, ...]` of `[B, N + 1, ...]` what each node's parent has."""
  if isinstance(topology, Topology):
    return entries[:, np.array(topology.parents, np.int32) + 1]
  return at_entries(entries, topology.parents + 1)


def at_entries(values: jax.Array, entries: jax.Array) -> jax.Array:
  """Returns `[B, P, ...]` of `[B, N + 1, ...]` what `[B, P]` entries have.

  An entry that is out of range has what the nearest one has: no NaN of its own.
  """
  index = entries[(...,) + (None,) * (values.ndim - 2)]
  return jnp.take_along_axis(values, index, axis=1, mode='clip')


def hold_along_paths(holds: jax.Array, mask: np.ndarray) -> jax.Array:
  """Returns `[B, N]` whether something holds at an entry and at all above it.

  Args:
    holds: `[B, N]` bool, at each entry.
    mask: `[N, N]` bool, true where the column is the row or its ancestor.
  """
  return (holds[:, None] | ~mask[None]).all(-1)


def chain(length: int) -> Topology:
  """One path of `length` nodes; 0 is the empty tree of plain decoding."""
  checks.check_integers('length', length, 0)
  return Topology(tuple(range(-1, length - 1)))


def chains(num_chains: int, length: int) -> Topology:
  """`num_chains` paths of `length` nodes from the root, level by level."""
  checks.check_integers('num_chains', num_chains, 1)
  checks.check_integers('length', length, 1)
  return Topology(
    tuple(
      -1 if node < num_chains else node - num_chains
      for node in range(num_chains * length)
    )
  )


def prefix_tree(factors: tuple[int, ...]) -> Topology:
  """Every node of depth `i` has `factors[i]` children (SpecTr, Algorithm 4)."""
  if not len(factors):
    raise ValueError('factors must name at least one level.')
  parents: list[int] = []
  level = [-1]
  checks.check_integers('factors', factors, 1)
  for factor in factors:
    first = len(parents)
    parents += [parent for parent in level for _ in range(factor)]
    level = list(range(first, len(parents)))
  return Topology(tuple(parents))


def of_parents(parents: tuple[int, ...]) -> Topology:
  """Any tree: the parent of each node, level by level; -1 is the root."""
  return Topology(parents)


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
  for topology, index in zip(topologies, nodes):
    parents[index] = np.append(index, -1)[np.array(topology.parents, int)]
  return Topology(tuple(parents.tolist())), nodes


def with_chain(topology: Topology, length: int) -> tuple[Topology, np.ndarray]:
  """Lets a chain share a tree's deepest path, which is extended if necessary.

  Returns:
    The tree, whose first nodes are those of the given one, and `[length]` the
    nodes of the chain.
  """
  parents, path = list(topology.parents), list[int]()
  node = int(np.argmax(topology.depths)) if parents else -1
  while node >= 0:
    path.insert(0, node)
    node = parents[node]
  while len(path) < length:
    parents.append(path[-1] if path else -1)
    path.append(len(parents) - 1)
  return Topology(tuple(parents)), np.array(path[:length], np.int32)


def eagle() -> Topology:
  """The tree of EAGLE-1 (Li et al. 2024): 25 nodes, levels 4, 8, 8, 3 and 2."""
  return Topology(
    (-1, -1, -1, -1)
    + (0, 0, 0, 1, 1, 2, 2, 3)
    + (4, 4, 4, 5, 5, 6, 6, 7)
    + (12, 12, 12)
    + (20, 20)
  )


def token_recycling() -> Topology:
  """The tree of token recycling (Luo et al. 2024): 80 nodes on 6 levels."""
  return Topology(
    (-1,) * 8
    + (0,) * 8
    + (1,) * 4
    + (2,) * 3
    + (3,) * 2
    + (4, 5, 6, 7)
    + (8,) * 8
    + (9,) * 3
    + (10,) * 2
    + (11, 12, 13, 14, 15)
    + (16, 16, 17, 20, 23, 25, 26)
    + (29,) * 5
    + (30,) * 2
    + (31, 32, 33, 37, 40, 47, 50, 51)
    + (54,) * 3
    + (55, 56, 59, 64, 66)
    + (69, 69, 72)
  )


TREES: dict[str, Callable[..., Topology]] = {
  'chain': chain,
  'chains': chains,
  'eagle': eagle,
  'of_parents': of_parents,
  'prefix_tree': prefix_tree,
  'token_recycling': token_recycling,
}


def _expand(array: np.ndarray, ndim: int) -> np.ndarray:
  """Adds leading axes of size 1, up to `ndim` axes."""
  return array.reshape((1,) * (ndim - array.ndim) + array.shape)
