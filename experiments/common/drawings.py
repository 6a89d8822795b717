"""Drawings of single rounds and texts, for notebooks."""

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
  """Draws a draft tree, and below it what the round emitted.

  The `N` nodes have names, and `kept` `[N]` is whether the text goes through
  the node, or another one like it. Accepted tokens are emitted, then the one
  that the target adds.
  """
  rows = np.zeros(topology.num_nodes + 1)  # By entry, the root first.
  # Leaves as they hang below each other: those of one node are neighbours.
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


def _depth_first(topology, entry=0):
  """Yields the entries of a tree, each in front of those below it."""
  yield entry
  for node in np.flatnonzero(topology.children[entry]):
    yield from _depth_first(topology, node + 1)


def rounds(
  axes: Any, arms: Sequence[int], emitted: Sequence[int], names: Sequence[str]
) -> None:
  """Draws each round as a bar at its arm, as long as what it emitted.

  The horizontal axis is the text.
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


def _box(axes, x, y, text, origin):
  """A text on the colour of its origin."""
  box = {'boxstyle': 'round', 'facecolor': plots.ORIGINS[origin]}
  axes.text(
    x, y, text, ha='center', va='center', parse_math=False,
    bbox=box | {'edgecolor': '0.4'},
  )  # fmt: skip
