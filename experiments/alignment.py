"""What rewards show of arms, round by round (MetaSD): Table 2, Figures 3, 5-7.

Every arm alone shows how clearly the rewards BE (accepted over drafted tokens)
and BD (acceptance by raw probabilities) separate it from the best one. Bandits,
one for each prompt, show how soon they play that one.
"""

import os
from typing import NamedTuple

import jax
import numpy as np
import tqdm

from experiments import arms as arms_lib
from experiments import batches
from experiments import plots
from experiments import prompt_sets
from experiments import results
from specjax import checks
from specjax import decoding
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax.theory import constant

# What identifies a line of `metrics.jsonl`.
_SETTINGS = ('prompts', 'way', 'arms', 'config')
# Fields of the config that `config` leaves out: settings of their own, and what
# changes nothing of a trace.
_OWN = (
  'arms',
  'bandits',
  'sets',
  'prompts_file',
  'share_rounds',
  'batch_size',
)
MAY_CHANGE = _OWN
_REWARDS = {'BE': 'efficiency', 'BD': 'raw_acceptance'}


class Trace(NamedTuple):
  """Rounds of some prompts; NaN where a prompt was done."""

  arm: np.ndarray  # [P, T]
  emitted: np.ndarray  # [P, T] tokens
  efficiency: np.ndarray  # [P, T] accepted over drafted tokens
  raw_acceptance: np.ndarray  # [P, T] mean of 1 - TV over drafted tokens


def run(config, workdir):
  """Traces every set of prompts in every way; goes on where it stopped."""
  names = [spec.name for spec in arms_lib.specs(config.arms)]
  family = families.load(config.family)
  sets = prompt_sets.build(config, family)
  _check(config, names, sets)
  traces = _trace_sets(config, workdir, family, names, sets)
  rows = []
  for (label, domain), ways in traces.items():
    arms = {name: ways[name] for name in names}
    best = best_arm(arms)
    place = {'prompts': label, 'domain': domain}
    rows += [{'part': 'rewards', **place} | row for row in rewards(arms, best)]
    rows += [{'part': 'rounds', **place} | row for row in rounds(arms)]
    for bandit in config.bandits:
      played = plays(ways[bandit], names.index(best))
      head = {'part': 'best_arm', **place, 'bandit': bandit, 'best_arm': best}
      rows.append(head | shares(played, config.share_rounds))
  results.save(os.path.join(workdir, 'results.json'), rows)
  for part in ('rewards', 'best_arm'):  # The plot shows rounds better.
    print(results.table([row for row in rows if row['part'] == part]), '\n')
  _plot(workdir, names, list(config.bandits), traces)


def best_arm(arms: dict[str, Trace]) -> str:
  """Returns the arm that emits the most tokens a round, played alone."""
  return max(arms, key=lambda name: pooled(arms[name].emitted)[0])


def pooled(values: np.ndarray) -> tuple[float, float]:
  """Returns the mean over all live rounds, and its standard error.

  The error is that of a ratio of sums over independent prompts.

  Args:
    values: `[P, T]`, NaN where a prompt was done.
  """
  return metrics.ratio(np.nansum(values, 1), (~np.isnan(values)).sum(1))


def by_round(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Returns, for each round, mean, standard deviation and number of prompts.

  Only of rounds in which at least half of the prompts are live: those that go
  on for long are of another kind.

  Args:
    values: `[P, T]`, NaN where a prompt was done.
  """
  live = (~np.isnan(values)).sum(0)
  many = live >= len(values) / 2
  values = values[:, many]
  return np.nanmean(values, 0), np.nanstd(values, 0), live[many]


def rewards(arms: dict[str, Trace], best: str) -> list[dict]:
  """Returns a row for each arm and reward: Table 2.

  `signal` is equation (6): how clearly the reward separates the arm from the
  best one, which itself has none; nor is there one if neither reward ever
  varies.

  Args:
    arms: traces of each arm alone.
    best: name of the best arm.
  """
  rows = []
  for name, trace in arms.items():
    efficiency, efficiency_error = pooled(trace.emitted)
    for reward, field in _REWARDS.items():
      values, others = getattr(trace, field), getattr(arms[best], field)
      mean, error = pooled(values)
      variances = float(np.nanvar(values)), float(np.nanvar(others))
      signal = None
      if name != best and max(variances):
        gap = pooled(others)[0] - mean
        signal = constant.feedback_signal(gap, *variances)
      rows.append(
        {
          'arm': name,
          'block_efficiency': efficiency,
          'block_efficiency_error': efficiency_error,
          'reward': reward,
          'mean': mean,
          'standard_error': error,
          'variance': variances[0],
          'zeros': pooled(_where_live(values, values == 0))[0],
          'signal': signal,
        }
      )
  return rows


def rounds(arms: dict[str, Trace]) -> list[dict]:
  """Returns a row for each arm and round: BD as in Figures 6 and 7."""
  return [
    {
      'arm': name,
      'round': i,
      'mean': float(mean),
      'deviation': float(deviation),
      'live': int(live),
    }
    for name, trace in arms.items()
    for i, (mean, deviation, live) in enumerate(
      zip(*by_round(trace.raw_acceptance)), start=1
    )
  ]


def plays(trace: Trace, arm: int) -> np.ndarray:
  """Returns `[P, T]` 1 where the arm was played, 0 where another one was."""
  return _where_live(trace.arm, trace.arm == arm)


def shares(played: np.ndarray, at: tuple[int, ...]) -> dict:
  """Returns how often the best arm was played: Figure 3 in numbers.

  `settled` is the round, from 1, from which on at least half of the prompts
  play it, for as long as half of the prompts are live; None if there is none.

  Args:
    played: `[P, T]` from `plays`.
    at: rounds, from 1, whose shares and standard errors are returned.
  """
  share, error = _share_by_round(played)
  row = {}
  for i in at:
    some = i <= len(share)
    row[f'share_{i}'] = float(share[i - 1]) if some else None
    row[f'error_{i}'] = float(error[i - 1]) if some else None
  settled = 1 + max(np.flatnonzero(share < 0.5) + 1, default=0)
  row['share'], row['standard_error'] = pooled(played)
  row['settled'] = int(settled) if settled <= len(share) else None
  return row


def _share_by_round(played):
  """Means over prompts, and their standard errors."""
  share, deviation, live = by_round(played)
  return share, deviation / np.sqrt(live)


def _where_live(values, chosen):
  return np.where(np.isnan(values), np.nan, chosen)


def _trace_sets(config, workdir, family, names, sets):
  """Returns traces by set and domain, and then by way, logged or played now."""
  done = results.done(workdir, _SETTINGS)
  traces = {}
  for way in tqdm.tqdm([*names, *config.bandits], desc='ways to decode'):
    decoder = _decoder(config, family, names, way)
    for label, jobs in sets.items():
      settings = _settings(config, label, names, way)
      line = done.get(tuple(settings.values()))
      if line is None:
        prompts = [job.turns[0] for job in jobs]
        line = settings | _trace(config, decoder, prompts)
        results.log(workdir, line)
      domains = [job.label for job in jobs]
      for domain in dict.fromkeys(domains):
        here = [i for i, each in enumerate(domains) if each == domain]
        ways = traces.setdefault((label, domain), {})
        ways[way] = _read(line, here)
  return traces


def _settings(config, label, names, way):
  fields = prompt_sets.fields(config, label)
  members = names if way in config.bandits else ()
  fingerprint = results.fingerprint(fields, _OWN)
  values = label, way, ', '.join(members), fingerprint
  return dict(zip(_SETTINGS, values, strict=True))


def _decoder(config, family, names, way):
  """Of one arm alone, or of all with a bandit for each row."""
  sampling = sampling_lib.Sampling(config.temperature)
  alone = way in names
  arms = arms_lib.build(
    family,
    [config.arms[names.index(way)]] if alone else config.arms,
    sampling,
    config.datastore,
    catch_up='lazy' if alone else arms_lib.parse(way).catch_up,
  )
  return arms_lib.decoder(
    family,
    arms,
    'fixed' if alone else way,
    sampling,
    max_length=config.max_length,
    per_row=not alone,
  )


def _trace(config, decoder, prompts):
  """Returns for each prompt a list of what its live rounds were."""
  lists = {field: [] for field in Trace._fields}
  chunks = batches.full(prompts, config.batch_size)
  for batch, ids, num in tqdm.tqdm(chunks, unit='batch', leave=False):
    state = decoder.init(
      batch, config.max_new_tokens, seed=config.seed, request_ids=ids
    )
    state, infos = decoding.trace(
      decoder.round_fn, decoder.params, state, config.num_rounds
    )
    decoder.results(batch, state)  # Raises what the rounds cannot.
    infos = jax.device_get(infos)
    efficiency = infos.num_accepted / np.maximum(infos.depth, 1)
    trace = Trace(
      infos.arm, infos.num_emitted, efficiency, infos.raw_acceptance
    )
    for row in range(num):
      live = infos.live[:, row]
      for field, values in zip(Trace._fields, trace):
        lists[field].append(_rounded(values[live, row]))
  return lists


def _rounded(values):
  """Short in JSON."""
  return np.round(values.astype(float), 6).tolist()


def _read(line, here):
  """The trace of the chosen prompts of a logged line."""
  longest = max(len(line['arm'][i]) for i in here)

  def padded(lists):
    values = np.full((len(here), longest), np.nan)
    for row, i in zip(values, here):
      row[: len(lists[i])] = lists[i]
    return values

  return Trace(*(padded(line[field]) for field in Trace._fields))


def _plot(workdir, names, bandits, traces):
  titles = {place: ': '.join(place) for place in traces}
  draw = lambda of: {titles[place]: of(ways) for place, ways in traces.items()}
  path = lambda name: os.path.join(workdir, f'{name}.png')
  for reward, field in _REWARDS.items():
    values = draw(lambda ways, field=field: _live(ways, names, field))
    plots.plot_boxes(values, f'{reward} of a round', path(reward.lower()))
  bands = draw(
    lambda ways: {
      name: by_round(ways[name].raw_acceptance)[:2] for name in names
    }
  )
  plots.plot_bands(bands, 'BD ± standard deviation', path('bd_by_round'))
  bands = draw(lambda ways: _curves(ways, names, bandits))
  label = 'share of prompts that play the best arm'
  plots.plot_bands(bands, label, path('best_arm'))


def _live(ways, names, field):
  values = {name: getattr(ways[name], field) for name in names}
  return {name: each[~np.isnan(each)] for name, each in values.items()}


def _curves(ways, names, bandits):
  """Shares of the best arm, and their standard errors."""
  best = names.index(best_arm({name: ways[name] for name in names}))
  return {
    bandit: _share_by_round(plays(ways[bandit], best)) for bandit in bandits
  }


def _check(config, names, sets):
  for entry in config.bandits:
    arms_lib.parse(entry)
  if len(set(names)) < len(names):
    raise ValueError(f'arms must differ in name, got {", ".join(names)}.')
  for name in ('batch_size', 'num_rounds', 'share_rounds'):
    checks.check_range(name, config[name], 1)
  for label, jobs in sets.items():
    if any(len(job.turns) > 1 for job in jobs):
      raise ValueError(f'turns of sets.{label} must be 1: prompts are traced.')
