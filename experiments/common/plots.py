"""Draws figures from the rows of tables."""

from collections.abc import Callable
from collections.abc import Sequence
import os
import textwrap
from typing import Any

import cycler
import matplotlib
from matplotlib import figure as figure_lib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

Row = dict[str, Any]

# Settings with which equal rows give equal files.
_STABLE = {'svg.hashsalt': 'specjax', 'svg.fonttype': 'none'}
_MARKERS = 'os^vDP*X'
_DASHES = '-', '-.', ':'
# Letters of a legend that fit into a figure, and inches per further letter.
_LEGEND_LETTERS = 20
_LETTER_WIDTH = 0.075
# The most lines with labels next to them, and the size of these, in points.
_MOST_LABELS, _LABEL_SIZE = 6, 9
_HATCHES = None, '//', '..'  # One for every eight bars.

# The colors of Okabe and Ito, which color-blind readers can tell apart.
BLUE, ORANGE, GREEN, VERMILLION = '#0072B2', '#E69F00', '#009E73', '#D55E00'
SKY, PURPLE, BLACK, GRAY = '#56B4E9', '#CC79A7', '#000000', '#8C8C8C'
_CYCLE = (BLUE, ORANGE, GREEN, VERMILLION, SKY, PURPLE, BLACK, GRAY)
matplotlib.rcParams['axes.prop_cycle'] = cycler.cycler(color=_CYCLE)
# Colors that methods have in all figures, by the beginning of their names.
_COLORS = {
  **dict.fromkeys(('maximal', 'lossless', 'target', 'oracle'), BLACK),
  **dict.fromkeys(('none', 'plain', 'uniform', 'random', 'theory'), GRAY),
  **dict.fromkeys(('kseq', 'exp3', 'bild', 'uno', 'simulation'), ORANGE),
  **dict.fromkeys(('otm', 'optimal transport', 'ucb', 'decode', 'token'), BLUE),
  **dict.fromkeys(('block', 'hedge', 'normal_hedge', 'opt'), GREEN),
  **dict.fromkeys(('lossy', 'router', 'uno, code'), VERMILLION),
  **dict.fromkeys(('multiround', 'goodput', 'chow', 'sequential'), PURPLE),
  **dict.fromkeys(('kl_ucb', 'thompson', 'diff', 'ucb1, be'), SKY),
}


def save(figure: figure_lib.Figure, path: str | os.PathLike[str]) -> None:
  """Writes a figure as SVG or PNG, by the suffix of the path, and closes it."""
  with matplotlib.rc_context(_STABLE):
    options = {}
    if os.fspath(path).endswith('.svg'):
      options['metadata'] = {'Date': None}
    figure.savefig(path, dpi=120, **options)
  plt.close(figure)


def panels(
  titles: Sequence[Any], xlabel: str = '', ylabel: str = '', **options: Any
) -> tuple[figure_lib.Figure, np.ndarray]:
  """Returns a figure with one panel per title, next to each other."""
  size = (3.6 * len(titles) + 1.8, 3.6)
  defaults = {'figsize': size, 'squeeze': False, 'layout': 'constrained'}
  figure, axes = plt.subplots(1, len(titles), **defaults | options)
  for panel, title in zip(axes[0], titles):
    # Titles are wrapped to the width of a panel.
    panel.set_title(textwrap.fill(str(title), 42), fontsize='medium')
    panel.set_xlabel(xlabel)
    panel.grid(alpha=0.3)
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
  adjust: Callable[[Any], object] = lambda axes: None,
) -> figure_lib.Figure:
  """Draws lines with error bars of two standard errors.

  Up to six lines have their names at their ends; more have a legend.

  Args:
    rows: the rows; those without a value of `x` or `y` are left out.
    x: the column of the horizontal axis.
    y: the column of the vertical axis.
    by: the columns whose values name a line.
    panel: the columns whose values name a panel.
    error: the column of the standard errors of `y`.
    xlabel: the label of the horizontal axis; defaults to `x`.
    ylabel: the label of the vertical axis; defaults to `y`.
    paper: whether the paper's values of `y` are drawn, as hollow markers
      with dashed lines.
    level: from the first row of a line, returns whether it is drawn as a
      horizontal dotted line.
    points: from the first row of a line, returns whether it is drawn as open
      markers without a line.
    adjust: changes the axes of a panel, such as their scales, before lines are
      labelled at their ends.
  """
  names = [(named(row, panel), named(row, by)) for row in rows]
  titles, labels = (list(dict.fromkeys(column)) for column in zip(*names))
  figure, axes = panels(
    titles,
    xlabel or x.replace('_', ' '),
    ylabel or y.replace('_', ' '),
    sharey=True,
  )
  for axis, title in zip(axes, titles):
    for name in labels:
      line = [row for row, key in zip(rows, names) if key == (title, name)]
      line = [row for row in line if row.get(y) is not None]
      if line and level(line[0]):
        axis.axhline(line[0][y], color='0.5', linestyle=':', label=name)
        continue
      line = [row for row in line if row.get(x) is not None]
      line.sort(key=lambda row: row[x])
      if not line:
        continue
      positions = [row[x] for row in line]
      style = line_style(labels, name)
      shape = {'markersize': 4, 'elinewidth': 0.8}
      if points(line[0]):
        shape |= {'linestyle': '', 'markersize': 9, 'markerfacecolor': 'none'}
      values = [row[y] for row in line]
      axis.errorbar(positions, values, error_bars(line, error), **style | shape)
      if paper and (paper_points := _paper_points(positions, line, y)):
        shape = {'linestyle': '--', 'markerfacecolor': 'none'}
        style['label'] = f'{name}, paper'
        axis.plot(*paper_points, **style | shape)
  for axis in axes:
    adjust(axis)
  if len(labels) <= _MOST_LABELS:
    _label_lines(figure, axes)
  else:
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
  """Draws groups of bars with error bars of two standard errors.

  Args:
    rows: the rows; those without a value of `y` are left out.
    x: the column whose values name a group.
    y: the column of the height.
    by: the column whose values name a bar of a group.
    error: the column of the standard errors of `y`.
    ylabel: the label of the vertical axis; defaults to `y`.
    paper: whether the paper's values of `y` are drawn, as open markers.
  """
  groups = list(dict.fromkeys(row[x] for row in rows))
  names = list(dict.fromkeys(row[by] for row in rows))
  width = 0.8 / len(names)
  figure, (axes,) = panels([''], '', ylabel or y.replace('_', ' '))
  figure_width = 2.4 + 0.3 * len(groups) * len(names) ** 0.8
  figure.set_size_inches(figure_width, max(3.8, 0.5 + 0.2 * len(names)))
  for i, name in enumerate(names):
    bars_of_name = [
      row for row in rows if row[by] == name and row.get(y) is not None
    ]
    shift = (i - len(names) / 2 + 0.5) * width
    positions = [groups.index(row[x]) + shift for row in bars_of_name]
    axes.bar(
      positions,
      [row[y] for row in bars_of_name],
      width,
      yerr=error_bars(bars_of_name, error),
      label=name,
      color=color(name, i),
      hatch=_HATCHES[i // len(_CYCLE) % len(_HATCHES)],
      error_kw={'elinewidth': 0.8},
    )
    if paper and (paper_points := _paper_points(positions, bars_of_name, y)):
      style = {'markerfacecolor': 'none', 'markersize': 4, 'label': 'paper'}
      axes.plot(*paper_points, 'kD', **style)
  axes.set_xticks(range(len(groups)), groups, rotation=20, ha='right')
  legend(figure, [axes])
  return figure


def named(row: Row, columns: str | Sequence[str]) -> str:
  """Returns the values of columns as a title or a label of a legend."""
  if isinstance(columns, str):
    return str(row.get(columns, ''))
  return ', '.join(f'{name.replace("_", " ")} {row[name]}' for name in columns)


def line_style(names: Sequence[str], name: str) -> dict[str, Any]:
  """Returns the color, line, marker and label of one of several names."""
  names = list(names)
  index = names.index(name)
  colors = [color(other, i) for i, other in enumerate(names[:index])]
  return {
    'color': color(name, index),
    # Lines with one color differ in their dashes.
    'linestyle': _DASHES[colors.count(color(name, index)) % len(_DASHES)],
    'marker': _MARKERS[index % len(_MARKERS)],
    'label': name,
  }


def color(name: str, index: int = 0) -> str:
  """Returns the color of a method, or the color of an index."""
  name = str(name).lower()
  prefixes = [prefix for prefix in _COLORS if name.startswith(prefix)]
  if prefixes:
    return _COLORS[max(prefixes, key=len)]
  return _CYCLE[index % len(_CYCLE)]


def _label_lines(figure: figure_lib.Figure, axes: Sequence[Any]) -> None:
  """Writes the name of each line next to the last panel that has it."""
  panel_of_line: dict[str, Any] = {}
  for panel in axes:
    handles, labels = panel.get_legend_handles_labels()
    panel_of_line |= {label: (panel, h) for label, h in zip(labels, handles)}
  figure.canvas.draw()  # Sets the limits of the panels.
  for panel in axes:
    ends = [
      (panel.transData.transform((0, _last_value(handle)))[1], label, handle)
      for label, (last_panel, handle) in panel_of_line.items()
      if last_panel is panel
    ]
    top = -np.inf
    bottom, height = panel.bbox.y0, panel.bbox.height
    for end, label, handle in sorted(ends, key=lambda end: end[0]):
      top = max(end, top + _LABEL_SIZE * 1.2 * figure.dpi / 72)
      panel.text(
        1.02, (top - bottom) / height, label, transform=panel.transAxes,
        va='center', fontsize=_LABEL_SIZE, parse_math=False,
        color=getattr(handle, 'lines', [handle])[0].get_color(),
      )  # fmt: skip


def _last_value(handle: Any) -> float:
  line = getattr(handle, 'lines', [handle])[0]
  return float(line.get_ydata()[-1])


def dots(
  table: pd.DataFrame,
  label: str,
  value: str,
  xlabel: str,
  *,
  reference: float = 1.0,
  colors: Sequence[str] | None = None,
  paper: str = 'paper',
) -> tuple[figure_lib.Figure, Any]:
  """Draws one line per row: ours with two standard errors, and the paper's.

  Args:
    table: the rows, from top to bottom.
    label: the column with the names.
    value: the column with our numbers; their errors are in `value_error`.
    xlabel: the label of the horizontal axis.
    reference: the value of a vertical line.
    colors: the colors of the rows; defaults to those of the methods.
    paper: the column with the paper's numbers, drawn as hollow diamonds.
  """
  size = (8, 0.9 + 0.23 * len(table))
  figure, axes = plt.subplots(figsize=size, layout='constrained')
  axes.axvline(reference, color=GRAY, linewidth=1)
  for row, (_, cells) in enumerate(table.iterrows()):
    shade = colors[row] if colors else color(cells[label], row)
    error = cells.get(f'{value}_error')
    error = None if pd.isna(error) else 2 * error
    axes.errorbar(cells[value], row, xerr=error, fmt='o', color=shade)
    if paper in table and not pd.isna(cells[paper]):
      axes.plot(cells[paper], row, 'D', color=shade, markerfacecolor='none')
  axes.set_yticks(range(len(table)), table[label])
  axes.set_ylim(len(table) - 0.5, -0.5)
  axes.set_xlabel(xlabel)
  axes.grid(alpha=0.3)
  return figure, axes


def error_bars(rows: Sequence[Row], error: str) -> list[float] | None:
  """Returns the lengths of error bars, if there is a column of errors."""
  return [2 * (row.get(error) or 0) for row in rows] if error else None


def _paper_points(
  positions: Sequence[float], rows: Sequence[Row], y: str
) -> list[tuple[Any, ...]]:
  """Returns positions and values of the paper's numbers in a column, if any."""
  pairs = zip(positions, rows)
  return [
    *zip(*((x, r['paper']) for x, r in pairs if r.get('paper_field') == y))
  ]


def legend(figure: figure_lib.Figure, axes: Sequence[Any]) -> None:
  """Puts one legend next to all panels."""
  labelled: dict[str, Any] = {}
  for panel in axes:
    handles, labels = panel.get_legend_handles_labels()
    labelled |= dict(zip(labels, handles))
  if labelled:
    longest = max(map(len, labelled))
    extra_width = max(0, longest - _LEGEND_LETTERS) * _LETTER_WIDTH
    figure.set_figwidth(figure.get_figwidth() + extra_width)
    figure.legend(
      labelled.values(), labelled, loc='outside right upper', fontsize=8
    )
