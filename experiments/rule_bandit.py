"""A bandit over rules: lossless, lossy and cascades as arms of one drafter.

The reward weighs emitted tokens against fidelity (the mean of 1 - TV between
what is sampled and the target): no threshold sets how much a token may cost,
but a weight. Each row of a batch learns on its own.
"""

from collections.abc import Sequence
import json
import os
from typing import Any

import jax
import numpy as np
import tqdm

from experiments import arms as arms_lib
from experiments import batches
from experiments import cascades
from experiments import methods
from experiments import plots
from experiments import results
from specjax import base
from specjax import checks
from specjax import decoding
from specjax import evaluation
from specjax import families
from specjax import metrics
from specjax import registry
from specjax import rewards as rewards_lib
from specjax import sampling as sampling_lib
from specjax.evaluation import scoring

# What identifies a line of `metrics.jsonl`.
_SETTINGS = ('label', 'weight', 'arms', 'learners', 'config')
# Fields of the config that `config` leaves out: settings of their own, and what
# changes nothing of a trace.
_OWN = (
  'arms',
  'draft_length',
  'bandits',
  'weights',
  'batch_size',
  'carry_over',
  'metric',
)
MAY_CHANGE = _OWN
# Rounds between two looks at whether all prompts are done.
_STRIDE = 16

Arms = dict[str, tuple[base.Arm, base.Params]]


def run(config, workdir):
  """Plays each arm alone, and each bandit with each weight.

  Writes a row for each weight and way to `results.json`, and a plot; goes on
  where it stopped.
  """
  _check(config)
  family = families.load(config.family)
  arms = build(config, family)
  jobs = cascades.read_jobs(config, family.tokenizer, config.prompts)
  logged = _trace_all(config, workdir, family, arms, jobs)
  rows = table(config, arms, logged, [job.reference for job in jobs])
  results.write(workdir, rows)
  path = os.path.join(workdir, 'quality.png')
  plots.plot_frontier(
    rows, 'target_calls', config.metric, path, panels_by=('weight',)
  )


def build(config: Any, family: families.Family) -> Arms:
  """Returns the arms of `config.arms`, by label."""
  arms = {}
  for label, entry in entries(config).items():
    length = entry.pop('draft_length')
    setup = cascades.setup(config, family, config.temperature, length)
    arms[label] = methods.arm(setup, **entry)
  return arms


def entries(config: Any) -> dict[str, dict[str, Any]]:
  """Returns `config.arms` by label: `method`, `alpha`, `draft_length`, options.

  By default, the method is the label, alpha is 0, and the length the config's.
  """
  default = {'alpha': 0.0, 'draft_length': config.draft_length}
  return {
    label: {'method': label, **default, **dict(entry)}
    for label, entry in config.arms.items()
  }


def decoder(
  config: Any,
  family: families.Family,
  arms: Arms,
  bandit: str = 'fixed',
  weight: float | None = None,
) -> decoding.Decoder:
  """Builds a decoder in which each row has a bandit.

  Args:
    config: of the experiment.
    family: whose models the arms are of.
    arms: from `build`, all or some.
    bandit: an entry that `arms.parse` takes; the first arm always, by default.
    weight: of the fidelity in the reward.
  """
  return arms_lib.decoder(
    family,
    list(arms.values()),
    bandit,
    sampling_lib.Sampling(config.temperature),
    reward=None if weight is None else rewards_lib.tradeoff(weight),
    max_length=config.max_length,
    per_row=True,
  )


def table(
  config: Any,
  arms: Arms,
  logged: dict[tuple[str, float | None], dict[str, Any]],
  references: Sequence[str],
) -> list[dict[str, Any]]:
  """Returns a row for each weight and way.

  `over_best` is the mean reward of a round less that of the arm for which it is
  the highest, with the standard error of the difference on the same prompts.

  Args:
    config: of the experiment.
    arms: from `build`.
    logged: lines by way and weight, which is None for an arm alone.
    references: of the prompts.
  """
  depth = max(arm.drafter.topology.depth for arm, _ in arms.values())
  rows = []
  for weight in config.weights:
    lines = {name: logged[name, None] for name in arms}
    lines |= {bandit: logged[bandit, weight] for bandit in config.bandits}
    sums = {
      label: (_rewards(line, weight, depth), _rounds(line))
      for label, line in lines.items()
    }
    best = max(arms, key=lambda name: metrics.ratio(*sums[name])[0])
    for label, line in lines.items():
      reward, error = metrics.ratio(*sums[label])
      gaps = _linearised(*sums[label]) - _linearised(*sums[best])
      gap, gap_error = metrics.ratio(gaps, np.ones(len(gaps)))
      row = {
        'weight': weight,
        'label': label,
        'reward': reward,
        'reward_error': error,
        'best_arm': best,
        'over_best': gap,
        'over_best_error': gap_error,
      }
      rows.append(row | _summary(config, line, list(arms), references))
  return rows


def _summary(config, line, names, references):
  """What does not depend on how rewards are weighed."""
  rounds = _rounds(line)
  score = evaluation.METRICS[config.metric]()
  efficiency, efficiency_error = metrics.ratio(_sums(line['emitted']), rounds)
  fidelity, fidelity_error = metrics.ratio(_sums(line['fidelity']), rounds)
  return {
    'quality': float(score(line['texts'], references).total),
    'quality_error': scoring.standard_error(
      score, line['texts'], references, config.seed
    ),
    'block_efficiency': efficiency,
    'block_efficiency_error': efficiency_error,
    'target_calls': 1 / efficiency,  # For an emitted token.
    'fidelity': fidelity,
    'fidelity_error': fidelity_error,
    'rounds': int(rounds.sum()),
    'pulls': ' '.join(str(line['pulls'].get(name, 0)) for name in names),
  }


def _rewards(line, weight, depth):
  """`[P]` sums over rounds; `depth` is that of the deepest of all arms."""
  emitted, fidelity = (
    np.concatenate(line[name]) for name in ('emitted', 'fidelity')
  )
  nothing = np.zeros(len(emitted))
  info = base.RoundInfo(*[nothing] * len(base.RoundInfo._fields))
  info = info._replace(
    num_emitted=emitted,
    fidelity=fidelity,
    tokens=np.zeros((len(emitted), depth + 1)),
  )
  rewards = np.asarray(rewards_lib.tradeoff(weight)(info), np.float64)
  rounds = _rounds(line)
  return np.add.reduceat(rewards, np.cumsum(rounds) - rounds)


def _linearised(sums, rounds):
  """`[P]` each prompt's value of the mean `sums / rounds`, linearised."""
  mean = metrics.ratio(sums, rounds)[0]
  return mean + (sums - mean * rounds) / rounds.mean()


def _sums(lists):
  return np.array([sum(values) for values in lists])


def _rounds(line):
  return np.array([len(values) for values in line['emitted']])


def _trace_all(config, workdir, family, arms, jobs):
  """Returns lines by way and weight, logged or traced now."""
  ways = {(name, None): {name: arms[name]} for name in arms}
  ways |= {
    (bandit, weight): arms
    for bandit in config.bandits
    for weight in config.weights
  }
  decoders = {
    (label, weight): decoder(
      config, family, members, 'fixed' if weight is None else label, weight
    )
    for (label, weight), members in ways.items()
  }
  done = results.done(workdir, _SETTINGS)
  logged = {}
  for way, members in tqdm.tqdm(ways.items(), desc='ways to decode'):
    settings = _settings(config, *way, members)
    line = done.get(tuple(settings.values()))
    if line is None:
      line = settings | _trace(config, family, decoders[way], members, jobs)
      results.log(workdir, line)
    logged[way] = line
  return logged


def _settings(config, label, weight, members):
  specs = entries(config)
  arms = json.dumps({name: specs[name] for name in members})
  # What is carried over depends on which prompts share a row.
  carries = config.carry_over and weight is not None
  learners = config.batch_size if carries else 0
  values = label, weight, arms, learners, results.fingerprint(config, _OWN)
  return dict(zip(_SETTINGS, values, strict=True))


def _trace(config, family, made, members, jobs):
  """What every prompt got, and its rounds."""
  line = {'texts': [], 'emitted': [], 'fidelity': []}
  pulls = np.zeros(len(members), int)
  prompts, bandit_state = [job.tokens for job in jobs], None
  for batch, ids, num in batches.full(prompts, config.batch_size):
    state = made.init(
      batch,
      config.max_new_tokens,
      seed=config.seed,
      request_ids=ids,
      bandit_state=bandit_state,
    )
    state, infos = _play(made, state)
    bandit_state = state.bandit if config.carry_over else None
    for row, output in enumerate(made.results(batch, state)[:num]):
      live = infos.live[:, row]
      fidelity = infos.fidelity[live, row].astype(float)
      line['texts'].append(family.tokenizer.decode(output.tokens))
      line['emitted'].append(infos.num_emitted[live, row].tolist())
      line['fidelity'].append(fidelity.round(6).tolist())
      pulls += output.pulls
  return line | {'pulls': dict(zip(members, pulls.tolist()))}


def _play(made, state):
  """Plays to the end; returns the infos of all rounds, too."""
  infos = []
  while not state.done.all():
    state, info = decoding.trace(made.round_fn, made.params, state, _STRIDE)
    infos.append(jax.device_get(info))
  return state, jax.tree.map(lambda *each: np.concatenate(each), *infos)


def _check(config):
  if not config.arms:
    raise ValueError('arms must hold at least one arm, got none.')
  if not config.weights:
    raise ValueError('weights must hold at least one weight, got none.')
  checks.check_range('weights', config.weights, 0, 1)
  for name, least in (('prompts', 2), ('max_new_tokens', 1), ('batch_size', 1)):
    checks.check_range(name, config[name], least)
  registry.lookup(evaluation.METRICS, 'metric', config.metric)()
  for label, entry in entries(config).items():
    if entry['method'] == 'lossy':
      raise ValueError(
        f"method of arms.{label} must not be 'lossy': it is a verifier without "
        "a goal, and so gives no fidelity. 'lossy_tuned' does."
      )
  for entry in config.bandits:
    choice = arms_lib.parse(entry)
    if (choice.reward, choice.catch_up, choice.warm_start) != (
      '',
      'lazy',
      0,
    ):
      raise ValueError(
        'bandits must be lazy and learn from the trade-off of what they play, '
        f"'name[:option=value,...]', got {entry!r}."
      )
  both = set(config.arms) & set(config.bandits)
  if both:
    raise ValueError(f'No arm may be called as a bandit is, got {min(both)!r}.')
