"""Rejections in theory, in simulation and in the decode loop.

Yin et al. (2024), Figures 2 and 5: drafts reach to the horizon, so that there
is no bonus token, and a round ends at a rejection or at the horizon.
"""

import math
import os

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import tqdm

from experiments import batches
from experiments import results
from specjax import base
from specjax import decoding
from specjax import drafters
from specjax import models
from specjax import theory
from specjax import trees
from specjax import verifiers

# Running means are drawn from here on: before, all is noise.
_FIRST_DRAWN = 100
_STYLES = {
  'simulation': {'color': 'tab:blue', 'marker': 'o', 'markersize': 5},
  'decoder': {'color': 'tab:orange', 'marker': 'x', 'markersize': 9},
}


def run(config, workdir):
  """Writes a row for each source, horizon and number of drafts; two plots."""
  _check(config)
  results.start(workdir)
  pair = tables(
    config.vocab_size, max(config.horizons), config.concentration, config.seed
  )
  rows, counted = [], {}
  for source, horizon, num_drafts in _cases(config):
    expected = theory.batch_expected_rejections(*pair, horizon, num_drafts)
    case = {'horizon': horizon, 'num_drafts': num_drafts, 'source': source}
    if source == 'theory':
      if num_drafts == math.inf:
        case['num_drafts'] = 'infinity'  # JSON has no number for it.
      row = case | _of_mean(expected, horizon)
    else:
      count = simulated if source == 'simulation' else decoded
      rejections, rate = count(*pair, horizon, num_drafts, config)
      counted[horizon, num_drafts, source] = rejections, expected
      row = case | statistics(rejections, horizon, expected)
      row['rounds_per_second'] = rate
    rows.append(row)
    results.log(workdir, row)
  results.write(workdir, rows)
  plot_num_drafts(rows, os.path.join(workdir, 'num_drafts.png'))
  if counted:
    plot_running_means(counted, os.path.join(workdir, 'running_mean.png'))


def tables(vocab_size: int, horizon: int, concentration: float, seed: int):
  """Returns a target's and a draft's table, `[horizon, V, V]` float32 each.

  Rows are Dirichlet samples. A longer horizon adds positions, and leaves the
  first ones as they are.
  """
  rows = np.random.default_rng(seed).dirichlet(
    np.full(vocab_size, concentration), (horizon, 2, vocab_size)
  )
  return tuple(rows.astype(np.float32).swapaxes(0, 1))


def simulated(target, draft, horizon: int, num_drafts: int, config):
  """Simulates runs, in chunks of one size.

  Returns:
    `[runs]` rejections, and rounds per second without compilation.
  """
  chunk = min(config.runs_per_chunk, config.simulated_runs)
  key = jax.random.fold_in(jax.random.key(config.seed), horizon)
  key = jax.random.fold_in(key, num_drafts)
  simulate = theory.simulate.lower(
    key, target, draft, horizon, num_drafts, chunk
  ).compile()

  def all_chunks():
    return np.concatenate(
      [
        simulate(jax.random.fold_in(key, index), target, draft).rejected
        for index in tqdm.trange(
          -(-config.simulated_runs // chunk),
          desc=f'simulation, horizon {horizon}, {num_drafts} drafts',
        )
      ]
    )

  rejected, seconds = results.timed(all_chunks)
  # Behind a rejection a round begins, unless nothing is left to fill.
  rounds = len(rejected) + rejected[:, :-1].sum()
  counts = rejected[: config.simulated_runs].sum(axis=1)
  return counts, float(rounds / seconds)


def decoded(target, draft, horizon: int, num_drafts: int, config):
  """Decodes runs with the project's loop, each behind one uniform token.

  Returns:
    `[runs]` rejections, and rounds per second without compilation.
  """
  model = models.MODELS['markov'](target.shape[-1])
  drafter = drafters.DRAFTERS['autoregressive'](
    model, trees.chains(num_drafts, horizon)
  )
  decoder = decoding.Decoder(
    model,
    target,
    [(base.Arm(drafter, verifiers.resolve('batch')), draft)],
    max_length=horizon + 1,
  )
  prompts = np.random.default_rng(config.seed).integers(
    target.shape[-1], size=(config.decoded_runs, 1)
  )
  size = min(config.batch_size, config.decoded_runs)

  def decode(prompts, length, progress=True):
    return list(
      batches.decode(
        decoder,
        prompts.tolist(),
        length,
        size,
        seed=config.seed,
        progress=progress,
      )
    )

  decode(prompts[:1], 1, progress=False)  # Compiles for any length.
  outputs, seconds = results.timed(decode, prompts, horizon)
  # The last draft may stand at the horizon: no emitted token is a bonus.
  counts = [horizon - output.accepted.sum() for output in outputs]
  return np.array(counts), sum(o.rounds for o in outputs) / seconds


def statistics(counts: np.ndarray, horizon: int, expected: float) -> dict:
  """Returns the statistics of `[runs]` counted rejections."""
  error = float(np.std(counts, ddof=1)) / math.sqrt(len(counts))
  excess = float(np.mean(counts)) - expected
  return _of_mean(expected + excess, horizon) | {
    'runs': len(counts),
    'standard_error': error,
    'deviation': excess / error if error else None,
  }


def plot_num_drafts(rows, path: str) -> None:
  """Draws rejections by the number of drafts, with the limit: Figure 2 (c)."""
  matplotlib.use('Agg')
  horizons = list(dict.fromkeys(row['horizon'] for row in rows))
  figure, panels = _panels(1, len(horizons))
  for axes, horizon in zip(panels[0], horizons):
    own = [row for row in rows if row['horizon'] == horizon]
    limit = [row for row in own if row['num_drafts'] == 'infinity']
    own = [row for row in own if row not in limit]
    axes.axhline(
      limit[0]['rejections'], color='0.5', linestyle='--', label='limit'
    )
    for source, style in ({'theory': {'color': 'black'}} | _STYLES).items():
      points = sorted(
        (row['num_drafts'], row['rejections'])
        for row in own
        if row['source'] == source
      )
      if points:
        line = '-' if source == 'theory' else ''
        axes.plot(*zip(*points), linestyle=line, label=source, **style)
    axes.set_title(f'horizon {horizon}')
    axes.set_xlabel('drafts a round')
    axes.xaxis.get_major_locator().set_params(integer=True)
  panels[0, 0].set_ylabel('rejections')
  panels[0, 0].legend(fontsize=8)
  figure.savefig(path, dpi=120)
  plt.close(figure)


def plot_running_means(counted: dict, path: str) -> None:
  """Draws means against runs, with bands of two standard errors: Figure 2 (a).

  Args:
    counted: `[runs]` rejections and what theory expects, by horizon, number of
      drafts and source.
    path: of the image.
  """
  matplotlib.use('Agg')
  horizons, widths, _ = (sorted(set(each)) for each in zip(*counted))
  figure, panels = _panels(len(horizons), len(widths))
  for panel in panels.flat:
    panel.set_visible(False)
  for (horizon, num_drafts, source), (counts, expected) in counted.items():
    axes = panels[horizons.index(horizon), widths.index(num_drafts)]
    axes.set_visible(True)
    _draw_mean(axes, counts, source)
    axes.axhline(expected, color='black', linestyle='--', linewidth=1)
    axes.set_title(f'horizon {horizon}, drafts {num_drafts}', fontsize='small')
    axes.set_xscale('log')
  for axes in panels[-1]:
    axes.set_xlabel('runs')
  for axes in panels[:, 0]:
    axes.set_ylabel('mean rejections')
  panels[0, 0].legend(fontsize=8)
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _draw_mean(axes, counts, source):
  """The mean of the first `n` runs, and its band, at spread values of `n`."""
  first = min(_FIRST_DRAWN, len(counts))
  num = np.unique(np.geomspace(first, len(counts), 300).astype(int))
  counts = counts.astype(np.float64)
  mean = np.cumsum(counts)[num - 1] / num
  square = np.cumsum(counts**2)[num - 1] / num
  error = np.sqrt(np.maximum(square - mean**2, 0) / num)
  color = _STYLES[source]['color']
  axes.plot(num, mean, color=color, label=source)
  axes.fill_between(
    num, mean - 2 * error, mean + 2 * error, color=color, alpha=0.2, lw=0
  )


def _panels(num_rows, num_columns):
  figure, panels = plt.subplots(
    num_rows,
    num_columns,
    figsize=(3.0 * num_columns + 0.6, 2.7 * num_rows + 0.3),
    squeeze=False,
    layout='constrained',
  )
  for axes in panels.flat:
    axes.grid(alpha=0.3)
  return figure, panels


def _of_mean(rejections, horizon):
  """Without a rejection, one call fills any horizon."""
  return {
    'rejections': rejections,
    'acceleration': horizon / rejections if rejections else None,
  }


def _cases(config):
  """Source, horizon and number of drafts of each row."""
  kinds = {
    'theory': (config.horizons, (*config.num_drafts, math.inf)),
    'simulation': (config.horizons, config.simulated_drafts),
    'decoder': (config.decoded_horizons, config.decoded_drafts),
  }
  return [
    (source, horizon, num_drafts)
    for source, (horizons, widths) in kinds.items()
    for horizon in horizons
    for num_drafts in widths
  ]


def _check(config):
  least = {
    'vocab_size': 2,
    'horizons': 1,
    'num_drafts': 1,
    'simulated_drafts': 1,
    'simulated_runs': 2,
    'runs_per_chunk': 1,
    'decoded_drafts': 1,
    'decoded_runs': 2,
    'batch_size': 1,
  }
  for name, low in least.items():
    if min(np.ravel(config[name]), default=low) < low:
      raise ValueError(f'{name} must be >= {low}, got {config[name]}.')
  if not config.horizons:
    raise ValueError('horizons must hold at least one horizon, got none.')
  if not set(config.decoded_horizons) <= set(config.horizons):
    raise ValueError(
      f'decoded_horizons must be among horizons={config.horizons}, got '
      f'{config.decoded_horizons}.'
    )
  if not 0 < config.concentration < math.inf:
    raise ValueError(
      f'concentration must be > 0 and finite, got {config.concentration}.'
    )
