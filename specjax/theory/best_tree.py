"""The static draft tree with a given number of nodes that accepts most tokens.

Chen et al. (2024), "Sequoia: Scalable, Robust, and Hardware-aware Speculative
Decoding". Siblings are tested in order, and the acceptance rate of each rank is
measured. A node is accepted with the product of the rates along its path.
"""

import heapq

import numpy as np
from numpy import typing as npt

from specjax import checks
from specjax import trees


def best_tree(acceptance: npt.ArrayLike, num_nodes: int) -> trees.Topology:
  """Returns the tree with the largest expected number of accepted tokens.

  Args:
    acceptance: `[D, W]` probability that the sibling of each rank is accepted
      at each depth, given that its parent is accepted. Rows must be descending,
      with a sum of at most 1.
    num_nodes: `N`, number of nodes without the root; at most the number of
      nodes in a complete tree with depth `D` and `W` children per node.

  Returns:
    A tree with a depth of at most `D` and at most `W` children per node.

  Raises:
    ValueError: an argument is out of range.
  """
  rates = _checked(acceptance)
  depth, width = rates.shape
  largest = sum(width ** (level + 1) for level in range(depth))
  # It may exceed every float, and `check_integers` compares floats.
  largest = min(largest, np.iinfo(np.int32).max)
  checks.check_integers('num_nodes', num_nodes, 1, largest)
  # A greedy search. A node is identified by the ranks along its path. The heap
  # has pairs of the negative probability that a node is accepted, and its path.
  # When a node is popped, its first child and its next sibling are pushed:
  # neither is more likely to be accepted than the node.
  heap: list[tuple[float, tuple[int, ...]]] = [(-rates[0, 0], (0,))]
  chosen: list[tuple[int, ...]] = []
  while len(chosen) < num_nodes:
    negative_prob, path = heapq.heappop(heap)
    chosen.append(path)
    level, rank = len(path) - 1, path[-1]
    if rank + 1 < width:
      rate = rates[level, rank]
      parent = negative_prob / rate if rate else 0.0
      sibling = parent * rates[level, rank + 1]
      heapq.heappush(heap, (sibling, (*path[:-1], rank + 1)))
    if level + 1 < depth:
      child = negative_prob * rates[level + 1, 0]
      heapq.heappush(heap, (child, (*path, 0)))
  chosen.sort(key=lambda path: (len(path), path))
  node_index = {path: node for node, path in enumerate(chosen)}
  return trees.Topology(tuple(node_index.get(path[:-1], -1) for path in chosen))


def kept_tokens(acceptance: npt.ArrayLike, tree: trees.Topology) -> float:
  """Returns the expected number of accepted tokens of a draft tree.

  Args:
    acceptance: `[D, W]` acceptance rates; see `best_tree`.
    tree: a tree with a depth of at most `D` and at most `W` children per node.

  Raises:
    ValueError: an argument is out of range, or the tree is too large.
  """
  rates = _checked(acceptance)
  node_probs = {-1: 1.0}  # How likely each node is accepted; -1 is the root.
  num_children = dict.fromkeys(range(-1, tree.num_nodes), 0)
  for node, parent in enumerate(tree.parents):
    rank, level = num_children[parent], tree.depths[node] - 1
    if level >= rates.shape[0] or rank >= rates.shape[1]:
      raise ValueError(
        f'acceptance must cover a tree of depth {tree.depth} and all children '
        f'of node {parent}, got shape {rates.shape}.'
      )
    num_children[parent] += 1
    node_probs[node] = node_probs[parent] * rates[level, rank]
  return float(sum(node_probs.values()) - 1)


def _checked(acceptance: npt.ArrayLike) -> np.ndarray:
  """Returns the acceptance rates as float64, or raises a `ValueError`."""
  rates = np.asarray(acceptance, np.float64)
  if rates.ndim != 2 or not rates.size:
    raise ValueError(
      f'acceptance must be a table [D, W], got shape {rates.shape}.'
    )
  checks.check_range('acceptance', rates, 0, 1)
  checks.check_range('the sums of acceptance', rates.sum(axis=1), 0, 1 + 1e-6)
  if (np.diff(rates, axis=1) > 1e-9).any():
    raise ValueError('acceptance must not grow from one sibling to the next.')
  return rates
