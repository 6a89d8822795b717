"""Computes the exact bias of over-acceptance at each token of decoded texts.

In Section 4 of Yin et al. (2024), bias and rejection are closed forms of the
draft's and the target's distributions after each prefix. They show differences
between Decoding-OPT and Decoding-UNO that are hidden by the noise of win rates.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
from typing import Any

from experiments.common import compare
from experiments.common import configs
from experiments.common import plots
from experiments.common import runner
from experiments.theory import diagnose
from experiments.theory import pareto
from specjax import families
from specjax import metrics
from specjax import theory
from specjax.verifiers import over_acceptance

MAY_CHANGE = compare.MAY_CHANGE


def prepare(config):
  """Returns the methods, which must draft chains with a model, and prompts."""
  configs.check_counts(config, ('epsilons',), 0)
  return diagnose.prepare(config)


def run(config, workdir):
  """Returns a row per method, prompt set, epsilon and rule."""
  observe = functools.partial(_observe, config.epsilons)
  results = diagnose.decode(config, workdir, prepare(config), observe)
  return [row for decoded in results for row in _rows(config.epsilons, decoded)]


def _observe(
  epsilons: Sequence[float], model: families.Model, batch: runner.Batch
) -> list[runner.Record]:
  """Returns each row's sums of rejection and bias over its tokens."""
  ledger = diagnose.over_texts(theory.ledger, epsilons, model, batch)
  return [
    {'rejection': row.tolist(), 'bias': biases.tolist()}
    for row, biases in zip(ledger.rejection, ledger.bias)
  ]


def _rows(
  epsilons: Sequence[float], decoded: compare.Decoded
) -> Iterator[dict[str, Any]]:
  """Yields means over tokens, whose errors are over prompts."""
  tokens, rejection, biases = (
    compare.by_prompt(decoded.records, name)
    for name in ('emitted', 'rejection', 'bias')
  )
  replacements = over_acceptance.REPLACEMENTS
  bias_of_rule = {
    rule: biases[..., replacements.index(replacement)]
    for rule, replacement in pareto.RULES.items()
  }
  for i, epsilon in enumerate(epsilons):
    for rule in pareto.RULES:
      row = {'prompts': decoded.prompts.label, 'method': decoded.method.label}
      row |= {'rule': rule, 'epsilon': epsilon}
      for name, sums in (
        ('rejection', rejection),
        ('bias', bias_of_rule[rule]),
        ('over_best', bias_of_rule[rule] - bias_of_rule['OPT']),
      ):
        row[name], row[f'{name}_error'] = metrics.ratio(sums[:, i], tokens)
      yield row


def figures(rows):
  """Draws the bias of each rule, and its excess over the lowest bias."""
  draw = lambda rows, name, ylabel, adjust: plots.lines(
    rows,
    'epsilon',
    name,
    'rule',
    panel='method',
    error=f'{name}_error',
    ylabel=ylabel,
    adjust=adjust,
  )

  def adjust(axes):
    axes.set_xscale('log')
    axes.set_yscale('symlog', linthresh=1e-4)
    axes.set_ylim(bottom=0)

  without_opt = [row for row in rows if row['rule'] != 'OPT']
  in_logs = lambda axes: axes.set_xscale('log')
  excess = 'bias minus that of OPT'
  return {
    'bias': draw(rows, 'bias', 'bias (TV) per token', in_logs),
    'over_best': draw(without_opt, 'over_best', excess, adjust),
  }
