"""Draft lengths as arms, by measured throughput (BanditSpec, Figure 3).

Batches of prompts are drawn at random, and every method decodes the same ones,
in turns with plain decoding. What a bandit has learnt goes on from batch to
batch. Beside the clocks stands what the table of costs makes of the same
rounds, which the reward 'throughput' believes.
"""

import numpy as np

from experiments.common import choice
from experiments.common import compare
from experiments.common import costs as costs_lib
from experiments.common import plots
from specjax import checks
from specjax import metrics

MAY_CHANGE = (*compare.MAY_CHANGE, 'num_batches')
_BATCHES = 'batches'


def prepare(config):
  """Returns the methods, and prompts that are drawn at random."""
  checks.check_range('num_batches', config.num_batches, 2)
  checks.check_range('repeats', config.repeats, 1)
  prepared = choice.plan(config)
  prompt_sets = [
    _at_random(config, prompts) for prompts in prepared.prompt_sets
  ]
  return prepared._replace(prompt_sets=prompt_sets)


def run(config, workdir):
  """Returns a row for each set and method, and one for each of its batches."""
  made = prepare(config)
  decoded = compare.decode(config, workdir, made)
  prices = _prices(config, workdir, made)
  rows = []
  for prompts in made.prompt_sets:
    own = [each for each in decoded if each.prompts is prompts]
    rows += _rows(own, len(config.arms), config.batch_size, prices)
  return sorted(rows, key=lambda row: row['part'] == _BATCHES)


def figures(rows):
  """Draws speed-ups, batches by what the best length gains in hindsight."""
  batches = [row for row in rows if row['part'] == _BATCHES]
  figure = plots.lines(
    batches,
    'rank',
    'speed_up',
    'method',
    panel=('batch_size',),
    xlabel='batch, by the best length',
    ylabel='tokens per second over plain decoding',
  )
  figure.set_size_inches(1.8 + 2.6 * len(figure.axes), 3.4)
  return {'speed_up': figure}


def _at_random(config, prompts):
  """Batches drawn with replacement, the same ones however many there are."""
  seed = config.seed, config.batch_size
  chosen = [
    np.random.default_rng([*seed, i]).choice(len(prompts.jobs), seed[1])
    for i in range(config.num_batches)
  ]
  # Twice the same prompt is decoded with randomness of its own.
  jobs = [prompts.jobs[i]._replace(number=None) for i in np.concatenate(chosen)]
  settings = prompts.settings | {'at_random': True}
  return prompts._replace(jobs=jobs, settings=settings)


def _prices(config, workdir, made):
  """Seconds of a round of each arm, by its name: the table of costs."""
  texts = [job.turns[0] for job in made.prompt_sets[0].jobs]
  method = max(made.methods, key=lambda method: len(method.arms))
  found = costs_lib.of(config, workdir, made.family, texts)(method)
  return dict(zip(map(str, method.arms), found['costs'], strict=True))


def _rows(decoded, num_lengths, batch_size, prices):
  """Rows of one set; the first methods are the lengths alone."""
  speeds = np.array([_speed_ups(each, batch_size) for each in decoded])
  lengths = speeds[:num_lengths]
  best, hindsight = lengths[lengths.mean(1).argmax()], lengths.max(0)
  head = {'part': 'all batches', 'batch_size': batch_size}
  rows = [
    head
    | row
    | _gains(each, own, best, hindsight)
    | _priced(each, prices, batch_size)
    for row, own, each in zip(compare.rows(decoded), speeds, decoded)
  ]
  of_methods = {each.method.label: own for each, own in zip(decoded, speeds)}
  of_methods |= {'best length': hindsight, 'worst length': lengths.min(0)}
  head |= {'part': _BATCHES, 'prompts': decoded[0].prompts.label}
  rank = hindsight.argsort().argsort().tolist()
  return rows + [
    head | {'method': method, 'rank': place, 'speed_up': float(speed)}
    for method, own in of_methods.items()
    for place, speed in zip(rank, own)
  ]


def _gains(decoded, speeds, best, hindsight):
  """Speed-ups of batches over those of the best length, and the mean length."""
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


def _priced(decoded, prices, batch_size):
  """The speed-up, if each round took what the table says, and nothing else.

  A batch takes the rounds of its longest row; plain decoding has one a token.
  """
  plain = prices.get(compare.REFERENCE)
  if plain is None:
    return {}
  records = decoded.records
  costs = [prices[str(arm)] for arm in decoded.method.arms]
  seconds = np.array([each['pulls'] for each in records]) @ costs
  tokens, others = (
    np.array([each[name] for each in records], float)
    for name in ('emitted', 'reference_emitted')
  )
  longest = lambda each: each.reshape(-1, batch_size).max(1).sum()
  speed = tokens.sum() / longest(seconds)
  return {
    'priced_speed_up': float(speed * longest(others) * plain / others.sum())
  }


def _speed_ups(decoded, batch_size):
  """`[batches]` tokens per second over those of plain decoding."""
  names = 'emitted', 'seconds', 'reference_emitted', 'reference_seconds'
  each = np.array([[row[name] for name in names] for row in decoded.records])
  own, seconds, plain, plain_seconds = each.T.reshape(
    len(names), -1, batch_size
  ).sum(2)
  return own / seconds / (plain / plain_seconds)
