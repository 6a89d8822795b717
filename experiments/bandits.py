"""Drafters as arms of a bandit, for prompts of all kinds (BanditSpec)."""

import functools
import os
from typing import NamedTuple

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
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib

# What tells a line of `metrics.jsonl` from the others.
_SETTINGS = ('prompts', 'way', 'arms', 'reward', 'carry_over', 'config')
# Fields of the config that `config` leaves out: settings of their own, and what
# concerns bandits alone.
_OWN = (
  'arms',
  'bandits',
  'prompts_file',
  'reward',
  'carry_over',
  'costs',
  'cost_rounds',
  'cost_repeats',
)


class _Output(NamedTuple):
  """What the metrics need of a `Result`, as it is logged."""

  tokens: range  # As long as what was emitted.
  rounds: int


def run(config, workdir):
  """Decodes every set of prompts in every way; goes on where it stopped."""
  family = families.load(config.family)
  names = [spec.name for spec in arms_lib.specs(config.arms)]
  ways = list(dict.fromkeys(['none', *names, *config.bandits]))
  sets = _sets(config, family)
  decoder = _decoders(config, family, names, next(iter(sets.values())))
  done = results.done(workdir, _SETTINGS)
  logged = {label: {} for label in sets}
  for way in tqdm.tqdm(ways, desc='ways to decode'):
    for label, jobs in sets.items():
      settings = _settings(config, label, names, way)
      row = done.get(tuple(settings.values()))
      if row is None:
        row = settings | _decode_all(config, decoder(way), jobs)
        results.log(workdir, row)
      logged[label][way] = row
  rows = [
    row for label in sets for row in _summaries(label, logged[label], names)
  ]
  results.write(workdir, rows)
  path = os.path.join(workdir, 'block_efficiency.png')
  plot_block_efficiency(rows, names, path)
  print(f'\nBlock efficiency by kind of prompt: {path}')


def plot_block_efficiency(rows: list[dict], names: list[str], path: str):
  """Draws each way's block efficiency over the best arm's, kind by kind.

  Arms are open circles, bandits filled ones, with bars of two standard errors.
  """
  matplotlib.use('Agg')
  rows = [row for row in rows if row['way'] != 'none']
  places = list(dict.fromkeys((r['prompts'], r['domain']) for r in rows))
  ways = list(dict.fromkeys(row['way'] for row in rows))
  figure, axes = plt.subplots(
    figsize=(8, 0.9 + 0.42 * len(places)), layout='constrained'
  )
  for i, way in enumerate(ways):
    mine = [row for row in rows if row['way'] == way]
    axes.errorbar(
      [row['over_best'] for row in mine],
      [
        places.index((row['prompts'], row['domain'])) + 0.6 * i / len(ways)
        for row in mine
      ],
      xerr=[2 * row['over_best_error'] for row in mine],
      fmt='o',
      markersize=4,
      markerfacecolor='white' if way in names else None,
      linewidth=1,
      label=way,
    )
  axes.axvline(1, color='black', linewidth=0.8)
  axes.set_yticks(
    np.arange(len(places)) + 0.3, [f'{a}: {b}' for a, b in places], fontsize=8
  )
  axes.invert_yaxis()
  axes.set_xlabel('block efficiency over that of the best single arm')
  axes.grid(alpha=0.3)
  axes.legend(fontsize=7, loc='center left', bbox_to_anchor=(1, 0.5))
  figure.savefig(path, dpi=120)
  plt.close(figure)


def _sets(config, family):
  """Each set of prompts, shuffled: `(domain, tokens)`."""
  own = 'eval' if config.data_dir else 'family'
  sets = {own: evaluate.chosen_prompts(config, family)}
  if config.prompts_file:
    label = os.path.basename(config.prompts_file).split('.')[0]
    if label in sets:
      raise ValueError(f'prompts_file must not be called {label!r}, too.')
    sets[label] = evaluate.fitting(
      config, family.tokenizer, examples_lib.read(config.prompts_file)
    )
  rng = np.random.default_rng(config.seed)
  return {
    label: [jobs[i] for i in rng.permutation(len(jobs))]
    for label, jobs in sets.items()
  }


def _settings(config, label, names, way):
  is_bandit = way in config.bandits
  values = (
    label,
    way,
    ', '.join(names) if is_bandit else '',
    config.reward if is_bandit else '',
    config.carry_over if is_bandit else False,
    results.fingerprint(config, _OWN),
  )
  return dict(zip(_SETTINGS, values, strict=True))


def _decoders(config, family, names, jobs):
  """Returns a function from a way to its decoder, which is built once."""
  sampling = sampling_lib.Sampling(config.temperature)
  arms = arms_lib.build(family, config.arms, sampling, config.datastore)
  plain = arms_lib.build(family, [('none', 0)], sampling)
  prompts = [tokens for _, tokens in jobs]

  @functools.cache
  def reward():
    specs = arms_lib.specs(config.arms)
    return costs.named_reward(config, family, specs, 1, prompts)

  @functools.cache
  def decoder(way):
    options = {'max_length': config.max_length}
    if way in config.bandits:
      options['reward'] = reward()
      return arms_lib.decoder(family, arms, way, sampling, **options)
    alone = [arms[names.index(way)]] if way in names else plain
    return arms_lib.decoder(family, alone, 'fixed', sampling, **options)

  return decoder


def _decode_all(config, decoder, jobs):
  """One prompt after the other."""
  outputs, seconds, lessons = [], [], None
  looped.warm_up(decoder, [jobs[0][1]], config.max_new_tokens)
  for i, (_, tokens) in enumerate(jobs):
    (output,), learnt, each = looped.decode(
      decoder,
      [tokens],
      config.max_new_tokens,
      lessons,
      seed=config.seed,
      request_ids=[i],
    )
    lessons = learnt if config.carry_over else None
    outputs.append(output)
    seconds.append(each)
  return {
    'domains': [domain for domain, _ in jobs],
    'emitted': [len(output.tokens) for output in outputs],
    'rounds': [output.rounds for output in outputs],
    'caught_up': [output.caught_up for output in outputs],
    'pulls': [output.pulls.tolist() for output in outputs],
    'seconds': seconds,
  }


def _summaries(label, logged, names):
  """A row for each way and domain, and for all domains together."""
  domains = logged['none']['domains']
  rows = []
  for domain in ['all', *dict.fromkeys(domains)]:
    here = [i for i, each in enumerate(domains) if domain in ('all', each)]
    outputs = {
      way: [_Output(range(row['emitted'][i]), row['rounds'][i]) for i in here]
      for way, row in logged.items()
    }
    best = max(names, key=lambda way: metrics.block_efficiency(outputs[way])[0])
    for way, row in logged.items():
      efficiency, error = metrics.block_efficiency(outputs[way])
      ratio, ratio_error = metrics.efficiency_ratio(outputs[way], outputs[best])
      pulls = np.sum([row['pulls'][i] for i in here], axis=0)
      rows.append(
        {
          'prompts': label,
          'domain': domain,
          'way': way,
          'block_efficiency': efficiency,
          'standard_error': error,
          'best_arm': best,
          'over_best': ratio,
          'over_best_error': ratio_error,
          'tokens_per_second': float(
            sum(row['emitted'][i] for i in here)
            / sum(row['seconds'][i] for i in here)
          ),
          'caught_up': int(sum(row['caught_up'][i] for i in here)),
          'pulls': ' '.join(f'{each / pulls.sum():.2f}' for each in pulls),
        }
      )
  return rows
