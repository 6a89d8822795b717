"""Splits the time of a round into draft, target, verification and remainder."""

from collections.abc import Sequence
from typing import Any

from matplotlib import figure as figure_lib
import numpy as np

from experiments.common import compare
from experiments.common import costs
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import round_parts
from specjax import checks

MAY_CHANGE = compare.MAY_CHANGE

_PARTS = 'draft', 'target', 'verification', 'remainder'


def prepare(config):
  """Returns the methods, each with a single arm, and the prompts."""
  checks.check_range('rounds', config.rounds, 1)
  checks.check_range('cost_repeats', config.cost_repeats, 1)
  setup = compare.prepare(config)
  compare.check_labels(setup, compare.REFERENCE)
  compare.check_labels_differ(setup)
  for method in setup.methods:
    if len(method.arms) > 1:
      raise ValueError(
        f'{method.location} must have a single arm, since the parts of a round '
        f'are those of an arm, got {method.label!r}.'
      )
  return setup


def run(config, workdir):
  """Returns a row per method.

  `plain_rounds` is the time of a round in rounds of plain decoding, and
  `speed_up` is block efficiency over it.
  """
  setup = prepare(config)
  decoded = compare.decode(config, workdir, setup)
  rows = compare.rows(decoded)
  decoders = [
    methods_lib.build(method, setup.family, config.max_length).decoder
    for method in setup.methods
  ]
  prompts = [job.turns[0] for job in setup.prompt_sets[0].jobs]
  batch = costs.batch(prompts, config.batch_size)
  names = 'family', 'rounds', 'cost_repeats'
  unit = measure.unit(
    {
      'parts of rounds': [method.settings for method in setup.methods],
      'prompts': batch,
      **{name: config[name] for name in names},
    }
  )

  def compute(unit: log.Unit) -> dict[str, Any]:
    del unit
    parts = round_parts.measure_parts(
      decoders, batch, config.rounds, config.cost_repeats
    )
    return {'parts': parts}

  (outcome,) = log.resume(workdir, [unit], compute, 'rounds')
  all_parts = [round_parts.RoundParts(*parts) for parts in outcome['parts']]
  labels = [method.label for method in setup.methods]
  plain = all_parts[labels.index(compare.REFERENCE)]
  for row in rows:
    i = labels.index(row['method'])
    row |= _times(all_parts[i], plain, row['block_efficiency'])
    calls = 1 + round_parts.draft_cost(decoders[i], [1])
    row['speed_up_if_memory_bound'] = row['block_efficiency'] / calls
  return rows


def _times(
  parts: round_parts.RoundParts,
  plain: round_parts.RoundParts,
  block_efficiency: float,
) -> dict[str, float]:
  """Returns milliseconds of a round and its parts, and the speed-up."""
  seconds = {
    'round': parts.total,
    'draft': parts.draft,
    'target': parts.target,
    'verification': parts.verification,
    'remainder': parts.remainder,
  }
  plain_rounds = parts.total / plain.total
  return {
    **{f'{name}_ms': 1e3 * value for name, value in seconds.items()},
    'plain_rounds': plain_rounds,
    'speed_up': block_efficiency / plain_rounds,
  }


def explain(rows: Sequence[dict[str, Any]]) -> str:
  """Returns a sentence per method that drafts."""
  return '\n\n'.join(
    _sentence(row) for row in rows if row['method'] != compare.REFERENCE
  )


def _sentence(row: dict[str, Any]) -> str:
  shares = ', '.join(
    f'{name} {100 * row[f"{name}_ms"] / row["round_ms"]:.0f}%'
    for name in _PARTS
  )
  return (
    f'{row["method"]}: a round emits {row["block_efficiency"]:.2f} tokens and '
    f'takes {row["plain_rounds"]:.2f} times as long as one of plain decoding '
    f'({shares}), a speed-up of {row["speed_up"]:.2f}. On hardware bound by '
    f'memory, it is {row["speed_up_if_memory_bound"]:.2f}.'
  )


def figures(rows: Sequence[dict[str, Any]]) -> dict[str, figure_lib.Figure]:
  """Draws the parts of each method's round, one after another."""
  figure, (axes,) = plots.panels([''], 'milliseconds per round')
  figure.set_size_inches(6.4, 1.2 + 0.4 * len(rows))
  names = [row['method'] for row in rows]
  start = np.zeros(len(rows))
  for part in _PARTS:
    times = np.array([max(row[f'{part}_ms'], 0.0) for row in rows])
    axes.barh(names, times, left=start, label=part)
    start += times
  axes.invert_yaxis()
  plots.legend(figure, [axes])
  return {'parts': figure}
