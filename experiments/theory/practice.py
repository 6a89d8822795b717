"""Compares predicted and measured speeds of draft lengths and numbers.

Tokens per round follow from the acceptance rate, and the time per round is
measured. Together they predict the speed of all drafts from the acceptance rate
of one length (Leviathan et al. 2023, Theorem 3.8).
"""

from typing import Any

from experiments.common import arms as arms_lib
from experiments.common import compare
from experiments.common import costs as costs_lib
from experiments.common import methods as methods_lib
from experiments.common import paper
from experiments.common import plots
from experiments.common import workdirs
from specjax import checks
from specjax import theory

MAY_CHANGE = ('from_length', 'paper')
_CHOICES = 'choices'


def prepare(config):
  """Returns the methods, whose shapes must differ, and the prompts."""
  checks.check_range('repeats', config.repeats, 1)
  setup = compare.prepare(config)
  shapes = [_shape(method) for method in setup.methods]
  for i, shape in enumerate(shapes):
    if shape in shapes[:i]:
      raise ValueError(
        f'{setup.methods[i].location} must differ in drafts or length from the '
        f'other methods, got {setup.methods[i].label!r}.'
      )
  for num in dict(shapes):
    if (num, config.from_length) not in shapes:
      raise ValueError(
        f'from_length must be the length of a method with {num} drafts, got '
        f'{config.from_length}.'
      )
  return setup


def run(config, workdir):
  """Returns a row per draft, and the predicted best draft's relative speed."""
  setup = prepare(config)
  shapes = [_shape(method) for method in setup.methods]
  decoded = compare.decode(config, workdir, setup)
  costs = _costs(config, workdir, setup)
  rows = []
  for prompts in setup.prompt_sets:
    on_set = [result for result in decoded if result.prompts is prompts]
    measured = dict(zip(shapes, compare.rows(on_set)))
    table = [
      _row(shape, row, measured[shape[0], config.from_length], costs)
      for shape, row in measured.items()
    ]
    rows += [*table, _choice(table, list(measured.values()))]
  return rows


def _shape(method: methods_lib.Method) -> tuple[int, int]:
  """Returns a method's number of drafts and draft length, from its columns."""
  missing = {'drafts', 'length'} - set(method.columns)
  if missing or len(method.arms) > 1:
    raise ValueError(
      f'{method.location} must be an arm with columns drafts and length, got '
      f'{method.label!r} with {method.columns}.'
    )
  return method.columns['drafts'], method.columns['length']


def _costs(
  config: Any, workdir: workdirs.Workdir, setup: compare.Setup
) -> dict[tuple[int, int], float]:
  """Returns each shape's time per round over that of plain decoding."""
  arms = tuple(arm for method in setup.methods for arm in method.arms)
  plain = arms_lib.parse(compare.REFERENCE, (), compare.REFERENCE)
  method = setup.methods[0]._replace(arms=(plain, *arms))
  texts = [job.turns[0] for job in setup.prompt_sets[0].jobs]
  plain_row, *rows = costs_lib.table(
    config, workdir, setup.family, method, texts
  )
  return {
    _shape(method): row['round_ms'] / plain_row['round_ms']
    for method, row in zip(setup.methods, rows)
  }


def _row(
  shape: tuple[int, int],
  row: dict[str, Any],
  known: dict[str, Any],
  costs: dict[tuple[int, int], float],
) -> dict[str, Any]:
  """Returns predicted and measured values of a shape.

  Args:
    shape: the number of drafts and the draft length.
    row: the measured row of the shape.
    known: the row of the length whose acceptance rate is used.
    costs: relative times per round.
  """
  num, length = shape
  acceptance = 1 - known['rejection_rate']
  predicted = theory.constant.block_efficiency(acceptance, length)
  return {
    'part': 'drafts',
    'prompts': row['prompts'],
    'drafts': num,
    'length': length,
    'acceptance': acceptance,
    'predicted_efficiency': predicted,
    'block_efficiency': row['block_efficiency'],
    'block_efficiency_error': row['block_efficiency_error'],
    'relative_round': costs[shape],
    'predicted_speed_up': predicted / costs[shape],
    'speed_up': row['speed_up'],
    'speed_up_error': row['speed_up_error'],
  }


def _choice(
  rows: list[dict[str, Any]], measured: list[dict[str, Any]]
) -> dict[str, Any]:
  """Returns the best shapes by prediction and by measurement.

  `worth` is the measured speed of the first over that of the second.
  """
  shape = lambda row: f'{row["drafts"]} x {row["length"]}'
  predicted = max(rows, key=lambda row: row['predicted_speed_up'])
  best = max(rows, key=lambda row: row['speed_up'])
  speeds = (
    measured[rows.index(row)][paper.PAIRED]['speed_up']
    for row in (predicted, best)
  )
  worth = next(speeds).over(next(speeds))
  return {
    'part': _CHOICES,
    'prompts': best['prompts'],
    'predicted_best': shape(predicted),
    'best': shape(best),
    'predicted_speed_up': predicted['predicted_speed_up'],
    'speed_up': predicted['speed_up'],
    'speed_up_error': predicted['speed_up_error'],
    'best_speed_up': best['speed_up'],
    'best_speed_up_error': best['speed_up_error'],
    'worth': worth.value,
    'worth_error': worth.error,
  }


def figures(rows):
  """Draws predicted and measured values by draft length."""
  rows = [row for row in rows if row['part'] != _CHOICES]
  return {
    name: plots.lines(
      [
        row
        | {
          'value': row[field],
          'kind': kind,
          'error': row.get(f'{field}_error'),
        }
        for row in rows
        for kind, field in (('measured', name), ('predicted', predicted))
      ],
      'length',
      'value',
      'kind',
      panel=('drafts',),
      error='error',
      xlabel='draft length',
      ylabel=label,
    )
    for name, predicted, label in (
      ('block_efficiency', 'predicted_efficiency', 'tokens per target call'),
      ('speed_up', 'predicted_speed_up', 'speed over plain decoding'),
    )
  }
