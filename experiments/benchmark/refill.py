"""Rows that are refilled against padded batches, with each method.

The same prompts in the same order, whose answers may be of different lengths.
Of padded batches, the next one begins where the last row of this one is done.
"""

import functools

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


def prepare(config):
  """Returns the methods, which must include those of `padded`, and prompts."""
  configs.check_counts(config, ('repeats',), 2)
  checks.check_range('shortest', config.shortest, 1, config.max_new_tokens)
  prepared = compare.plan(config)
  compare.check_labels(prepared, *config.padded)
  return prepared


def run(config, workdir):
  """Returns a row for each method; the first one is the baseline."""
  family, methods, prompt_sets = prepare(config)
  jobs = prompt_sets[0].jobs
  prompts = [
    job.turns[0] for job in sorted(jobs, key=lambda job: job.number)
  ]  # As they came, and not by their lengths.
  rng = np.random.default_rng(config.seed)
  news = rng.integers(
    config.shortest, config.max_new_tokens + 1, size=len(prompts)
  )
  names = 'family', 'batch_size', 'shortest', 'max_new_tokens', 'max_length'
  padded = [method.label in config.padded for method in methods]
  unit = {
    'methods': [method.settings for method in methods],
    'padded': padded,
    'prompts': [len(prompt) for prompt in prompts],
    **{name: config[name] for name in (*names, 'repeats', 'seed')},
  }

  def compute(unit):
    size, room = config.batch_size, news.tolist()
    build = functools.partial(
      methods_lib.build, family=family, max_length=config.max_length
    )
    # How long answers are, as costs hang on it.
    answers = _refilled(build(methods[0]).decoder, prompts, room, size)
    answer = float(np.mean([len(result.tokens) for result in answers]))
    table = costs.of(config, workdir, family, prompts, answer)
    decoders = [build(method, costs=table).decoder for method in methods]
    rows = _compare(decoders, padded, prompts, room, size, config.repeats)
    return {'rows': rows}

  (outcome,) = log.resume(workdir, [unit], compute, 'comparison')
  jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  place = {
    'temperature': config.sampling.temperature,
    'batch_size': config.batch_size,
  }
  return [
    {**place, 'method': method.label, **row}
    for method, row in zip(methods, outcome['rows'])
  ]


def _compare(decoders, padded, prompts, news, size, repeats):
  """A row for each decoder; all take turns, some of them with both sides."""
  sides = [
    (decoder, side)
    for decoder, both in zip(decoders, padded)
    for side in (_refilled, *([_padded] if both else []))
  ]
  play = lambda decoder, side: side(decoder, prompts, news, size)
  results = [play(*each) for each in sides]
  runs = [lambda each=each: lambda: _nothing(play(*each)) for each in sides]
  seconds = measure.in_turns(runs, repeats, f'batch size {size}', warm_up=False)
  of_side = {
    each: (own, sum(len(result.tokens) for result in own) / seconds[:, i])
    for i, (each, own) in enumerate(zip(sides, results))
  }
  plain = of_side[decoders[0], _refilled][1]
  return [
    _row(of_side[each, _refilled], of_side.get((each, _padded)), plain)
    for each in decoders
  ]


def _row(refilled, padded, plain):
  """Of one decoder: results and rates `[repeats]` of each side."""
  own, rates = refilled
  pulls = sum(result.pulls for result in own)
  num_tokens = sum(len(result.tokens) for result in own)
  row = {
    'tokens': num_tokens,
    'block_efficiency': float(num_tokens / pulls.sum()),
    'refilled': float(np.median(rates)),
    **_mean('over_plain', rates / plain),
    'pulls': ' '.join(f'{share:.2f}' for share in pulls / pulls.sum()),
  }
  if padded is not None:
    others, padded_rates = padded
    row |= {
      'padded': float(np.median(padded_rates)),
      **_mean('over_padded', rates / padded_rates),
      'differ': sum(a.tokens != b.tokens for a, b in zip(own, others)),
    }
  return row


def _mean(name, values):
  error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else 0.0
  return {name: float(values.mean()), f'{name}_error': float(error)}


def _nothing(results):
  """What a clock waits for: results are there, on the host."""
  del results


def _padded(decoder, prompts, news, size):
  """Batch after batch; the last one is filled with what asks for nothing."""
  results = []
  for first in range(0, len(prompts), size):
    own, room = prompts[first : first + size], news[first : first + size]
    missing = size - len(own)
    ids = np.arange(first, first + size)
    batch = decoder.decode(
      [*own, *[own[-1]] * missing], [*room, *[0] * missing], request_ids=ids
    )
    results += batch[: len(own)]
  return results


def _refilled(decoder, prompts, news, size):
  return list(decoder.decode_many(prompts, news, batch_size=size))


def figures(rows):
  """Draws what refilling and drafts are worth, by batch size."""
  draw = functools.partial(
    plots.lines, rows, 'batch_size', by='method', panel=('temperature',)
  )
  return {
    'refill': draw(
      'over_padded',
      error='over_padded_error',
      ylabel='tokens a second, refilled over padded',
    ),
    'over_plain': draw(
      'over_plain',
      error='over_plain_error',
      ylabel='tokens a second over plain decoding',
    ),
  }
