"""Selects the cheapest method that keeps a share of the target's quality.

The method is selected on dev prompts and then measured on test prompts, so that
a lucky selection does not bias the result.
"""

import dataclasses
import os
from typing import Any

import ml_collections
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
# Labels of required methods: the reference for quality, and the fallback if no
# method is good enough.
TARGET, LOSSLESS = frontier.TARGET, frontier.LOSSLESS
MAY_CHANGE = (*frontier.MAY_CHANGE, 'floor', 'margin', 'cost', 'dev_prompts')


def prepare(config):
  """Returns the methods and prompts of a config; the metric must be known."""
  setup = compare.prepare(config)
  texts.rater(config, setup)
  _check(config, setup)
  return setup


def run(config, workdir):
  """Returns rows for all methods on dev prompts, and for three on test prompts.

  These three are the target, the cheapest lossless method and the selected
  method, which is written to `choice.json`; see `decoder`.
  """
  setup = prepare(config)
  rate = texts.rater(config, setup)
  dev_set, test_set = split(config, setup.prompt_sets[0])

  def measure(methods, prompts):
    decoded = texts.decode(
      config,
      workdir,
      setup._replace(methods=methods, prompt_sets=[prompts]),
    )
    return [{'part': prompts.label} | rate(result) for result in decoded]

  dev = measure(setup.methods, dev_set)
  target = _with_label(dev, TARGET)[0]
  floor = config.floor * target['quality']
  for row in dev:
    good = row['quality'] - config.margin * row['quality_error'] >= floor
    # Plain decoding rejects nothing.
    eligible = good and row[config.cost] is not None
    row |= {'eligible': eligible, 'floor': floor, 'cost': config.cost}
  selected = select(dev, config.cost)
  cheapest_lossless = _cheapest(_with_label(dev, LOSSLESS), config.cost)
  test_methods = [
    method
    for method, row in zip(setup.methods, dev)
    if row in (target, cheapest_lossless, selected)
  ]
  test = measure(test_methods, test_set)
  method = setup.methods[dev.index(selected)]
  tested = test[test_methods.index(method)]
  selected['selected'] = tested['selected'] = True
  if not selected['eligible']:
    print(
      f'No method reaches {config.metric} {floor:.2f} on dev prompts.', end=' '
    )
  print(
    f'Selected {plots.named(selected, ["method", *method.columns])}: '
    f'{config.metric} '
    f'{selected["quality"]:.2f} on dev and {tested["quality"]:.2f} on test '
    'prompts.'
  )
  on_dev, on_test = paper.unpaired([selected, tested])
  _save(config, workdir, method, dev=on_dev, test=on_test)
  return dev + test


def decoder(family, choice):
  """Builds the decoder of the selected method, from `choice.json`."""
  config = ml_collections.ConfigDict({'sampling': {}})
  method = methods_lib.parse(
    config, choice['method'], list(family.drafters), 'method'
  )
  return methods_lib.build(method, family, choice['max_length']).decoder


def split(config, prompts):
  """Returns dev prompts, and all others as test prompts."""
  num, most = config.dev_prompts, len(prompts.jobs)
  checks.check_range('dev_prompts', num, 2, most - 2)  # Errors need two.
  # Permuted, as prompts may be sorted.
  order = np.random.default_rng(config.seed).permutation(most)
  subset = lambda label, indices: prompts._replace(
    label=label,
    jobs=[prompts.jobs[i] for i in indices],
    settings=prompts.settings | {'part': label, 'dev_prompts': num},
  )
  return subset('dev', order[:num]), subset('test', order[num:])


def select(rows, cost):
  """Returns the cheapest eligible row, or the cheapest lossless row."""
  eligible = [row for row in rows if row['eligible']]
  return _cheapest(eligible or _with_label(rows, LOSSLESS), cost)


def figures(rows):
  """Draws the dev prompts' rows, and the required quality."""
  dev = [row for row in rows if row['part'] == 'dev']
  selected = next(row for row in dev if row.get('selected'))
  figure = frontier.plot(
    [*dev, selected | {'method': 'selected'}],
    selected['cost'],
    'quality',
    points=lambda row: row['method'] == 'selected',
  )
  for axes in figure.axes:
    axes.axhline(selected['floor'], color='0.2', linestyle='--')
  figure.suptitle('dashed: the floor')
  return {'dev': figure}


def _check(config: Any, setup: compare.Setup) -> None:
  checks.check_range('floor', config.floor, 0)
  checks.check_range('margin', config.margin, 0)
  costs = COSTS if config.repeats else COSTS[1:]
  if config.cost not in costs:
    raise ValueError(
      f'cost must be one of {", ".join(costs)} with repeats={config.repeats}, '
      f'got {config.cost!r}.'
    )
  if len(setup.prompt_sets) > 1:
    raise ValueError(f'prompts must be one set, got {len(setup.prompt_sets)}.')
  compare.check_labels(setup, TARGET, LOSSLESS)
  for method in setup.methods:
    if len(method.arms) > 1:
      raise ValueError(f'{method.location} must be an arm, got a bandit.')


def _cheapest(rows: list[dict[str, Any]], cost: str) -> dict[str, Any]:
  """Returns the row with the lowest cost; among ties, the best quality."""
  return min(rows, key=lambda row: (row[cost], -row['quality']))


def _with_label(rows: list[dict[str, Any]], label: str) -> list[dict[str, Any]]:
  return [row for row in rows if row['method'] == label]


def _save(
  config: Any,
  workdir: str | os.PathLike[str],
  method: methods_lib.Method,
  **rows: dict[str, Any],
) -> None:
  """Writes the method, so that it can be rebuilt, and its measured rows."""
  arm, sampling = str(method.arms[0]), dataclasses.asdict(method.sampling)
  names = 'family', 'max_length', 'max_new_tokens'
  entry = {'arm': arm, 'target': method.target, 'sampling': sampling}
  choice = {name: config[name] for name in names} | {'method': entry} | rows
  results.save_json(os.path.join(workdir, 'choice.json'), choice)
