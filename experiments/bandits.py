"""Drafters as arms of a bandit, for prompts of all kinds (BanditSpec)."""

import functools
import os
from typing import NamedTuple

import jax
import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import tqdm

from experiments import arms as arms_lib
from experiments import costs
from experiments import looped
from experiments import prompt_sets
from experiments import results
from experiments import routing
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib

# What identifies a line of `metrics.jsonl`.
_SETTINGS = ('prompts', 'way', 'arms', 'reward', 'carry_over', 'config')
# Fields of the config that `config` leaves out: settings of their own, what
# concerns bandits alone, and what decodes nothing.
_OWN = (
  'arms',
  'others',
  'bandits',
  'sets',
  'prompts_file',
  'router',
  'router_prompts',
  'reward',
  'carry_over',
  'costs',
  'cost_rounds',
  'cost_repeats',
)
MAY_CHANGE = _OWN
# Ways that leave each prompt to one arm: computed from what the arms decoded.
_DERIVED = ('oracle', 'router')


class _Output(NamedTuple):
  """What the metrics need of a `Result`, as it is logged."""

  tokens: range  # As long as what was emitted.
  rounds: int


def run(config, workdir):
  """Writes a row for each set of prompts, way to decode and domain."""
  rows = table(config, workdir)
  results.write(workdir, rows)
  path = os.path.join(workdir, 'block_efficiency.png')
  plot_block_efficiency(rows, list(_specs(config)), path)
  print(f'\nBlock efficiency by kind of prompt: {path}')


def table(config, workdir) -> list[dict]:
  """Decodes every set of prompts in every way; goes on where it stopped."""
  for entry in config.bandits:
    arms_lib.parse(entry)
  specs = _specs(config)
  names = list(specs)[: len(config.arms)]
  family = families.load(config.family)
  sets = prompt_sets.build(config, family)
  routers = _routers(config, family, sets) if config.router else {}
  rows = []
  for label, lines in _decode_sets(config, workdir, family, specs, sets):
    of_arms = [lines[name] for name in names]
    lines['oracle'] = _left_to(of_arms, _best(of_arms))
    if label in routers:
      chosen, right = routers[label]
      lines['router'] = _left_to(of_arms, chosen) | {'right': right}
    rows += _summaries(label, lines, names)
  return rows


def plot_block_efficiency(rows: list[dict], names: list[str], path: str):
  """Draws each way's block efficiency over the best arm's, kind by kind.

  Drafters alone are open circles, bandits filled ones, and what leaves each
  prompt to one arm is open squares, with bars of two standard errors.

  Args:
    rows: of all sets, ways and domains.
    names: ways that are one drafter alone.
    path: of the image.
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
      fmt='s' if way in _DERIVED else 'o',
      markersize=4,
      markerfacecolor='white' if way in (*names, *_DERIVED) else None,
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


def _specs(config):
  """Arms and others by name, arms first."""
  specs = arms_lib.specs([*config.arms, *config.others])
  names = [spec.name for spec in specs]
  if len(set(names)) < len(names):
    raise ValueError(
      f'arms and others must have different names, got {", ".join(names)}.'
    )
  return dict(zip(names, specs))


def _decode_sets(config, workdir, family, specs, sets):
  """Returns each set's label and its lines by way, logged or decoded now."""
  ways = list(dict.fromkeys(['none', *specs, *config.bandits]))
  prompts = [job.turns[0] for job in next(iter(sets.values()))]
  decoder = _decoders(config, family, specs, prompts)
  done = results.done(workdir, _SETTINGS)
  logged = {label: {} for label in sets}
  for way in tqdm.tqdm(ways, desc='ways to decode'):
    for label, jobs in sets.items():
      settings = _settings(config, label, specs, way)
      row = done.get(tuple(settings.values()))
      if row is None:
        row = settings | _decode_all(config, decoder(way), jobs)
        results.log(workdir, row)
      logged[label][way] = row
    jax.clear_caches()  # Many programs have more memory maps than Linux allows.
  return logged.items()


def _settings(config, label, specs, way):
  is_bandit = way in config.bandits
  members = ()
  if is_bandit:
    members = list(specs)[: len(config.arms)]
  elif way in specs and specs[way].is_ensemble:
    members = specs[way].drafter
  fields = prompt_sets.fields(config, label)
  values = (
    label,
    way,
    ', '.join(members),
    arms_lib.reward_name(config, way) if is_bandit else '',
    config.carry_over if is_bandit else False,
    results.fingerprint(fields, _OWN),
  )
  return dict(zip(_SETTINGS, values, strict=True))


def _decoders(config, family, specs, prompts):
  """Returns a function from a way to its decoder; it holds the last one."""
  sampling = sampling_lib.Sampling(config.temperature)
  build = functools.partial(
    arms_lib.build, family, sampling=sampling, datastore=config.datastore
  )
  alone = dict(zip(specs, build(specs.values())))
  alone['none'] = build([('none', 0)])[0]

  @functools.cache
  def reward(name):
    chosen = arms_lib.specs(config.arms)
    return costs.named_reward(config, name, family, chosen, 1, prompts)

  @functools.lru_cache(maxsize=1)
  def decoder(way):
    options = {'max_length': config.max_length}
    if way in config.bandits:
      options['reward'] = reward(arms_lib.reward_name(config, way))
      arms = build(config.arms, catch_up=arms_lib.parse(way).catch_up)
      return arms_lib.decoder(family, arms, way, sampling, **options)
    return arms_lib.decoder(family, [alone[way]], 'fixed', sampling, **options)

  return decoder


def _decode_all(config, decoder, jobs):
  """One session after the other; sums over the turns of each."""
  totals, bandit_state = [], None
  looped.warm_up(decoder, [jobs[0].turns[0]], config.max_new_tokens)
  for i, job in enumerate(jobs):
    total, learnt = _session(config, decoder, job.turns, bandit_state, i)
    bandit_state = learnt if config.carry_over else None
    totals.append(total)
  return {
    'domains': [job.label for job in jobs],
    **{name: [total[name] for total in totals] for name in totals[0]},
  }


def _seed(*numbers):
  """Another one for each prompt: a batch's bandit knows no request id."""
  return int(np.random.SeedSequence(numbers).generate_state(1)[0])


def _session(config, decoder, turns, bandit_state, request_id):
  """Decodes turn after turn; the bandit goes on with what it has learnt."""
  outputs, seconds = [], 0.0
  for i, tokens in enumerate(turns):
    (output,), bandit_state, each = looped.decode(
      decoder,
      [tokens],
      config.max_new_tokens,
      bandit_state,
      seed=_seed(config.seed, request_id, i),
      request_ids=[request_id],
    )
    seconds += each
    outputs.append(output)
  total = {
    'emitted': sum(len(output.tokens) for output in outputs),
    'rounds': sum(output.rounds for output in outputs),
    'num_catch_up_tokens': sum(
      output.num_catch_up_tokens for output in outputs
    ),
    'pulls': sum(output.pulls for output in outputs).tolist(),
    'seconds': seconds,
  }
  return total, bandit_state


def _best(lines):
  """For each prompt the arm with the fewest rounds for an emitted token."""
  rounds, emitted = (
    np.array([line[name] for line in lines]) for name in ('rounds', 'emitted')
  )
  return (rounds / np.maximum(emitted, 1)).argmin(axis=0)


def _routers(config, family, sets):
  """For each set the arms that a router picks, and whether it is right.

  Arms are named after the domains that they are for. Of other domains, it is
  None.
  """
  domains = [spec.drafter for spec in arms_lib.specs(config.arms)]
  if not config.data_dir:
    raise ValueError('router needs data_dir, whose train files it learns from.')
  if len(set(domains)) < len(domains) or 'all' in domains:
    raise ValueError(
      f'router needs arms named after different domains, got {domains}.'
    )
  prompts, labels = prompt_sets.training(config, family, domains)
  vocab_size = family.tokenizer.vocab_size
  router = routing.fit(prompts, labels, len(domains), vocab_size)
  result = {}
  for label, jobs in sets.items():
    chosen = routing.route(router, [job.turns[0] for job in jobs])
    right = [
      domains[arm] == job.label if job.label in domains else None
      for arm, job in zip(chosen, jobs)
    ]
    result[label] = chosen, right
  return result


def _left_to(lines, chosen):
  """What was logged of the arm that is chosen for each prompt."""
  names = ('emitted', 'rounds', 'num_catch_up_tokens', 'seconds')
  row = {
    name: [lines[arm][name][i] for i, arm in enumerate(chosen)]
    for name in names
  }
  shares = np.eye(len(lines), dtype=int)[chosen]
  return row | {'pulls': shares * np.array(row['rounds'])[:, None]}


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
      right = [row['right'][i] for i in here] if 'right' in row else []
      right = [each for each in right if each is not None]
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
          'num_catch_up_tokens': int(
            sum(row['num_catch_up_tokens'][i] for i in here)
          ),
          'pulls': ' '.join(f'{each / pulls.sum():.2f}' for each in pulls),
          **({'accuracy': float(np.mean(right))} if right else {}),
        }
      )
  return rows
