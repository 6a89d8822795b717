"""A dial: the way of the lowest cost that is good enough.

It is picked by its quality on prompts of its own, and then measured on others:
who is picked for luck is not lucky twice.
"""

from collections.abc import Sequence
import dataclasses
import math
import os
from typing import Any

import numpy as np

from experiments.cascades import frontier
from experiments.cascades import texts
from experiments.common import compare
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.common import results
from experiments.common import ways as ways_lib
from specjax import checks
from specjax import decoding
from specjax import families

COSTS = ('latency', 'rejection_rate', 'target_calls')
# Labels that must be there: what quality is measured by, and what is left if
# nothing is good enough.
TARGET, LOSSLESS = frontier.TARGET, 'lossless'
_OWN = ('floor', 'margin', 'cost', 'dev_prompts', 'test_prompts')
MAY_CHANGE = (*frontier.MAY_CHANGE, *_OWN)

Row = dict[str, Any]


def run(config, workdir):
  """Picks a way on dev prompts, and measures it on test prompts.

  Returns rows of all ways on dev prompts; then, on test prompts, of the target,
  of the cheapest lossless way and of the one that was picked. `choice.json`
  holds what was picked; see `decoder`.
  """
  score = texts.metric(config)
  made = compare.plan(config)
  _check(config, made)
  dev_set, test_set = split(config, made.sets[0])

  def points(ways, prompts):
    plan = made._replace(ways=ways, sets=[prompts])
    decoded = frontier.measure(config, workdir, plan)
    return [
      {'part': prompts.label} | frontier.point(each, made.family, score, config)
      for each in decoded
    ]

  dev = points(made.ways, dev_set)
  dev = [row | _rated(config, row, _of(dev, TARGET)[0]) for row in dev]
  chosen = dev.index(choose(dev, config.cost))
  lossless = dev.index(_cheapest(_of(dev, LOSSLESS), config.cost))
  kept = sorted({dev.index(_of(dev, TARGET)[0]), lossless, chosen})
  test = points([made.ways[i] for i in kept], test_set)
  pair = dev[chosen], test[kept.index(chosen)]
  for row in pair:
    row['chosen'] = True
  path = os.path.join(workdir, 'choice.json')
  results.save_json(path, _choice(config, made.ways[chosen], *pair))
  print(_sentence(config, dev, *pair))
  return dev + test


def decoder(
  family: families.Family, choice: dict[str, Any]
) -> decoding.Decoder:
  """Builds the decoder of what was picked.

  Args:
    family: for which it was picked.
    choice: what `choice.json` holds.
  """
  most = choice['max_length']
  return ways_lib.decoder(family, choice['way'], max_length=most)


def split(
  config: Any, prompts: prompts_lib.Set
) -> tuple[prompts_lib.Set, prompts_lib.Set]:
  """Returns dev and test prompts; none is in both.

  Raises:
    ValueError: there are not enough.
  """
  num, most = config.dev_prompts + config.test_prompts, len(prompts.jobs)
  if most < num:
    raise ValueError(
      f'dev_prompts + test_prompts must be <= {most}, as many prompts of '
      f'{prompts.label!r} fit, got {config.dev_prompts} + '
      f'{config.test_prompts}.'
    )
  # By lot, as prompts may be sorted. Dev prompts come first: they are the same
  # whatever is tested.
  order = np.random.default_rng(config.seed).permutation(most)
  of = lambda label, start, stop: prompts_lib.Set(
    label,
    [prompts.jobs[i] for i in order[start:stop]],
    prompts.settings | {'part': [start, stop]},
  )
  return of('dev', 0, config.dev_prompts), of('test', config.dev_prompts, num)


def choose(rows: Sequence[Row], cost: str) -> Row:
  """Returns the eligible row of the lowest cost.

  Of equal ones it is the best, and if none is eligible, a lossless one.

  Args:
    rows: with `eligible`, some of them `lossless`.
    cost: one of `COSTS`.
  """
  eligible = [row for row in rows if row['eligible']]
  return _cheapest(eligible or _of(rows, LOSSLESS), cost)


def figures(rows):
  """Draws the dev points, and the quality that was asked for."""
  dev = [row for row in rows if row['part'] == 'dev']
  (chosen,) = [row for row in dev if row.get('chosen')]
  figure = frontier.plot(dev, chosen['cost'], 'quality')
  for axes, (_, own) in zip(figure.axes, frontier.panels(dev)):
    axes.axhline(chosen['floor'], color='0.2', linestyle='--')
    if chosen in own:
      at = chosen[chosen['cost']], chosen['quality']
      axes.plot(*at, 'k*', markersize=12, zorder=3)
  figure.suptitle('dashed: the floor; star: the choice')
  return {'dev': figure}


def _check(config, made):
  if not 0 < config.floor < math.inf:
    raise ValueError(f'floor must be > 0 and finite, got {config.floor}.')
  if not 0 <= config.margin < math.inf:
    raise ValueError(f'margin must be >= 0 and finite, got {config.margin}.')
  if config.cost not in COSTS:
    raise ValueError(f'cost must be one of {COSTS}, got {config.cost!r}.')
  if config.cost == 'latency' and not config.repeats:
    raise ValueError('cost must be another than latency without repeats.')
  for name in ('dev_prompts', 'test_prompts'):  # Errors need two.
    checks.check_range(name, config[name], 2)
  if len(made.sets) > 1:
    raise ValueError(f'prompts must be one set, got {len(made.sets)}.')
  labels = [way.label for way in made.ways]
  for label in (TARGET, LOSSLESS):
    if label not in labels:
      raise ValueError(f'ways must have one that is labelled {label!r}.')
  for way in made.ways:
    if len(way.arms) > 1:
      raise ValueError(f'{way.place} must be an arm, got a bandit.')


def _cheapest(rows, cost):
  return min(rows, key=lambda row: (row[cost], -row['quality']))


def _of(rows, label):
  return [row for row in rows if row['way'] == label]


def _rated(config, row, target):
  """Whether it is good enough; without a draft, nothing is rejected."""
  floor = config.floor * target['quality']
  sure = row['quality'] - config.margin * row['quality_error']
  eligible = sure >= floor and row[config.cost] is not None
  return {'eligible': eligible, 'floor': floor, 'cost': config.cost}


def _choice(config, way, dev, test):
  """What is needed to build it again, and what to expect of it."""
  names = 'family', 'max_length', 'max_new_tokens', 'metric', *_OWN
  measured = {
    f'{row["part"]}_{name}': row.get(name)
    for row in (dev, test)
    for name in ('quality', 'quality_error', 'latency', 'latency_error')
  }
  (arm,) = way.arms
  return {
    'label': way.label,
    'way': {
      'arm': str(arm),
      'target': way.target,
      'sampling': dataclasses.asdict(way.sampling),
    },
    **way.columns,
    **{name: config[name] for name in names},
    'eligible': dev['eligible'],
    **measured,
  }


def _sentence(config, dev, chosen, test):
  """What was chosen, and how well it did."""
  said = ''
  if not chosen['eligible']:
    best = max(dev, key=lambda row: row['quality'])
    said = (
      f'Nothing reaches {config.metric} {chosen["floor"]:.2f} on dev prompts, '
      f'the best is {_named(best)} with {_quality(best)}: '
    )
  return (
    f'{said}Chose {_named(chosen)}, of {config.metric} {_quality(chosen)} on '
    f'dev and {_quality(test)} on test prompts.'
  )


def _quality(row):
  return f'{row["quality"]:.2f} ± {row["quality_error"]:.2f}'


def _named(row):
  names = [name for name in ('alpha', 'draft_length') if name in row]
  return f'{row["way"]} ({plots.named(row, names)})' if names else row['way']
