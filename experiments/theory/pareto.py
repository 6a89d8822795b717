"""Compares rejection and bias: the front, formulas, and the verifier.

In Figure 4 of Yin et al. (2024), draft tokens are accepted more often than
lossless verification allows.
"""

import functools
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from experiments.common import configs
from experiments.common import log
from experiments.common import plots
from experiments.theory import rejections
from specjax import base
from specjax import checks
from specjax import sampling
from specjax import trees
from specjax import verifiers
from specjax.theory import pareto

MAY_CHANGE = ('epsilons', 'positions')
# Replacements of rejected draft tokens, by the paper's names of the rules.
RULES = {'OPT': 'residual', 'UNO': 'target', 'UNO, code': 'draft'}
_CASE = 'position', 'epsilon', 'rule'


def run(config, workdir):
  """Returns a row per position, epsilon and rule."""
  configs.check_counts(config, ('horizon', 'runs'))
  configs.check_counts(config, ('epsilons', 'positions'), 0)
  checks.check_range('positions', config.positions, 0, config.horizon - 1)
  names = 'vocab_size', 'horizon', 'runs', 'seed'
  shared = {name: config[name] for name in names}
  cases = [
    dict(zip(_CASE, case))
    for case in itertools.product(config.positions, config.epsilons, RULES)
  ]
  units = [case | shared for case in cases]
  outcomes = log.resume(workdir, units, _row, 'rules')
  return [case | outcome for case, outcome in zip(cases, outcomes)]


def _row(unit: dict[str, Any]) -> dict[str, float]:
  """Returns the rejection and bias of a rule, by formulas and measured."""
  settings = [unit[name] for name in ('vocab_size', 'horizon', 'seed')]
  target, draft = (
    table[unit['position'], 0] for table in rejections.tables(*settings)
  )
  rule = unit['epsilon'], RULES[unit['rule']]
  key = jax.random.fold_in(jax.random.key(unit['seed']), unit['position'])
  formula = pareto.over_acceptance_point(draft, target, *rule)
  measured = _measure(key, draft, target, *rule, unit['runs'])
  return {
    'rejection': float(formula.rejection),
    'bias': float(formula.bias),
    'total_variation': float(pareto.front(draft, target)),
    'measured_rejection': float(measured.rejection),
    'measured_bias': float(measured.bias),
  }


@functools.partial(jax.jit, static_argnames=('replacement', 'num_runs'))
def _measure(
  key: jax.Array,
  draft: jax.Array,
  target: jax.Array,
  epsilon: float,
  replacement: str,
  num_runs: int,
) -> pareto.Point:
  """Runs the verifier on one draft token, `num_runs` times.

  The bias is the distance between the frequencies of the first tokens and the
  target, so that sampling noise adds to it.
  """
  verifier = verifiers.OverAcceptance(epsilon, replacement)

  def verify(key):
    draw_key, verify_key = jax.random.split(key)
    shape = (sampling.num_uniforms(draft.shape[0]),)
    token = sampling.draw(jax.random.uniform(draw_key, shape), draft)
    tree = base.DraftTree(
      token[None], trees.chain(1), jnp.ones(1, bool), draft[None]
    )
    # The distribution after the draft token matters only for the bonus token.
    outcome = verifier(verify_key, tree, jnp.stack([target, target]))
    return outcome.num_accepted, outcome.tokens[0]

  kept, tokens = jax.vmap(verify)(jax.random.split(key, num_runs))
  output = jnp.bincount(tokens, length=target.shape[0]) / num_runs
  return pareto.Point(1 - kept.mean(), 0.5 * jnp.abs(output - target).sum())


def figures(rows):
  """Draws bias against rejection, with the front: Figure 4."""
  drawn = plots.lines(
    rows,
    'rejection',
    'bias',
    'rule',
    panel=('position',),
    xlabel='probability of a rejection',
    ylabel='bias (TV); crosses: the verifier',
  )
  positions = dict.fromkeys(row['position'] for row in rows)
  for axes, position in zip(drawn.axes, positions):
    at_position = [row for row in rows if row['position'] == position]
    end = at_position[0]['total_variation']
    axes.plot([0, end], [end, 0], color='0.8', linewidth=4, zorder=0)
    points = [
      (row['measured_rejection'], row['measured_bias']) for row in at_position
    ]
    axes.plot(*zip(*points), 'kx', markersize=7)
  return {'front': drawn}
