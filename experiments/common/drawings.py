"""Draws single rounds and texts, for notebooks."""

from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any

from matplotlib import figure as figure_lib
import matplotlib.pyplot as plt
import numpy as np

from experiments.common import plots
from specjax import trees


def tree(
  topology: trees.Topology,
  names: Sequence[str],
  kept: Sequence[bool],
  emitted: Sequence[str],
) -> figure_lib.Figure:
  """Draws a draft tree, and the tokens that the round emitted below it.

  Args:
    topology: a tree with `N` nodes.
    names: `[N]` the tokens of the nodes, as text.
    kept: `[N]` whether the accepted path contains the node, or a sibling with
      the same token.
    emitted: the accepted tokens, and then the token that the target adds.
  """
  rows = np.zeros(
    topology.num_nodes + 1
  )  # Vertical positions by entry; the root is first.
  # Leaves in depth-first order, so that siblings are neighbors.
  leaves = [i for i in _depth_first(topology) if i in topology.leaf_entries]
  rows[leaves] = np.arange(len(leaves))
  for entry in reversed(range(topology.num_nodes + 1)):
    children = np.flatnonzero(topology.children[entry]) + 1
    if children.size:
      rows[entry] = rows[children].mean()
  height = rows.max() + 1.3
  size = 1.9 * (topology.depth + 2), 0.5 * height + 0.6
  figure, axes = plt.subplots(figsize=size, layout='constrained')
  edges = zip(topology.parents, topology.depths)
  for node, (parent, depth) in enumerate(edges):
    origin = 'accepted' if kept[node] else 'sampled'
    ends = [depth - 1, depth], [rows[parent + 1], rows[node + 1]]
    axes.plot(*ends, color=plots.ORIGINS[origin], linewidth=3, zorder=1)
    _box(axes, depth, rows[node + 1], names[node], origin)
  _box(axes, 0, rows[0], 'prompt', 'sampled')
  axes.text(0, height, 'emitted', ha='center', va='center')
  last = 'bonus' if len(emitted) > topology.depth else 'corrected'
  for i, token in enumerate(emitted):
    origin = 'accepted' if i + 1 < len(emitted) else last
    _box(axes, i + 1, height, token, origin)
  axes.set(xlim=(-0.5, topology.depth + 1.5), ylim=(height + 0.5, -0.5))
  axes.set_axis_off()
  return figure


def _depth_first(topology: trees.Topology, entry: int = 0) -> Iterator[int]:
  """Yields the entries of a subtree, parents before their children."""
  yield entry
  for node in np.flatnonzero(topology.children[entry]):
    yield from _depth_first(topology, node + 1)


def rounds(
  axes: Any, arms: Sequence[int], emitted: Sequence[int], names: Sequence[str]
) -> None:
  """Draws each round as a bar at its arm, whose length is its emitted tokens.

  The horizontal axis is the position in the text.
  """
  axes.barh(
    arms,
    emitted,
    left=np.cumsum(emitted) - emitted,
    color=[f'C{arm}' for arm in arms],
    edgecolor='white',
  )
  axes.set_yticks(range(len(names)), names)
  axes.set_ylim(len(names) - 0.5, -0.5)


def _box(axes: Any, x: float, y: float, text: str, origin: str) -> None:
  """Draws a text on the color of its origin."""
  box = {'boxstyle': 'round', 'facecolor': plots.ORIGINS[origin]}
  axes.text(
    x, y, text, ha='center', va='center', parse_math=False,
    bbox=box | {'edgecolor': '0.4'},
  )  # fmt: skip
