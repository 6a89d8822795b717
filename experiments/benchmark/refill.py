"""Compares continuous batching with padded batches, for each method.

Both decode the same prompts in the same order, with answers of different
lengths. A padded batch begins when the last row of the one before is done.
"""

import functools
from typing import Any

import jax
import numpy as np

from experiments.common import compare
from experiments.common import configs
from experiments.common import costs
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from experiments.common import plots
from specjax import checks
from specjax import decoding


def prepare(config):
  """Returns the methods, which must include those of `padded`, and prompts."""
  configs.check_counts(config, ('repeats',), 2)
  checks.check_range('shortest', config.shortest, 1, config.max_new_tokens)
  setup = compare.prepare(config)
  compare.check_labels(setup, *config.padded)
  return setup


def run(config, workdir):
  """Returns a row per method; the first method is the baseline."""
  family, methods, prompt_sets = prepare(config)
  jobs = prompt_sets[0].jobs
  prompts = [
    job.turns[0] for job in sorted(jobs, key=lambda job: job.number)
  ]  # In their original order, not by length.
  rng = np.random.default_rng(config.seed)
  new_tokens = rng.integers(
    config.shortest, config.max_new_tokens + 1, size=len(prompts)
  )
  names = 'family', 'batch_size', 'shortest', 'max_new_tokens', 'max_length'
  padded = [method.label in config.padded for method in methods]
  settings = {
    'methods': [method.settings for method in methods],
    'padded': padded,
    'prompts': [len(prompt) for prompt in prompts],
    **{name: config[name] for name in (*names, 'repeats', 'seed')},
  }
  unit = measure.unit(settings)

  def compute(unit):
    size, max_new_tokens = config.batch_size, new_tokens.tolist()
    build = functools.partial(
      methods_lib.build, family=family, max_length=config.max_length
    )
    # Costs depend on the mean length of an answer.
    answers = _refilled(
      build(methods[0]).decoder, prompts, max_new_tokens, size
    )
    length = float(np.mean([len(result.tokens) for result in answers]))
    table = costs.cost_function(config, workdir, family, prompts, length)
    decoders = [build(method, costs=table).decoder for method in methods]
    rows = _compare(
      decoders, padded, prompts, max_new_tokens, size, config.repeats
    )
    return {'rows': rows}

  (outcome,) = log.resume(workdir, [unit], compute, 'comparison')
  jax.clear_caches()  # Many programs exceed Linux's limit of memory maps.
  settings = {
    'temperature': config.sampling.temperature,
    'batch_size': config.batch_size,
  }
  return [
    {**settings, 'method': method.label, **row}
    for method, row in zip(methods, outcome['rows'])
  ]


def _compare(
  decoders: list[decoding.Decoder],
  padded: list[bool],
  prompts: list[list[int]],
  max_new_tokens: list[int],
  size: int,
  repeats: int,
) -> list[dict[str, Any]]:
  """Returns a row per decoder, from interleaved runs.

  Args:
    decoders: the decoders; the first one is the baseline.
    padded: for each decoder, whether it also decodes padded batches.
    prompts: the prompts.
    max_new_tokens: the limit of each answer.
    size: the batch size.
    repeats: how often each run is timed.
  """
  sides = [
    (decoder, side)
    for decoder, has_padded in zip(decoders, padded)
    for side in (_refilled, *([_padded] if has_padded else []))
  ]
  decode = lambda decoder, side: side(decoder, prompts, max_new_tokens, size)
  side_results = [decode(*side) for side in sides]
  runs = [lambda side=side: lambda: _discard(decode(*side)) for side in sides]
  seconds = measure.interleave(
    runs, repeats, f'batch size {size}', warm_up=False
  )
  by_side = {
    side: (results, sum(len(r.tokens) for r in results) / seconds[:, i])
    for i, (side, results) in enumerate(zip(sides, side_results))
  }
  plain_rates = by_side[decoders[0], _refilled][1]
  return [
    _row(
      by_side[decoder, _refilled],
      by_side.get((decoder, _padded)),
      plain_rates,
    )
    for decoder in decoders
  ]


def _row(
  refilled: tuple[list[decoding.Result], np.ndarray],
  padded: tuple[list[decoding.Result], np.ndarray] | None,
  plain_rates: np.ndarray,
) -> dict[str, Any]:
  """Returns a decoder's row from the results and `[repeats]` rates of sides."""
  results, rates = refilled
  pulls = np.sum([result.pulls for result in results], axis=0)
  num_tokens = sum(len(result.tokens) for result in results)
  row = {
    'tokens': num_tokens,
    'block_efficiency': float(num_tokens / pulls.sum()),
    'refilled': float(np.median(rates)),
    **_mean('over_plain', rates / plain_rates),
    'pulls': ' '.join(f'{share:.2f}' for share in pulls / pulls.sum()),
  }
  if padded is not None:
    padded_results, padded_rates = padded
    row |= {
      'padded': float(np.median(padded_rates)),
      **_mean('over_padded', rates / padded_rates),
      'differ': sum(
        a.tokens != b.tokens for a, b in zip(results, padded_results)
      ),
    }
  return row


def _mean(name: str, values: np.ndarray) -> dict[str, float]:
  error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
  return {name: float(values.mean()), f'{name}_error': float(error)}


def _discard(results: list[decoding.Result]) -> None:
  """Discards results, which are on the host, so that nothing is waited for."""
  del results


def _padded(
  decoder: decoding.Decoder,
  prompts: list[list[int]],
  max_new_tokens: list[int],
  size: int,
) -> list[decoding.Result]:
  """Decodes padded batches; empty requests fill the last one."""
  results: list[decoding.Result] = []
  for first in range(0, len(prompts), size):
    batch = prompts[first : first + size]
    limits = max_new_tokens[first : first + size]
    missing = size - len(batch)
    batch_results = decoder.decode(
      [*batch, *[batch[-1]] * missing],
      [*limits, *[0] * missing],
      request_ids=np.arange(first, first + size),
    )
    results += batch_results[: len(batch)]
  return results


def _refilled(
  decoder: decoding.Decoder,
  prompts: list[list[int]],
  max_new_tokens: list[int],
  size: int,
) -> list[decoding.Result]:
  """Decodes with continuous batching."""
  return list(decoder.decode_many(prompts, max_new_tokens, batch_size=size))


def figures(rows):
  """Draws the gains of continuous batching and of drafts, by batch size."""
  draw = functools.partial(
    plots.lines, rows, 'batch_size', by='method', panel=('temperature',)
  )
  return {
    'refill': draw(
      'over_padded',
      error='over_padded_error',
      ylabel='tokens per second over padded batches',
    ),
    'over_plain': draw(
      'over_plain',
      error='over_plain_error',
      ylabel='tokens per second over plain decoding',
    ),
  }
