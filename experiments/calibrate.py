"""A dial: the rule and alpha of the lowest cost that are good enough.

The point is picked by its quality on prompts of its own, and then measured on
others: who is picked for luck is not lucky twice.
"""

import json
import math
import os
from typing import Any

import ml_collections

from experiments import arms as arms_lib
from experiments import cascades
from experiments import methods
from experiments import plots
from experiments import results
from specjax import checks
from specjax import decoding
from specjax import families
from specjax import registry

COSTS = ('latency', 'rejection_rate', 'target_calls')
# Fields of the config that change no point.
_OWN = ('floor', 'margin', 'cost')
MAY_CHANGE = (*_OWN, 'methods', 'draft_lengths', 'test_prompts')
# What identifies a point.
_POINT = ('label', 'alpha', 'draft_length')


def run(config, workdir):
  """Picks a point on dev prompts, and measures it on test prompts.

  Writes all points to `results.json`, the one that was picked to `choice.json`
  (see `decoder`), and a plot of those on dev prompts.
  """
  entries = _entries(config)
  _check(config, entries)
  family = families.load(config.family)
  dev_jobs, test_jobs = split(config, family.tokenizer)
  setups = {
    length: cascades.setup(config, family, config.temperature, length)
    for length in config.draft_lengths
  }
  lines = [
    cascades.Line(setup, label, entry)
    for setup in setups.values()
    for label, entry in entries.items()
  ]
  without = (*_OWN, 'test_prompts')  # Dev prompts come first.
  dev = list(cascades.points(config, workdir, lines, dev_jobs, without))
  level = config.floor * _of(dev, 'target')[0]['quality']
  dev = [
    {'part': 'dev', 'eligible': _eligible(row, config, level)} | row
    for row in dev
  ]
  chosen = choose(dev, config.cost)
  lossless = _cheapest(_of(dev, 'lossless'), config.cost)
  compared = {
    _key(row): row for row in (_of(dev, 'target')[0], lossless, chosen)
  }
  lines = [
    cascades.Line(
      setups[row['draft_length']],
      row['label'],
      entries[row['label']] | {'alphas': (row['alpha'],)},
    )
    for row in compared.values()
  ]
  points = cascades.points(config, workdir, lines, test_jobs, _OWN)
  test = {_key(row): {'part': 'test'} | row for row in points}
  results.write(workdir, dev + list(test.values()))
  entry = entries[chosen['label']]
  choice = _choice(config, entry, chosen, test[_key(chosen)])
  path = os.path.join(workdir, 'choice.json')
  with open(path, 'w', encoding='utf-8') as file:
    json.dump(choice, file, indent=1)
  path = os.path.join(workdir, 'dev.png')
  plots.plot_frontier(
    dev, config.cost, config.metric, path, floor=level, choice=chosen
  )
  best = max(dev, key=lambda row: _sure(row, config))
  print(_sentence(config, level, best, chosen, test[_key(chosen)]))


def decoder(
  family: families.Family, choice: dict[str, Any]
) -> decoding.Decoder:
  """Builds the decoder of what was picked.

  Args:
    family: for which it was picked.
    choice: what `choice.json` holds.
  """
  setup = cascades.setup(
    ml_collections.ConfigDict(choice),
    family,
    choice['temperature'],
    choice['draft_length'],
  )
  arm = methods.arm(
    setup, choice['method'], choice['alpha'], **choice['options']
  )
  return arms_lib.decoder(
    family, [arm], 'fixed', setup.sampling, max_length=setup.max_length
  )


def split(
  config: Any, tokenizer
) -> tuple[list[cascades.Job], list[cascades.Job]]:
  """Returns dev and test jobs, shuffled; none is in both.

  Raises:
    ValueError: there are not enough.
  """
  num = config.dev_prompts + config.test_prompts
  jobs = cascades.read_jobs(config, tokenizer, num)
  if len(jobs) < num:
    raise ValueError(
      f'dev_prompts + test_prompts must be <= {len(jobs)}, as many prompts of '
      f'{config.domain!r} fit, got {config.dev_prompts} + '
      f'{config.test_prompts}.'
    )
  return jobs[: config.dev_prompts], jobs[config.dev_prompts :]


def choose(rows: list[dict[str, Any]], cost: str) -> dict[str, Any]:
  """Returns the eligible point of the lowest cost.

  Of equal ones it is the best, and if none is eligible, a lossless one.

  Args:
    rows: with `eligible`, some of them `lossless`.
    cost: one of `COSTS`.
  """
  eligible = [row for row in rows if row['eligible']]
  return _cheapest(eligible or _of(rows, 'lossless'), cost)


def _cheapest(rows, cost):
  return min(rows, key=lambda row: (row[cost], -row['quality']))


def _of(rows, label):
  return [row for row in rows if row['label'] == label]


def _key(row):
  return tuple(row[name] for name in _POINT)


def _sure(row, config):
  """A quality that is reached but for bad luck."""
  return row['quality'] - config.margin * row['quality_error']


def _eligible(row, config, level):
  """Without a draft there is no rate of rejections, and nothing to compare."""
  return _sure(row, config) >= level and row[config.cost] is not None


def _entries(config):
  """The methods among which to choose, and two that are always there."""
  always = ('target', 'lossless')
  entries = {name: {'method': name, 'alphas': (0.0,)} for name in always}
  entries |= cascades.entries(config)
  for name in always:
    if entries[name]['method'] != name:
      raise ValueError(
        f'method of methods.{name} must be {name!r}, got '
        f'{entries[name]["method"]!r}.'
      )
  for entry in entries.values():  # Others have no decoder of one round.
    registry.lookup(methods.ARMS, 'method to choose', entry['method'])
  return entries


def _check(config, entries):
  if not 0 < config.floor < math.inf:
    raise ValueError(f'floor must be > 0 and finite, got {config.floor}.')
  if not 0 <= config.margin < math.inf:
    raise ValueError(f'margin must be >= 0 and finite, got {config.margin}.')
  if config.cost not in COSTS:
    raise ValueError(f'cost must be one of {COSTS}, got {config.cost!r}.')
  for name in ('dev_prompts', 'test_prompts'):  # Errors need two.
    checks.check_range(name, config[name], 2)
  if not config.draft_lengths:
    raise ValueError('draft_lengths must hold at least one length, got none.')


def _choice(config, entry, dev, test):
  """What is needed to build it again, and what to expect of it."""
  options = {k: v for k, v in entry.items() if k not in ('method', 'alphas')}
  shared = 'family', 'draft', 'temperature', 'max_new_tokens', 'max_length'
  asked = 'seed', 'domain', 'metric', 'floor', 'margin', 'cost'
  measured = {
    f'{row["part"]}_{name}': row[name]
    for row in (dev, test)
    for name in ('quality', 'quality_error', 'latency', 'latency_error')
  }
  return {
    'method': entry['method'],
    'alpha': dev['alpha'],
    'options': options,
    'draft_length': dev['draft_length'],
    **{name: config[name] for name in (*shared, *asked)},
    'eligible': dev['eligible'],
    **measured,
  }


def _sentence(config, level, best, dev, test):
  """What was chosen, and how well it did."""
  said = ''
  if not dev['eligible']:
    said = (
      f'Nothing reaches {config.metric} {level:.2f} on dev (floor='
      f'{config.floor}, margin={config.margin}), the best is {_named(best)} '
      f'with {best["quality"]:.2f} ± {best["quality_error"]:.2f}: '
    )
  measured = ' and '.join(
    f'{row["quality"]:.2f} ± {row["quality_error"]:.2f} at '
    f"{row['latency']:.2f} of the target's latency on {row['part']}"
    for row in (dev, test)
  )
  return f'{said}Chose {_named(dev)}, of {config.metric} {measured}.'


def _named(row):
  """Label, alpha and length of a point."""
  return f'{row["label"]} {row["alpha"]:g}, draft length {row["draft_length"]}'
