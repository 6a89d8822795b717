"""What choosing an arm is worth: beside every single one, and beside the best.

For experiments whose methods are arms alone and bandits over them.
"""

from collections.abc import Sequence
import copy
from typing import Any

import numpy as np

from experiments.common import compare
from experiments.common import runner
from specjax import metrics

# What tables call the method that leaves each prompt to its best arm.
ORACLE = 'oracle'


def plan(config: Any) -> compare.Plan:
  """Returns what a config asks for; each of its `arms` alone comes first."""
  config = copy.deepcopy(config)
  with config.unlocked():
    config.methods = (*config.arms, *config.get('methods', ()))
  return compare.plan(config)


def best_of_each(arms: Sequence[compare.Decoded]) -> np.ndarray:
  """Returns `[P]`: for each prompt, the arm of the most tokens a round."""
  rounds, emitted = (
    np.array([[record[name] for record in arm.records] for arm in arms])
    for name in ('rounds', 'emitted')
  )
  return (rounds / np.maximum(emitted, 1)).argmin(axis=0)


def oracle(arms: Sequence[compare.Decoded]) -> compare.Decoded:
  """Returns what leaving each prompt to its best arm would have."""
  return left_to(arms, best_of_each(arms), ORACLE)


def left_to(
  arms: Sequence[compare.Decoded], chosen: Sequence[int], label: str
) -> compare.Decoded:
  """Returns what a method would have that leaves each prompt to one arm.

  `arms` are each alone, on the same prompts; `chosen` is `[P]` the arm of each.
  """
  depth = max(len(arm.records[0]['drafted']) for arm in arms)
  records: list[runner.Record] = []
  for i, arm in enumerate(chosen):
    own = dict(arms[arm].records[i])
    for name in ('accepted', 'drafted'):  # Of each depth, of the deepest arm.
      own[name] = own[name] + [0] * (depth - len(own[name]))
    pulls = [0] * len(arms)
    pulls[arm] = own['rounds']
    records.append(own | {'pulls': pulls})
  first = arms[0]
  method = first.method._replace(label=label, columns={})
  return compare.Decoded(method, first.prompts, records)


def rows(
  decoded: Sequence[compare.Decoded],
  arms: Sequence[str],
  by_domain: bool,
  baseline: str = '',
) -> list[dict[str, Any]]:
  """Returns the rows of `compare.rows`, beside the best single arm.

  `over_best` is block efficiency over that of `best_arm`, the best arm of the
  row's prompts, on the same prompts; `pulls` are shares of rounds. `decoded` is
  one set of prompts with every method, of which `arms` are one arm alone. With
  a method as `baseline`, `over_baseline` is over that, also on the same
  prompts.
  """
  table = compare.rows(decoded, by_domain)
  of_method = {each.method.label: each.records for each in decoded}
  for row in table:
    own = {
      method: compare.of_domain(records, row['domain'])
      for method, records in of_method.items()
    }
    sums = {
      method: [compare.by_prompt(each, name) for name in ('emitted', 'rounds')]
      for method, each in own.items()
    }
    best = max(arms, key=lambda method: metrics.ratio(*sums[method])[0])
    row['best_arm'] = best
    others = {'best': best} | ({'baseline': baseline} if baseline else {})
    for name, other in others.items():
      ratio, error = metrics.ratio_of_ratios(sums[row['method']], sums[other])
      row |= {f'over_{name}': ratio, f'over_{name}_error': error}
    pulls = np.sum([r['pulls'] for r in own[row['method']]], axis=0)
    if len(pulls) > 1:
      row['pulls'] = ' '.join(f'{each / pulls.sum():.2f}' for each in pulls)
  return table
