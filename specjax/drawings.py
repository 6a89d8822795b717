"""Draws decoded texts and draft trees, each token on the color of its origin.

pieces = [piece for chunk in decoder.stream(prompt, 64) for piece in chunk]
texts = tokenizer.pieces([piece.token for piece in pieces])
origins = [piece.origin for piece in pieces]
figure = drawings.text(list(zip(texts, origins)), 'A decoded text')
figure.savefig('text.png')
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import textwrap
import types

from matplotlib import axes as axes_lib
from matplotlib import figure as figure_lib
from matplotlib import patches
from matplotlib import pyplot as plt
import numpy as np

from specjax import trees

# The palette of Okabe and Ito, which color-blind readers can tell apart: blue,
# orange, green, vermilion, sky blue, reddish purple and black.
COLORS = (
  *('#0072B2', '#E69F00', '#009E73', '#D55E00'),
  *('#56B4E9', '#CC79A7', '#000000'),
)
# Tints of the palette for the origins of `decoding.Piece`.
ORIGIN_COLORS: Mapping[str, str] = types.MappingProxyType(
  {
    'accepted': '#bfe0f2',
    'corrected': '#f7d08a',
    'bonus': '#a6dccb',
    'sampled': '#e8e8e8',
  }
)
_MIN_WIDTH = 40  # letters


def text(
  pieces: Sequence[tuple[str, str]],
  title: str = '',
  *,
  colors: Mapping[str, str] = ORIGIN_COLORS,
  width: int = 72,
) -> figure_lib.Figure:
  """Draws a text, each token on the color of its origin.

  Args:
    pieces: the text and the origin of each token.
    title: the title, which is wrapped at the width of the text.
    colors: the color of each origin.
    width: the number of letters per line at most.
  """
  lengths = map(len, ''.join(piece for piece, _ in pieces).split('\n'))
  width = min(max(*lengths, _MIN_WIDTH), width)
  letters, row, column = [], 0, 0
  for piece, origin in pieces:
    for letter in piece:
      if letter == '\n' or column >= width:
        row, column = row + 1, 0
      if letter != '\n':
        letters.append((column, row, letter, origin))
        column += 1
  title_lines = [
    line for part in title.split('\n') for line in textwrap.wrap(part, width)
  ]
  # A letter of 9 points is 0.075 inches wide.
  size = (0.085 * width + 0.3, 0.2 * (row + 1 + len(title_lines)) + 0.6)
  figure, axes = plt.subplots(figsize=size, layout='constrained')
  for column, line, letter, origin in letters:
    axes.add_patch(
      patches.Rectangle((column, line), 1, 1, color=colors[origin], lw=0)
    )
    axes.text(
      column + 0.5, line + 0.5, letter, ha='center', va='center',
      family='monospace', fontsize=9, parse_math=False,
    )  # fmt: skip
  origins = list(dict.fromkeys(origin for piece, origin in pieces if piece))
  figure.legend(
    [patches.Patch(color=colors[origin]) for origin in origins],
    origins,
    loc='outside lower left',
    ncols=len(origins),
    fontsize=8,
  )
  axes.set_title('\n'.join(title_lines), fontsize='medium', loc='left')
  axes.set_xlim(0, width)
  axes.set_ylim(row + 1, 0)
  axes.set_axis_off()
  return figure


def tree(
  topology: trees.Topology,
  tokens: Sequence[str],
  accepted: Sequence[bool],
  emitted: Sequence[str],
) -> figure_lib.Figure:
  """Draws a draft tree, and below it the tokens that the round emitted.

  Args:
    topology: a tree with `N` nodes.
    tokens: `[N]` the tokens of the nodes, as text.
    accepted: `[N]` whether the accepted path contains the node, or a sibling
      with the same token.
    emitted: the accepted tokens, and then the token that the target adds.
  """
  rows = _rows(topology)
  bottom = rows.max() + 1.3
  size = 1.9 * (topology.depth + 2), 0.5 * bottom + 0.6
  figure, axes = plt.subplots(figsize=size, layout='constrained')
  for node, (parent, depth) in enumerate(
    zip(topology.parents, topology.depths)
  ):
    origin = 'accepted' if accepted[node] else 'sampled'
    axes.plot(
      [depth - 1, depth],
      [rows[parent + 1], rows[node + 1]],
      color=ORIGIN_COLORS[origin],
      linewidth=3,
      zorder=1,
    )
    _box(axes, depth, rows[node + 1], tokens[node], origin)
  _box(axes, 0, rows[0], 'prompt', 'sampled')
  axes.text(0, bottom, 'emitted', ha='center', va='center')
  last = 'bonus' if len(emitted) > topology.depth else 'corrected'
  for i, token in enumerate(emitted):
    origin = 'accepted' if i + 1 < len(emitted) else last
    _box(axes, i + 1, bottom, token, origin)
  axes.set(xlim=(-0.5, topology.depth + 1.5), ylim=(bottom + 0.5, -0.5))
  axes.set_axis_off()
  return figure


def _rows(topology: trees.Topology) -> np.ndarray:
  """Returns `[N + 1]` vertical positions of the root and of all nodes."""
  rows = np.zeros(topology.num_nodes + 1)
  # Leaves in depth-first order, so that siblings are neighbors.
  leaves = [i for i in _depth_first(topology) if i in topology.leaf_entries]
  rows[leaves] = np.arange(len(leaves))
  for entry in reversed(range(topology.num_nodes + 1)):
    children = np.flatnonzero(topology.children[entry]) + 1
    if children.size:
      rows[entry] = rows[children].mean()
  return rows


def _depth_first(topology: trees.Topology, entry: int = 0) -> Iterator[int]:
  """Yields the entries of a subtree, parents before their children."""
  yield entry
  for node in np.flatnonzero(topology.children[entry]):
    yield from _depth_first(topology, int(node) + 1)


def _box(
  axes: axes_lib.Axes, x: float, y: float, token: str, origin: str
) -> None:
  """Draws a token on the color of its origin."""
  box = {'boxstyle': 'round', 'facecolor': ORIGIN_COLORS[origin]}
  axes.text(
    x, y, token, ha='center', va='center', parse_math=False,
    bbox=box | {'edgecolor': '0.4'},
  )  # fmt: skip
