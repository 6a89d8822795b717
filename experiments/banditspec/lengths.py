"""Selects draft lengths by measured throughput (BanditSpec, Figure 3).

Batches of prompts are drawn at random, and every method decodes the same
batches, interleaved with plain decoding. Bandits keep their state from batch to
batch. Measured times are compared with the times that the cost table predicts
for the same rounds, from which the reward `throughput` is computed.
"""

from typing import Any

import numpy as np

from experiments.common import choice
from experiments.common import compare
from experiments.common import costs as costs_lib
from experiments.common import plots
from experiments.common import prompts as prompts_lib
from experiments.common import workdirs
from specjax import checks
from specjax import metrics

MAY_CHANGE = (*compare.MAY_CHANGE, 'num_batches')
_BATCHES = 'batches'


def prepare(config):
  """Returns the methods, and batches of prompts drawn at random."""
  checks.check_range('num_batches', config.num_batches, 2)
  checks.check_range('repeats', config.repeats, 1)
  setup = choice.prepare(config)
  prompt_sets = [
    _random_batches(config, prompts) for prompts in setup.prompt_sets
  ]
  return setup._replace(prompt_sets=prompt_sets)


def run(config, workdir):
  """Returns a row per prompt set and method, and a row per batch of these."""
  setup = prepare(config)
  decoded = compare.decode(config, workdir, setup)
  costs = _round_costs(config, workdir, setup)
  rows = []
  for prompts in setup.prompt_sets:
    on_set = [result for result in decoded if result.prompts is prompts]
    rows += _rows(on_set, len(config.arms), config.batch_size, costs)
  return sorted(rows, key=lambda row: row['part'] == _BATCHES)


def figures(rows):
  """Draws speed-ups; batches are sorted by the best length in hindsight."""
  batches = [row for row in rows if row['part'] == _BATCHES]
  figure = plots.lines(
    batches,
    'rank',
    'speed_up',
    'method',
    panel=('batch_size',),
    xlabel='batch, sorted by the best length',
    ylabel='tokens per second over plain decoding',
  )
  figure.set_size_inches(1.8 + 2.6 * len(figure.axes), 3.4)
  return {'speed_up': figure}


def _random_batches(
  config: Any, prompts: prompts_lib.PromptSet
) -> prompts_lib.PromptSet:
  """Draws batches with replacement, independently of the number of batches."""
  seed = config.seed, config.batch_size
  indices = [
    np.random.default_rng([*seed, i]).choice(len(prompts.jobs), seed[1])
    for i in range(config.num_batches)
  ]
  # A prompt that is drawn twice is decoded with different randomness.
  jobs = [
    prompts.jobs[i]._replace(number=None) for i in np.concatenate(indices)
  ]
  settings = prompts.settings | {'at_random': True}
  return prompts._replace(jobs=jobs, settings=settings)


def _round_costs(
  config: Any, workdir: workdirs.Workdir, setup: compare.Setup
) -> dict[str, float]:
  """Returns seconds per round of each arm, by its name."""
  texts = [job.turns[0] for job in setup.prompt_sets[0].jobs]
  method = max(setup.methods, key=lambda method: len(method.arms))
  cost_function = costs_lib.cost_function(config, workdir, setup.family, texts)
  seconds = cost_function(method)['costs']
  return dict(zip(map(str, method.arms), seconds, strict=True))


def _rows(
  decoded: list[compare.Decoded],
  num_lengths: int,
  batch_size: int,
  costs: dict[str, float],
) -> list[dict[str, Any]]:
  """Returns the rows of a prompt set; the first methods are single lengths."""
  speeds = np.array([_speed_ups(result, batch_size) for result in decoded])
  lengths = speeds[:num_lengths]
  best, hindsight = lengths[lengths.mean(1).argmax()], lengths.max(0)
  head = {'part': 'all batches', 'batch_size': batch_size}
  rows = [
    head
    | row
    | _gains(result, method_speeds, best, hindsight)
    | _predicted(result, costs, batch_size)
    for row, method_speeds, result in zip(
      compare.rows(decoded), speeds, decoded
    )
  ]
  by_label = {
    result.method.label: method_speeds
    for result, method_speeds in zip(decoded, speeds)
  }
  by_label |= {'best length': hindsight, 'worst length': lengths.min(0)}
  head |= {'part': _BATCHES, 'prompts': decoded[0].prompts.label}
  rank = hindsight.argsort().argsort().tolist()
  return rows + [
    head | {'method': label, 'rank': batch_rank, 'speed_up': float(speed)}
    for label, method_speeds in by_label.items()
    for batch_rank, speed in zip(rank, method_speeds)
  ]


def _gains(
  decoded: compare.Decoded,
  speeds: np.ndarray,
  best: np.ndarray,
  hindsight: np.ndarray,
) -> dict[str, float]:
  """Returns speed-ups over those of the best length, and the mean length."""
  calls, rounds = (
    sum(record[name] for record in decoded.records)
    for name in ('draft_calls', 'rounds')
  )
  ratio, error = metrics.ratio(speeds, best)
  return {
    'over_best': ratio,
    'over_best_error': error,
    'over_hindsight': metrics.ratio(speeds, hindsight)[0],
    'mean_length': calls / rounds,
  }


def _predicted(
  decoded: compare.Decoded, costs: dict[str, float], batch_size: int
) -> dict[str, float]:
  """Returns the speed-up that the cost table predicts for the same rounds.

  A batch takes the rounds of its longest row; plain decoding takes one round
  per token.
  """
  plain = costs.get(compare.REFERENCE)
  if plain is None:
    return {}
  records = decoded.records
  round_seconds = [costs[str(arm)] for arm in decoded.method.arms]
  seconds = np.array([record['pulls'] for record in records]) @ round_seconds
  tokens, plain_tokens = (
    np.array([record[name] for record in records], float)
    for name in ('emitted', 'reference_emitted')
  )
  longest = lambda values: values.reshape(-1, batch_size).max(1).sum()
  speed = tokens.sum() / longest(seconds)
  plain_speed = plain_tokens.sum() / (longest(plain_tokens) * plain)
  return {'predicted_speed_up': float(speed / plain_speed)}


def _speed_ups(decoded: compare.Decoded, batch_size: int) -> np.ndarray:
  """Returns `[batches]` tokens per second over those of plain decoding."""
  names = 'emitted', 'seconds', 'reference_emitted', 'reference_seconds'
  table = np.array([[row[name] for name in names] for row in decoded.records])
  tokens, seconds, plain_tokens, plain_seconds = table.T.reshape(
    len(names), -1, batch_size
  ).sum(2)
  return tokens / seconds / (plain_tokens / plain_seconds)
