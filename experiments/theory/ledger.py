"""What over-acceptance costs at each token of decoded texts, exactly.

Yin et al. (2024), Section 4. Bias and rejection are closed forms of draft and
target behind each prefix: Decoding-OPT and Decoding-UNO differ here by numbers
that win rates of responses cannot show.
"""

import functools

import numpy as np

from experiments.common import compare
from experiments.common import plots
from experiments.theory import diagnose
from experiments.theory import pareto
from specjax import checks
from specjax import metrics
from specjax import theory
from specjax.theory import bias

MAY_CHANGE = compare.MAY_CHANGE


def run(config, workdir):
  """Returns a row for each way, set of prompts, epsilon and rule."""
  if not config.epsilons:
    raise ValueError('epsilons must hold at least one number, got none.')
  checks.check_range('epsilons', config.epsilons, 0)
  made = compare.plan(config)
  models = [diagnose.draft_model(made.family, way) for way in made.ways]
  rows = []
  for way, model in zip(made.ways, models):
    observe = functools.partial(_observe, config.epsilons, model)
    own = made._replace(ways=[way])
    for decoded in compare.decode(config, workdir, own, observe=observe):
      rows += _rows(config.epsilons, decoded)
  return rows


def _observe(epsilons, model, batch):
  """The ledger of each row, in sums over its tokens."""
  plan = batch.player.decoder.round_fn
  params = batch.player.decoder.params
  found = theory.ledger(
    plan.target,
    model.functions,
    (params.target, model.params),
    diagnose.starts(batch),
    batch.state.lengths,
    batch.state.tokens,
    epsilons,
    plan.sampling,
  )
  return [
    {'rejection': row.tolist(), 'bias': biases.tolist()}
    for row, biases in zip(found.rejection, found.bias)
  ]


def _rows(epsilons, decoded):
  """Means over tokens; errors are over independent prompts."""
  way, prompts, records = decoded
  tokens, rejection, biases = (
    np.array([record[name] for record in records])
    for name in ('emitted', 'rejection', 'bias')
  )
  for i, epsilon in enumerate(epsilons):
    for rule, replacement in pareto.RULES.items():
      own = biases[:, i, bias.REPLACEMENTS.index(replacement)]
      best = biases[:, i, bias.REPLACEMENTS.index('residual')]
      row = {
        'prompts': prompts.label,
        'way': way.label,
        'rule': rule,
        'epsilon': epsilon,
        'tokens': int(tokens.sum()),
      }
      for name, sums in (
        ('rejection', rejection[:, i]),
        ('bias', own),
        ('over_best', own - best),
      ):
        row[name], row[f'{name}_error'] = metrics.ratio(sums, tokens)
      yield row


def figures(rows):
  """Draws the bias of each rule, and what it is over the least possible."""
  options = {'panel': 'way', 'xlabel': 'epsilon'}
  made = {
    'bias': plots.lines(
      rows,
      'epsilon',
      'bias',
      'rule',
      error='bias_error',
      ylabel='bias (TV) of a token',
      **options,
    ),
    'over_best': plots.lines(
      [row for row in rows if row['rule'] != 'OPT'],
      'epsilon',
      'over_best',
      'rule',
      error='over_best_error',
      ylabel='bias over that of OPT',
      **options,
    ),
  }
  for figure in made.values():
    for axes in figure.axes:
      axes.set_xscale('log')
  for axes in made['over_best'].axes:
    axes.set_yscale('symlog', linthresh=1e-4)
    axes.set_ylim(bottom=0)
  return made
