"""Rejection against bias: the front, formulas, and the verifier as it runs.

Yin et al. (2024), Figure 4: drafts are kept more often than is lossless.
"""

import math
import os

import jax
import jax.numpy as jnp
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import tqdm

from experiments import results
from specjax import base
from specjax import sampling
from specjax import trees
from specjax import verifiers
from specjax.theory import pareto

_REPLACEMENTS = {'residual': 'tab:blue', 'target': 'tab:orange'}
_MARKERS = {
  'formula': {'marker': 'o', 'markersize': 9, 'markerfacecolor': 'none'},
  'verifier': {'marker': 'x', 'markersize': 5},
}


def run(config, workdir):
  """Writes a row for each pair, epsilon, replacement and source; a plot."""
  _check(config)
  results.start(workdir)
  drawn = pairs(
    config.num_pairs, config.vocab_size, config.concentration, config.seed
  )
  cases = [
    (epsilon, replacement)
    for epsilon in config.epsilons
    for replacement in _REPLACEMENTS
  ]
  rows = []
  for epsilon, replacement in tqdm.tqdm(cases, desc='rules'):
    verifier = verifiers.VERIFIERS['over_acceptance'](epsilon, replacement)
    measure = make_measure(verifier, config.runs)
    for pair, (draft, target) in enumerate(drawn):
      accept = pareto.over_acceptance(draft, target, epsilon)
      replaced = target if replacement == 'target' else None
      key = jax.random.fold_in(jax.random.key(config.seed), len(rows))
      points = {
        'formula': pareto.point(accept, draft, target, replaced),
        'verifier': measure(key, draft, target),
      }
      for source, point in points.items():
        rows.append(
          {
            'pair': pair,
            'epsilon': epsilon,
            'replacement': replacement,
            'source': source,
            'rejection': float(point.rejection),
            'bias': float(point.bias),
            'total_variation': float(pareto.front(draft, target)),
          }
        )
        results.log(workdir, rows[-1])
  results.write(workdir, rows)
  plot(rows, os.path.join(workdir, 'front.png'))


def pairs(num_pairs: int, vocab_size: int, concentration: float, seed: int):
  """Returns pairs of a draft and a target, `[V]` float32 Dirichlet samples."""
  probs = np.random.default_rng(seed).dirichlet(
    np.full(vocab_size, concentration), (num_pairs, 2)
  )
  return [tuple(pair) for pair in probs.astype(np.float32)]


def make_measure(verifier: base.Verifier, num_runs: int):
  """Returns `(key, draft[V], target[V]) -> pareto.Point`, compiled.

  It lets the verifier judge one draft in each of many runs. Bias is the
  distance of the first tokens' frequencies from the target, so that noise adds
  to it.
  """

  def one(key, draft, target):
    draw_key, verify_key = jax.random.split(key)
    shape = (sampling.num_uniforms(draft.shape[0]),)
    token = sampling.draw(jax.random.uniform(draw_key, shape), draft)
    tree = base.DraftTree(
      token[None], trees.chain(1), jnp.ones(1, bool), draft[None]
    )
    # What follows the draft decides about the bonus token alone.
    outcome = verifier(verify_key, tree, jnp.stack([target, target]))
    return outcome.num_accepted, outcome.tokens[0]

  @jax.jit
  def measure(key, draft, target):
    keys = jax.random.split(key, num_runs)
    kept, tokens = jax.vmap(one, (0, None, None))(keys, draft, target)
    output = jnp.bincount(tokens, length=target.shape[0]) / num_runs
    return pareto.Point(
      rejection=1 - kept.mean(), bias=0.5 * jnp.abs(output - target).sum()
    )

  return measure


def plot(rows, path: str) -> None:
  """Draws bias against rejection: a panel a pair, with the front."""
  matplotlib.use('Agg')
  names = list(dict.fromkeys(row['pair'] for row in rows))
  figure, panels = plt.subplots(
    1,
    len(names),
    figsize=(3.4 * len(names) + 1.4, 3.4),
    layout='constrained',
    squeeze=False,
  )
  for axes, pair in zip(panels[0], names):
    own = [row for row in rows if row['pair'] == pair]
    end = own[0]['total_variation']
    axes.plot([0, end], [end, 0], color='0.6', linewidth=1, label='front')
    for replacement, color in _REPLACEMENTS.items():
      for source, style in _MARKERS.items():
        points = [
          (row['rejection'], row['bias'])
          for row in own
          if (row['replacement'], row['source']) == (replacement, source)
        ]
        axes.plot(
          *zip(*points),
          color=color,
          linestyle='',
          label=f'{replacement}, {source}',
          **style,
        )
    axes.set_title(f'pair {pair}, TV = {end:.3f}', fontsize='small')
    axes.set_xlabel('rejection')
    axes.grid(alpha=0.3)
  panels[0, 0].set_ylabel('bias')
  handles, labels = panels[0, 0].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside right center', fontsize=8)
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _check(config):
  for name, low in (('num_pairs', 1), ('vocab_size', 2), ('runs', 1)):
    if config[name] < low:
      raise ValueError(f'{name} must be >= {low}, got {config[name]}.')
  if not 0 < config.concentration < math.inf:
    raise ValueError(
      f'concentration must be > 0 and finite, got {config.concentration}.'
    )
  if not config.epsilons or not all(each >= 0 for each in config.epsilons):
    raise ValueError(
      f'epsilons must be a list of numbers >= 0, got {config.epsilons}.'
    )
