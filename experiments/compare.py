"""Compares methods on prompt sets: block efficiency and speed."""

from collections.abc import Callable
import functools
from typing import Any

from matplotlib import figure as figure_lib

from experiments.common import compare
from experiments.common import plots

MAY_CHANGE = compare.MAY_CHANGE


prepare = compare.prepare


def run(config, workdir):
  """Returns a row per method and prompt set; with `by_domain`, per domain."""
  setup = prepare(config)
  decoded = compare.decode(config, workdir, setup, stop_at_deadline=True)
  return compare.rows(decoded, config.get('by_domain', False))


def figures(rows):
  """Draws block efficiency by method, and speed-ups if they were measured.

  If all methods have columns and the last column is a number, lines are drawn
  over it: one panel per value of the first column, and one line per combination
  of the others.
  """
  total = [row for row in label_sweeps(rows) if row['domain'] == 'all']
  draw = _over_a_column(total) or functools.partial(
    plots.bars, total, 'prompts', by='method'
  )
  labels = {
    'block_efficiency': 'emitted tokens per target call',
    'speed_up': 'tokens per second over plain decoding',
  }
  return {
    name: draw(y=name, error=f'{name}_error', ylabel=label, paper=True)
    for name, label in labels.items()
    if name in rows[0]
  }


def label_sweeps(rows):
  """Adds the values of a sweep to the labels of prompt sets."""
  return [row | {'prompts': _prompts_label(row)} for row in rows]


def _prompts_label(row: dict[str, Any]) -> str:
  """Returns the label of a row's prompt set, with the values of a sweep."""
  fields = list(row)[: list(row).index('prompts')]
  values = [
    f'{name.split(".")[-1]} {row[name]}' for name in fields if name != 'part'
  ]
  return ', '.join([row['prompts'], *values])


def _over_a_column(
  rows: list[dict[str, Any]],
) -> Callable[..., figure_lib.Figure] | None:
  """Returns a plot over the methods' last column, if that is a number."""
  names = list(rows[0])
  columns = names[names.index('method') + 1 : names.index('decoded')]
  if len(columns) < 3 or isinstance(rows[0][columns[-1]], str):
    return None
  if any(name not in row for row in rows for name in columns):
    return None
  prompts = ['prompts'] if len({row['prompts'] for row in rows}) > 1 else []
  first, *between, last = columns
  panel = [*prompts, first]
  return functools.partial(plots.lines, rows, last, by=between, panel=panel)
