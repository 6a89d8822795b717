"""Computes the exact acceptance of rules with several chains, and the optimum.

Models are random Markov models; rows are means over them.
"""

import itertools
from typing import Any

import numpy as np

from experiments.common import configs
from experiments.common import log
from experiments.common import plots
from specjax import checks
from specjax import theory

# Linear programs, whose sets of chains are many.
_PROGRAMS = {
  'any (linear program)': theory.best_accepted,
  'any, first round (linear program)': theory.best_transport,
}
# What is accepted by drafts that the target's noise chooses, and by a rule that
# later rounds make up for.
_OTHERS = {
  'shared noise': theory.shared_noise_acceptance,
  'SpecTr-GBV, first round': theory.spectr_gbv_acceptance,
}


def run(config, workdir):
  """Returns a row per rule and number of chains."""
  counts = 'vocab_size', 'length', 'max_chains', 'max_best_chains'
  configs.check_counts(config, counts)
  configs.check_counts(config, ('num_models',), 2)
  checks.check_range('overlap', config.overlap, 0, 1)
  names = 'vocab_size', 'length', 'overlap', 'seed'
  shared = {name: config[name] for name in names}
  cases = [
    {'rule': rule, 'num_chains': num}
    for rule, most in (
      *((rule, config.max_chains) for rule in (*theory.RULES, *_OTHERS)),
      *((rule, config.max_best_chains) for rule in _PROGRAMS),
    )
    for num in range(1, most + 1)
  ]
  models = range(config.num_models)
  units = [
    case | {'model': model} | shared
    for case, model in itertools.product(cases, models)
  ]
  outcomes = log.resume(workdir, units, _accepted, 'rules')
  accepted = np.array([outcome['accepted'] for outcome in outcomes])
  efficiency = 1 + accepted.reshape(len(cases), len(models))
  errors = efficiency.std(axis=1, ddof=1) / np.sqrt(len(models))
  return [
    case | {'block_efficiency': mean, 'standard_error': error}
    for case, mean, error in zip(
      cases, efficiency.mean(axis=1).tolist(), errors.tolist()
    )
  ]


def _accepted(unit: dict[str, Any]) -> dict[str, float]:
  """Returns the mean over all contexts, for one pair of models."""
  size, share = unit['vocab_size'], unit['overlap']
  rng = np.random.default_rng((unit['seed'], unit['model']))
  target, other = rng.dirichlet(np.ones(size), size=(2, size))
  draft = share * target + (1 - share) * other
  args = target, draft, unit['num_chains'], unit['length']
  accepted = [
    _accepted_from(unit['rule'], *args, start) for start in range(size)
  ]
  return {'accepted': float(np.mean(accepted))}


def _accepted_from(rule: str, *args: Any) -> float:
  """Returns the expected number of accepted tokens from one context."""
  accepted_fns = _OTHERS | _PROGRAMS
  if rule in accepted_fns:
    return float(np.sum(accepted_fns[rule](*args)))
  *common, start = args
  return theory.acceptance_by_depth(*common, rule, start).sum()


def figures(rows):
  """Draws block efficiency by the number of chains."""
  drawn = plots.lines(
    rows, 'num_chains', 'block_efficiency', 'rule', xlabel='chains'
  )
  return {'chains': drawn}
