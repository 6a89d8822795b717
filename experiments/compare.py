"""Every method on every set of prompts: block efficiency and speed."""

import functools

from experiments.common import compare
from experiments.common import plots

MAY_CHANGE = compare.MAY_CHANGE


prepare = compare.plan


def run(config, workdir):
  """Returns a row for each method and set, and each domain with `by_domain`."""
  made = prepare(config)
  decoded = compare.decode(config, workdir, made, in_time=True)
  return compare.rows(decoded, config.get('by_domain', False))


def figures(rows):
  """Draws block efficiency by method, and speed-ups where there were clocks.

  If all methods have columns and the last one is a number, they are lines over
  it: a panel for each value of the first column, a line for those of the
  others.
  """
  total = [row for row in swept(rows) if row['domain'] == 'all']
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


def swept(rows):
  """Returns rows whose sets have the values of a sweep in their names."""
  return [row | {'prompts': _set_of(row)} for row in rows]


def _set_of(row):
  """The set of prompts; the fields of a sweep stand in front of it."""
  fields = list(row)[: list(row).index('prompts')]
  values = [
    f'{name.split(".")[-1]} {row[name]}' for name in fields if name != 'part'
  ]
  return ', '.join([row['prompts'], *values])


def _over_a_column(rows):
  """Returns a plot over the methods' last column, if that is a number."""
  names = list(rows[0])
  columns = names[names.index('method') + 1 : names.index('decoded')]
  if len(columns) < 3 or isinstance(rows[0][columns[-1]], str):
    return None
  if any(name not in row for row in rows for name in columns):
    return None
  sets = ['prompts'] if len({row['prompts'] for row in rows}) > 1 else []
  first, *between, last = columns
  panel = [*sets, first]
  return functools.partial(plots.lines, rows, last, by=between, panel=panel)
