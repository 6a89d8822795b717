"""Draft lengths as arms, by measured throughput (BanditSpec, Figure 3)."""

import os

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import tqdm

from experiments import arms as arms_lib
from experiments import costs
from experiments import evaluate
from experiments import looped
from experiments import results
from specjax import families
from specjax import sampling as sampling_lib

# What identifies a row.
_SETTINGS = ('batch_size', 'way', 'config')
MAY_CHANGE = ('batch_sizes',)


def run(config, workdir):
  """Writes a row for each batch size and way; goes on where it stopped."""
  _check(config)
  family = families.load(config.family)
  prompts = [tokens for _, tokens in evaluate.chosen_prompts(config, family)]
  done = results.done(workdir, _SETTINGS)
  rows = []
  for batch_size in config.batch_sizes:
    ways = [*map(_fixed, config.draft_lengths), *config.bandits]
    fields = results.fingerprint(config, MAY_CHANGE)
    keys = [(batch_size, way, fields) for way in ways]
    if all(key in done for key in keys):
      rows += [done[key] for key in keys]
      continue
    # Ways take turns within one process, so a batch size is made as a whole.
    found = _measure(config, family, prompts, batch_size, ways)
    for key, row in zip(keys, found):
      rows.append(dict(zip(_SETTINGS, key)) | row)
      results.log(workdir, rows[-1])
    jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  hidden = 'config', 'speeds'
  flat = [{k: v for k, v in row.items() if k not in hidden} for row in rows]
  results.write(workdir, flat)
  path = os.path.join(workdir, 'lengths.png')
  plot_improvement(rows, path)
  print(f'\nImprovement over plain decoding: {path}')


def plot_improvement(rows: list[dict], path: str) -> None:
  """Draws throughput over plain decoding, a panel for each batch size.

  Batches are sorted by the improvement of the best length in hindsight, which
  is drawn as a dashed line, as the worst is.
  """
  matplotlib.use('Agg')
  sizes = list(dict.fromkeys(row['batch_size'] for row in rows))
  figure, panels = plt.subplots(
    1,
    len(sizes),
    figsize=(2.6 * len(sizes), 3.2),
    sharey=True,
    squeeze=False,
    layout='constrained',
  )
  for size, axes in zip(sizes, panels[0]):
    speeds = {
      row['way']: np.array(row['speeds'])
      for row in rows
      if row['batch_size'] == size
    }
    plain = speeds[_fixed(0)]
    fixed = np.array([v for k, v in speeds.items() if k.startswith('length')])
    order = np.argsort((fixed / plain).max(0))
    index = np.arange(len(order))
    for values in (fixed.max(0), fixed.min(0)):
      axes.plot(index, (values / plain)[order], 'k--', linewidth=1)
    for way, values in speeds.items():
      is_fixed = way.startswith('length')
      axes.plot(
        index,
        (values / plain)[order],
        alpha=0.35 if is_fixed else 1,
        linewidth=1 if is_fixed else 1.8,
        label=way,
      )
    axes.set_title(f'batch size {size}')
    axes.set_xlabel('batch, sorted')
    axes.grid(alpha=0.3)
  panels[0, 0].set_ylabel('throughput over plain decoding')
  panels[0, -1].legend(fontsize=7)
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _fixed(length):
  return f'length {length}'


def _measure(config, family, prompts, batch_size, ways):
  """Decodes the same batches in every way, in turns."""
  sampling = sampling_lib.Sampling(config.temperature)
  specs = arms_lib.lengths(config.drafter, config.draft_lengths)
  arms = arms_lib.build(family, specs, sampling)
  options = {'max_length': config.max_length}
  decoders = [
    arms_lib.decoder(family, [arm], 'fixed', sampling, **options)
    for arm in arms
  ]
  names = {name: arms_lib.reward_name(config, name) for name in config.bandits}
  rewards = {
    name: costs.named_reward(config, name, family, specs, batch_size, prompts)
    for name in sorted(set(names.values()))
  }
  decoders += [
    arms_lib.decoder(
      family, arms, name, sampling, reward=rewards[reward], **options
    )
    for name, reward in names.items()
  ]
  rng = np.random.default_rng([config.seed, batch_size])
  batches = [
    [prompts[i] for i in rng.choice(len(prompts), batch_size)]
    for _ in range(config.num_batches)
  ]
  speeds = np.zeros((len(decoders), len(batches)))
  pulls = np.zeros((len(decoders), len(specs)))
  bandit_states = [None] * len(decoders)
  for i, batch in enumerate(
    tqdm.tqdm(batches, desc=f'batches of {batch_size}')
  ):
    for w, decoder in enumerate(decoders):
      if not i:
        looped.warm_up(decoder, batch, config.max_new_tokens)
      outputs, learnt, seconds = looped.decode(
        decoder, batch, config.max_new_tokens, bandit_states[w], seed=i
      )
      bandit_states[w] = learnt if config.carry_over else None
      speeds[w, i] = sum(len(each.tokens) for each in outputs) / seconds
      pulls[w, : outputs[0].pulls.size] += sum(each.pulls for each in outputs)
  fixed = speeds[: len(specs)]
  best = fixed[fixed.mean(1).argmax()]
  lengths = np.array(config.draft_lengths)
  return [
    {
      'tokens_per_second': float(each.mean()),
      'over_plain': _ratio(each, speeds[0])[0],
      'over_best': _ratio(each, best)[0],
      'over_best_error': _ratio(each, best)[1],
      'over_hindsight': _ratio(each, fixed.max(0))[0],
      'mean_length': float(
        lengths[w] if w < len(specs) else pulls[w] @ lengths / pulls[w].sum()
      ),
      'speeds': each.tolist(),
    }
    for w, each in enumerate(speeds)
  ]


def _ratio(speeds, others):
  """Ratio of means over batches, and its standard error (paired)."""
  ratio = speeds.mean() / others.mean()
  deviations = speeds - ratio * others
  error = deviations.std(ddof=1) / np.sqrt(len(speeds)) / others.mean()
  return float(ratio), float(error)


def _check(config):
  if not config.draft_lengths or config.draft_lengths[0] != 0:
    raise ValueError(
      'draft_lengths must begin with 0, plain decoding, got '
      f'{tuple(config.draft_lengths)}.'
    )
  if config.num_batches < 2:
    raise ValueError(f'num_batches must be >= 2, got {config.num_batches}.')
