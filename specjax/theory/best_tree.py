"""The static tree of so many nodes that keeps the most tokens.

Chen et al. (2024), "Sequoia: Scalable, Robust, and Hardware-aware Speculative
Decoding": where siblings are tried in order, how often the one of a rank is
kept is measured, and a node is worth the product along its path.
"""

import heapq

import numpy as np
from numpy import typing as npt

from specjax import checks
from specjax import trees


def best_tree(acceptance: npt.ArrayLike, num_nodes: int) -> trees.Topology:
  """Returns the tree whose expected number of kept tokens is the largest.

  Args:
    acceptance: `[D, W]`, how likely the sibling of each rank is kept at each
      depth, given that what is above is kept; a row falls, and its sum is at
      most 1.
    num_nodes: `N` of the tree; at most as many as such a tree can have.

  Returns:
    The tree: at most `D` deep, with at most `W` children of a node.

  Raises:
    ValueError: an argument is out of range.
  """
  chances = _checked(acceptance)
  depth, width = chances.shape
  largest = sum(width ** (level + 1) for level in range(depth))
  checks.check_range('num_nodes', num_nodes, 1, largest)
  # Nodes by their paths of ranks. What is worth the most comes first, and what
  # hangs below or comes behind it is worth no more.
  waiting: list[tuple[float, tuple[int, ...]]] = [(-chances[0, 0], (0,))]
  chosen: list[tuple[int, ...]] = []
  while len(chosen) < num_nodes:
    worth, path = heapq.heappop(waiting)
    chosen.append(path)
    level, rank = len(path) - 1, path[-1]
    if rank + 1 < width:
      above = worth / chances[level, rank] if chances[level, rank] else 0.0
      sibling = above * chances[level, rank + 1]
      heapq.heappush(waiting, (sibling, (*path[:-1], rank + 1)))
    if level + 1 < depth:
      heapq.heappush(waiting, (worth * chances[level + 1, 0], (*path, 0)))
  chosen.sort(key=lambda path: (len(path), path))
  number = {path: node for node, path in enumerate(chosen)}
  return trees.Topology(tuple(number.get(path[:-1], -1) for path in chosen))


def kept_tokens(acceptance: npt.ArrayLike, tree: trees.Topology) -> float:
  """Returns the expected number of draft tokens of a tree that are kept.

  Args:
    acceptance: as of `best_tree`.
    tree: at most `D` deep, with at most `W` children of a node.

  Raises:
    ValueError: an argument is out of range, or the tree is larger.
  """
  chances = _checked(acceptance)
  worth, num_children = {-1: 1.0}, dict.fromkeys(range(-1, tree.num_nodes), 0)
  for node, parent in enumerate(tree.parents):
    rank, level = num_children[parent], tree.depths[node] - 1
    if level >= chances.shape[0] or rank >= chances.shape[1]:
      raise ValueError(
        f'acceptance must cover a tree of depth {tree.depth} and all children '
        f'of node {parent}, got shape {chances.shape}.'
      )
    num_children[parent] += 1
    worth[node] = worth[parent] * chances[level, rank]
  return float(sum(worth.values()) - 1)


def _checked(acceptance):
  chances = np.asarray(acceptance, np.float64)
  if chances.ndim != 2 or not chances.size:
    raise ValueError(
      f'acceptance must be a table [D, W], got shape {chances.shape}.'
    )
  checks.check_range('acceptance', chances, 0, 1)
  checks.check_range('the sums of acceptance', chances.sum(axis=1), 0, 1 + 1e-6)
  if (np.diff(chances, axis=1) > 1e-9).any():
    raise ValueError('acceptance must not grow from one sibling to the next.')
  return chances
