"""Figures of tables: each is a function of rows alone."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import os
import textwrap
import types
from typing import Any

import matplotlib
from matplotlib import figure as figure_lib
import matplotlib.pyplot as plt
import numpy as np

Row = dict[str, Any]

# So that equal rows give equal files.
_STABLE = {'svg.hashsalt': 'specjax', 'svg.fonttype': 'none'}
_MARKERS = 'os^vDP*X'
# Letters of a legend that a figure has room for, and inches of one more.
_ROOM_OF_LEGEND = 20
_WIDTH_OF_LETTER = 0.075
_HATCHES = None, '//', '..'  # There are ten colours.


def save(figure: figure_lib.Figure, path: str | os.PathLike[str]) -> None:
  """Writes a figure, as SVG or PNG by the path's end, and closes it."""
  with matplotlib.rc_context(_STABLE):
    options = {}
    if os.fspath(path).endswith('.svg'):
      options['metadata'] = {'Date': None}
    figure.savefig(path, dpi=120, **options)
  plt.close(figure)


def panels(
  titles: Sequence[Any], xlabel: str = '', ylabel: str = '', **options: Any
) -> tuple[figure_lib.Figure, np.ndarray]:
  """Returns a figure with a panel for each title, side by side."""
  size = (3.6 * len(titles) + 1.8, 3.6)
  defaults = {'figsize': size, 'squeeze': False, 'layout': 'constrained'}
  figure, axes = plt.subplots(1, len(titles), **defaults | options)
  for each, title in zip(axes[0], titles):
    # No wider than its panel.
    each.set_title(textwrap.fill(str(title), 42), fontsize='medium')
    each.set_xlabel(xlabel)
    each.grid(alpha=0.3)
  axes[0, 0].set_ylabel(ylabel)
  return figure, axes[0]


def lines(
  rows: Sequence[Row],
  x: str,
  y: str,
  by: str | Sequence[str],
  *,
  panel: str | Sequence[str] = (),
  error: str = '',
  xlabel: str = '',
  ylabel: str = '',
  paper: bool = False,
  level: Callable[[Row], bool] = lambda row: False,
  points: Callable[[Row], bool] = lambda row: False,
) -> figure_lib.Figure:
  """Draws a line for each value of a column, with bars of two standard errors.

  Columns of `by` name a line, and those of `panel` a panel; `error` is that of
  the standard error of `y`. Rows without a number are left out. With `paper`,
  the paper's numbers of `y` are drawn, too: open markers, dotted lines. Rows of
  which `level` is true are a horizontal dotted line; those of which `points` is
  true are open markers without a line.
  """
  names = [(named(row, panel), named(row, by)) for row in rows]
  titles, labels = (list(dict.fromkeys(each)) for each in zip(*names))
  figure, axes = panels(
    titles, xlabel or x.replace('_', ' '), ylabel or y.replace('_', ' ')
  )
  for each, title in zip(axes, titles):
    for name in labels:
      own = [row for row, said in zip(rows, names) if said == (title, name)]
      own = [row for row in own if row.get(y) is not None]
      if own and level(own[0]):
        each.axhline(own[0][y], color='0.5', linestyle=':', label=name)
        continue
      own = [row for row in own if row.get(x) is not None]
      own.sort(key=lambda row: row[x])
      if not own:
        continue
      at, style = [row[x] for row in own], style_of(labels, name)
      shape = {'markersize': 4, 'elinewidth': 0.8}
      if points(own[0]):
        shape |= {'linestyle': '', 'markersize': 9, 'markerfacecolor': 'none'}
      values = [row[y] for row in own]
      each.errorbar(at, values, _two_errors(own, error), **style | shape)
      if paper and (theirs := _of_paper(at, own, y)):
        shape = {'linestyle': ':', 'markerfacecolor': 'none'}
        style['label'] = f'{name}, paper'
        each.plot(*theirs, **style | shape)
  legend(figure, axes)
  return figure


def bars(
  rows: Sequence[Row],
  x: str,
  y: str,
  by: str,
  *,
  error: str = '',
  ylabel: str = '',
  paper: bool = False,
) -> figure_lib.Figure:
  """Draws groups of bars with two standard errors; the paper's as open points.

  `x` names a group and `by` a bar of it; the others are as in `lines`.
  """
  groups = list(dict.fromkeys(row[x] for row in rows))
  names = list(dict.fromkeys(row[by] for row in rows))
  width = 0.8 / len(names)
  figure, (axes,) = panels([''], '', ylabel or y.replace('_', ' '))
  width_of_all = 2.4 + 0.3 * len(groups) * len(names) ** 0.8
  figure.set_size_inches(width_of_all, max(3.8, 0.5 + 0.2 * len(names)))
  for i, name in enumerate(names):
    own = [row for row in rows if row[by] == name and row.get(y) is not None]
    shift = (i - len(names) / 2 + 0.5) * width
    at = [groups.index(row[x]) + shift for row in own]
    axes.bar(
      at,
      [row[y] for row in own],
      width,
      yerr=_two_errors(own, error),
      label=name,
      color=f'C{i % 10}',
      hatch=_HATCHES[i // 10 % len(_HATCHES)],
      error_kw={'elinewidth': 0.8},
    )
    if paper and (theirs := _of_paper(at, own, y)):
      style = {'markerfacecolor': 'none', 'markersize': 4, 'label': 'paper'}
      axes.plot(*theirs, 'kD', **style)
  axes.set_xticks(range(len(groups)), groups, rotation=20, ha='right')
  legend(figure, [axes])
  return figure


# What stands behind a token that was drafted and kept, one that replaces a
# rejected draft, and one behind a draft that was kept as a whole.
ORIGINS = {
  'accepted': '#bfe3bf',
  'corrected': '#f4b6b0',
  'bonus': '#b3d4f0',
  'sampled': '#e8e8e8',
}


def text(
  pieces: Sequence[tuple[str, str]],
  title: str,
  most: int = 72,
  colors: Mapping[str, str] = types.MappingProxyType(ORIGINS),
) -> figure_lib.Figure:
  """Draws tokens on the colours of their origins; `most` letters a line."""
  said = ''.join(piece for piece, _ in pieces).split('\n')
  width = min(max(max(map(len, said)), 40), most)
  places, row, column = [], 0, 0
  for piece, origin in pieces:
    for letter in piece:
      if letter == '\n' or column >= width:
        row, column = row + 1, 0
      if letter != '\n':
        places.append((column, row, letter, origin))
        column += 1
  # In inches, a letter of 9 points is 0.075 wide.
  size = (0.085 * width + 0.3, 0.2 * (row + 1) + 0.8)
  figure, axes = plt.subplots(figsize=size, layout='constrained')
  for column, line, letter, origin in places:
    color = colors[origin]
    axes.add_patch(plt.Rectangle((column, line), 1, 1, color=color, lw=0))
    axes.text(
      column + 0.5, line + 0.5, letter, ha='center', va='center',
      family='monospace', fontsize=9, parse_math=False,
    )  # fmt: skip
  shown = dict.fromkeys(origin for _, origin in pieces)
  handles = [plt.Rectangle((0, 0), 1, 1, color=colors[each]) for each in shown]
  figure.legend(
    handles, shown, loc='outside lower left', ncols=len(shown), fontsize=8
  )
  axes.set_title(title, fontsize='medium', loc='left')
  axes.set_xlim(0, width)
  axes.set_ylim(row + 1, 0)
  axes.axis('off')
  return figure


def named(row: Row, columns: str | Sequence[str]) -> str:
  """Returns the values of columns, as titles and legends show them."""
  if isinstance(columns, str):
    return str(row.get(columns, ''))
  return ', '.join(f'{name.replace("_", " ")} {row[name]}' for name in columns)


def style_of(names: Sequence[str], name: str) -> dict[str, Any]:
  """Returns colour, line and marker of one of some names."""
  index = list(names).index(name)
  return {
    'color': f'C{index % 10}',  # There are ten colours.
    'linestyle': '-' if index < 10 else '--',
    'marker': _MARKERS[index % len(_MARKERS)],
    'label': name,
  }


def _two_errors(rows, error):
  """What bars of errors are long, if there is a column of them."""
  return [2 * (row.get(error) or 0) for row in rows] if error else None


def _of_paper(at, rows, y):
  """Where the paper has numbers of a column, and these; or nothing."""
  pairs = zip(at, rows)
  return [
    *zip(*((x, r['paper']) for x, r in pairs if r.get('paper_field') == y))
  ]


def legend(figure: figure_lib.Figure, axes: Sequence[Any]) -> None:
  """Puts one legend beside all panels."""
  labelled: dict[str, Any] = {}
  for each in axes:
    handles, labels = each.get_legend_handles_labels()
    labelled |= dict(zip(labels, handles))
  if labelled:
    longest = max(map(len, labelled))
    more = max(0, longest - _ROOM_OF_LEGEND) * _WIDTH_OF_LETTER
    figure.set_figwidth(figure.get_figwidth() + more)
    figure.legend(
      labelled.values(), labelled, loc='outside right upper', fontsize=8
    )
