"""A dial: the method of the lowest cost that is good enough.

It is picked by its quality on prompts of its own, and then measured on others:
who is picked for luck is not lucky twice.
"""

import dataclasses
import os

import numpy as np

from experiments.cascades import frontier
from experiments.cascades import texts
from experiments.common import compare
from experiments.common import methods as methods_lib
from experiments.common import paper
from experiments.common import plots
from experiments.common import results
from specjax import checks

COSTS = ('latency', 'rejection_rate', 'target_calls')
# Labels that must be there: what quality is measured by, and what is left if
# nothing is good enough.
TARGET, LOSSLESS = frontier.TARGET, frontier.LOSSLESS
MAY_CHANGE = (*frontier.MAY_CHANGE, 'floor', 'margin', 'cost', 'dev_prompts')


def prepare(config):
  """Returns the methods and prompts of a config; the metric must be known."""
  prepared = compare.plan(config)
  texts.rater(config, prepared.family)
  _check(config, prepared)
  return prepared


def run(config, workdir):
  """Returns rows of all methods on dev prompts, and of three on test prompts.

  These are the target, the cheapest lossless method and the one that was
  picked, which `choice.json` holds; see `decoder`.
  """
  made = prepare(config)
  rate = texts.rater(config, made.family)
  dev_set, test_set = split(config, made.prompt_sets[0])

  def measure(methods, prompts):
    plan = made._replace(methods=methods, prompt_sets=[prompts])
    decoded = texts.decode(config, workdir, plan)
    return [{'part': prompts.label} | rate(each) for each in decoded]

  dev = measure(made.methods, dev_set)
  target = _of(dev, TARGET)[0]
  floor = config.floor * target['quality']
  for row in dev:
    good = row['quality'] - config.margin * row['quality_error'] >= floor
    # Without a draft, nothing is rejected.
    eligible = good and row[config.cost] is not None
    row |= {'eligible': eligible, 'floor': floor, 'cost': config.cost}
  chosen = choose(dev, config.cost)
  shown = target, _cheapest(_of(dev, LOSSLESS), config.cost), chosen
  kept = [method for method, row in zip(made.methods, dev) if row in shown]
  test = measure(kept, test_set)
  method = made.methods[dev.index(chosen)]
  tested = test[kept.index(method)]
  chosen['chosen'] = tested['chosen'] = True
  if not chosen['eligible']:
    print(f'Nothing has {config.metric} {floor:.2f} on dev prompts.', end=' ')
  print(
    f'Chose {plots.named(chosen, ["method", *method.columns])}: '
    f'{config.metric} '
    f'{chosen["quality"]:.2f} on dev and {tested["quality"]:.2f} on test '
    'prompts.'
  )
  on_dev, on_test = paper.unpaired([chosen, tested])
  _save(config, workdir, method, dev=on_dev, test=on_test)
  return dev + test


def decoder(family, choice):
  """Builds the decoder of what was picked, from what `choice.json` holds."""
  most = choice['max_length']
  return methods_lib.decoder(family, choice['method'], max_length=most)


def split(config, prompts):
  """Returns dev and test prompts, which are all others."""
  num, most = config.dev_prompts, len(prompts.jobs)
  checks.check_range('dev_prompts', num, 2, most - 2)  # Errors need two.
  # By lot, as prompts may be sorted.
  order = np.random.default_rng(config.seed).permutation(most)
  of = lambda label, places: prompts._replace(
    label=label,
    jobs=[prompts.jobs[i] for i in places],
    settings=prompts.settings | {'part': label, 'dev_prompts': num},
  )
  return of('dev', order[:num]), of('test', order[num:])


def choose(rows, cost):
  """Returns the cheapest eligible row; if there is none, a lossless one."""
  eligible = [row for row in rows if row['eligible']]
  return _cheapest(eligible or _of(rows, LOSSLESS), cost)


def figures(rows):
  """Draws the dev points, and the quality that was asked for."""
  dev = [row for row in rows if row['part'] == 'dev']
  chosen = next(row for row in dev if row.get('chosen'))
  figure = frontier.plot(
    [*dev, chosen | {'method': 'the choice'}],
    chosen['cost'],
    'quality',
    points=lambda row: row['method'] == 'the choice',
  )
  for axes in figure.axes:
    axes.axhline(chosen['floor'], color='0.2', linestyle='--')
  figure.suptitle('dashed: the floor')
  return {'dev': figure}


def _check(config, made):
  checks.check_range('floor', config.floor, 0)
  checks.check_range('margin', config.margin, 0)
  costs = COSTS if config.repeats else COSTS[1:]
  if config.cost not in costs:
    raise ValueError(
      f'cost must be one of {", ".join(costs)} with repeats={config.repeats}, '
      f'got {config.cost!r}.'
    )
  if len(made.prompt_sets) > 1:
    raise ValueError(f'prompts must be one set, got {len(made.prompt_sets)}.')
  compare.check_labels(made, TARGET, LOSSLESS)
  for method in made.methods:
    if len(method.arms) > 1:
      raise ValueError(f'{method.place} must be an arm, got a bandit.')


def _cheapest(rows, cost):
  """Of equal ones, the best."""
  return min(rows, key=lambda row: (row[cost], -row['quality']))


def _of(rows, label):
  return [row for row in rows if row['method'] == label]


def _save(config, workdir, method, **rows):
  """Writes what is needed to build it again, and what to expect of it."""
  arm, sampling = str(method.arms[0]), dataclasses.asdict(method.sampling)
  names = 'family', 'max_length', 'max_new_tokens'
  method = {
    'method': {'arm': arm, 'target': method.target, 'sampling': sampling}
  }
  choice = {name: config[name] for name in names} | method | rows
  results.save_json(os.path.join(workdir, 'choice.json'), choice)
