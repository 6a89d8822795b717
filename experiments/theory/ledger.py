"""What over-acceptance costs at each token of decoded texts, exactly.

Yin et al. (2024), Section 4. Bias and rejection are closed forms of draft and
target behind each prefix: Decoding-OPT and Decoding-UNO differ here by numbers
that win rates of responses cannot show.
"""

import functools

import numpy as np

from experiments.common import compare
from experiments.common import configs
from experiments.common import plots
from experiments.theory import diagnose
from experiments.theory import pareto
from specjax import metrics
from specjax import theory
from specjax.theory import bias

MAY_CHANGE = compare.MAY_CHANGE


def prepare(config):
  """Returns the methods, which must draft chains with a model, and prompts."""
  configs.check_counts(config, ('epsilons',), 0)
  return diagnose.prepare(config)


def run(config, workdir):
  """Returns a row for each method, set of prompts, epsilon and rule."""
  configs.check_counts(config, ('epsilons',), 0)
  observe = functools.partial(_observe, config.epsilons)
  found = diagnose.decode(config, workdir, observe)
  return [row for decoded in found for row in _rows(config.epsilons, decoded)]


def _observe(epsilons, model, batch):
  """The ledger of each row, in sums over its tokens."""
  plan = batch.compiled_method.decoder.round_fn
  params = batch.compiled_method.decoder.params
  found = theory.ledger(
    plan.target,
    model.model,
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
  tokens, rejection, biases = (
    np.array([record[name] for record in decoded.records])
    for name in ('emitted', 'rejection', 'bias')
  )
  of = lambda rule: biases[..., bias.REPLACEMENTS.index(pareto.RULES[rule])]
  for i, epsilon in enumerate(epsilons):
    for rule in pareto.RULES:
      row = {'prompts': decoded.prompts.label, 'method': decoded.method.label}
      row |= {'rule': rule, 'epsilon': epsilon}
      for name, sums in (
        ('rejection', rejection),
        ('bias', of(rule)),
        ('over_best', of(rule) - of('OPT')),
      ):
        row[name], row[f'{name}_error'] = metrics.ratio(sums[:, i], tokens)
      yield row


def figures(rows):
  """Draws the bias of each rule, and what it is over the least possible."""
  draw = lambda rows, name, ylabel: plots.lines(
    rows,
    'epsilon',
    name,
    'rule',
    panel='method',
    error=f'{name}_error',
    ylabel=ylabel,
  )
  others = [row for row in rows if row['rule'] != 'OPT']
  made = {
    'bias': draw(rows, 'bias', 'bias (TV) of a token'),
    'over_best': draw(others, 'over_best', 'bias over that of OPT'),
  }
  for axes in made['bias'].axes + made['over_best'].axes:
    axes.set_xscale('log')
  for axes in made['over_best'].axes:
    axes.set_yscale('symlog', linthresh=1e-4)
    axes.set_ylim(bottom=0)
  return made
