"""Rejection against bias: the front, formulas, and the verifier as it runs.

Yin et al. (2024), Figure 4: drafts are kept more often than is lossless.
"""

import functools
import itertools

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
# What stands for a rejected draft, by the paper's names of the rules.
RULES = {'OPT': 'residual', 'UNO': 'target', 'UNO, code': 'draft'}
_CASE = 'position', 'epsilon', 'rule'


def run(config, workdir):
  """Returns a row for each position, epsilon and replacement."""
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


def _row(unit):
  """What formulas say of a rule, and what the verifier does."""
  settings = [unit[name] for name in ('vocab_size', 'horizon', 'seed')]
  target, draft = (
    table[unit['position'], 0] for table in rejections.tables(*settings)
  )
  rule = unit['epsilon'], RULES[unit['rule']]
  key = jax.random.fold_in(jax.random.key(unit['seed']), unit['position'])
  formula = pareto.over_acceptance_point(draft, target, *rule)
  found = _measure(key, draft, target, *rule, unit['runs'])
  return {
    'rejection': float(formula.rejection),
    'bias': float(formula.bias),
    'total_variation': float(pareto.front(draft, target)),
    'measured_rejection': float(found.rejection),
    'measured_bias': float(found.bias),
  }


@functools.partial(jax.jit, static_argnames=('replacement', 'num_runs'))
def _measure(key, draft, target, epsilon, replacement, num_runs):
  """Lets the verifier judge one draft in each of many runs.

  Bias is the distance of the first tokens' frequencies from the target, so that
  noise adds to it.
  """
  verifier = verifiers.OverAcceptance(epsilon, replacement)

  def one(key):
    draw_key, verify_key = jax.random.split(key)
    shape = (sampling.num_uniforms(draft.shape[0]),)
    token = sampling.draw(jax.random.uniform(draw_key, shape), draft)
    tree = base.DraftTree(
      token[None], trees.chain(1), jnp.ones(1, bool), draft[None]
    )
    # What follows the draft decides about the bonus token alone.
    outcome = verifier(verify_key, tree, jnp.stack([target, target]))
    return outcome.num_accepted, outcome.tokens[0]

  kept, tokens = jax.vmap(one)(jax.random.split(key, num_runs))
  output = jnp.bincount(tokens, length=target.shape[0]) / num_runs
  return pareto.Point(1 - kept.mean(), 0.5 * jnp.abs(output - target).sum())


def figures(rows):
  """Draws bias against rejection, on the front or above it: Figure 4."""
  drawn = plots.lines(
    rows,
    'rejection',
    'bias',
    'rule',
    panel=('position',),
    xlabel='chance of a rejection',
    ylabel='bias (TV); crosses: the verifier',
  )
  positions = dict.fromkeys(row['position'] for row in rows)
  for axes, position in zip(drawn.axes, positions):
    own = [row for row in rows if row['position'] == position]
    end = own[0]['total_variation']
    axes.plot([0, end], [end, 0], color='0.8', linewidth=4, zorder=0)
    points = [(row['measured_rejection'], row['measured_bias']) for row in own]
    axes.plot(*zip(*points), 'kx', markersize=7)
  return {'front': drawn}
