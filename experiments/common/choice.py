"""Compares bandits with each of their arms, and with the best arm.

It serves experiments whose methods are single arms and bandits over them.
"""

from collections.abc import Sequence
import copy
from typing import Any

import numpy as np

from experiments.common import compare
from experiments.common import runner
from specjax import metrics

# The label of the method that decodes each prompt with its best arm.
ORACLE = 'oracle'


def prepare(config: Any) -> compare.Setup:
  """Reads a config; each of its `arms` becomes a method, before `methods`."""
  config = copy.deepcopy(config)
  with config.unlocked():
    config.methods = (*config.arms, *config.get('methods', ()))
  return compare.prepare(config)


def best_arms(
  arms: Sequence[compare.Decoded], cost: str = 'rounds'
) -> np.ndarray:
  """Returns `[P]`: for each prompt, the arm with the lowest cost per token.

  Args:
    arms: the records of each arm, all on the same prompts.
    cost: 'rounds', or 'seconds' of timed records.
  """
  costs, emitted = (
    np.array([[record[name] for record in arm.records] for arm in arms])
    for name in (cost, 'emitted')
  )
  return (costs / np.maximum(emitted, 1)).argmin(axis=0)


def oracle(
  arms: Sequence[compare.Decoded], cost: str = 'rounds'
) -> compare.Decoded:
  """Returns the records of decoding each prompt with its best arm."""
  return assign(arms, best_arms(arms, cost), ORACLE)


def assign(
  arms: Sequence[compare.Decoded], selected: Sequence[int], label: str
) -> compare.Decoded:
  """Returns the records of decoding each prompt with an assigned arm.

  Args:
    arms: the records of each arm, all on the same prompts.
    selected: `[P]` the index of each prompt's arm.
    label: the label of the resulting method.
  """
  depth = max(len(arm.records[0]['drafted']) for arm in arms)
  records: list[runner.Record] = []
  for i, arm in enumerate(selected):
    record = dict(arms[arm].records[i])
    for name in ('accepted', 'drafted', 'tested'):  # Padded to the deepest arm.
      record[name] = record[name] + [0] * (depth - len(record[name]))
    pulls = [0] * len(arms)
    pulls[arm] = record['rounds']
    records.append(record | {'pulls': pulls})
  first = arms[0]
  method = first.method._replace(label=label, columns={})
  return compare.Decoded(method, first.prompts, records)


def rows(
  decoded: Sequence[compare.Decoded],
  arms: Sequence[str],
  by_domain: bool,
  baseline: str = '',
) -> list[dict[str, Any]]:
  """Returns the rows of `compare.rows`, compared with the best single arm.

  `over_best` is block efficiency over that of `best_arm`, the best arm for the
  row's prompts, on the same prompts; `pulls` are the arms' shares of rounds.

  Args:
    decoded: one prompt set, decoded with every method.
    arms: the labels of the methods that are single arms.
    by_domain: whether there is a row per domain.
    baseline: the label of a method; if set, `over_baseline` is block efficiency
      over that of this method.
  """
  table = compare.rows(decoded, by_domain)
  by_method = {result.method.label: result.records for result in decoded}
  for row in table:
    selected = {
      method: compare.select_domain(records, row['domain'])
      for method, records in by_method.items()
    }
    sums = {
      method: [
        compare.by_prompt(records, name) for name in ('emitted', 'rounds')
      ]
      for method, records in selected.items()
    }
    best = max(arms, key=lambda method: metrics.ratio(*sums[method])[0])
    row['best_arm'] = best
    references = {'best': best} | ({'baseline': baseline} if baseline else {})
    for name, reference in references.items():
      ratio, error = metrics.ratio_of_ratios(
        sums[row['method']], sums[reference]
      )
      row |= {f'over_{name}': ratio, f'over_{name}_error': error}
    pulls = np.sum([r['pulls'] for r in selected[row['method']]], axis=0)
    if len(pulls) > 1:
      row['pulls'] = ' '.join(f'{share:.2f}' for share in pulls / pulls.sum())
  return table
