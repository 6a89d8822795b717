"""Which drafts pay, as theory predicts of one of them, and as clocks find it.

Tokens a round follow from the chance that a draft is kept, and what a round
takes is measured; so tokens a second of all drafts are predicted from the
acceptance of one length (Leviathan et al. 2023, Theorem 3.8).
"""

from experiments.common import arms as arms_lib
from experiments.common import compare
from experiments.common import costs as costs_lib
from experiments.common import paper
from experiments.common import plots
from specjax import checks
from specjax import theory

MAY_CHANGE = ('from_length', 'paper')
_CHOICES = 'choices'


def prepare(config):
  """Returns the methods and prompts; no two methods may have one shape."""
  checks.check_range('repeats', config.repeats, 1)
  prepared = compare.plan(config)
  shapes = [_shape(method) for method in prepared.methods]
  for i, shape in enumerate(shapes):
    if shape in shapes[:i]:
      raise ValueError(
        f'{prepared.methods[i].place} must differ in drafts or length from the '
        f'other methods, got {prepared.methods[i].label!r}.'
      )
  for num in dict(shapes):
    if (num, config.from_length) not in shapes:
      raise ValueError(
        f'from_length must be a length of {num} drafts that methods have, got '
        f'{config.from_length}.'
      )
  return prepared


def run(config, workdir):
  """Returns a row for each draft, and what the predicted choice is worth."""
  made = prepare(config)
  shapes = [_shape(method) for method in made.methods]
  decoded = compare.decode(config, workdir, made)
  costs = _costs(config, workdir, made)
  rows = []
  for prompts in made.prompt_sets:
    own = [each for each in decoded if each.prompts is prompts]
    measured = dict(zip(shapes, compare.rows(own)))
    table = [
      _row(shape, row, measured[shape[0], config.from_length], costs)
      for shape, row in measured.items()
    ]
    rows += [*table, _choice(table, list(measured.values()))]
  return rows


def _shape(method):
  """How many drafts of which length a method drafts, as its columns say."""
  missing = {'drafts', 'length'} - set(method.columns)
  if missing or len(method.arms) > 1:
    raise ValueError(
      f'{method.place} must be an arm whose columns are drafts and length, got '
      f'{method.label!r} with {method.columns}.'
    )
  return method.columns['drafts'], method.columns['length']


def _costs(config, workdir, made):
  """What a round of each shape takes, over one of plain decoding."""
  arms = tuple(arm for method in made.methods for arm in method.arms)
  plain = arms_lib.parse(compare.REFERENCE, (), compare.REFERENCE)
  method = made.methods[0]._replace(arms=(plain, *arms))
  texts = [job.turns[0] for job in made.prompt_sets[0].jobs]
  first, *others = costs_lib.table(config, workdir, made.family, method, texts)
  return {
    _shape(each): row['round_ms'] / first['round_ms']
    for each, row in zip(made.methods, others)
  }


def _row(shape, row, known, costs):
  """What is predicted of a shape by the acceptance of another length."""
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


def _choice(rows, measured):
  """The best shape by prediction and by clocks, and what the first is worth."""
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
  """Draws predicted and measured numbers by the length, a panel for each."""
  rows = [row for row in rows if row['part'] != _CHOICES]
  return {
    name: plots.lines(
      [
        row
        | {'value': row[field], 'of': of, 'error': row.get(f'{field}_error')}
        for row in rows
        for of, field in (('measured', name), ('predicted', predicted))
      ],
      'length',
      'value',
      'of',
      panel=('drafts',),
      error='error',
      xlabel='length of a draft',
      ylabel=label,
    )
    for name, predicted, label in (
      ('block_efficiency', 'predicted_efficiency', 'tokens a round'),
      ('speed_up', 'predicted_speed_up', 'speed over plain decoding'),
    )
  }
