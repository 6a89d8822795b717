"""Quality against cost: deferral rules and baselines on one axis.

Speculative cascades (Narasimhan et al. 2024), Table 2 and the figures of
quality against latency and against rejections.
"""

from collections.abc import Sequence
import os
from typing import Any
from typing import NamedTuple

import numpy as np
import tqdm

from experiments import methods
from experiments import plots
from experiments import results
from specjax import base
from specjax import evaluation
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib
from specjax.evaluation import likelihood
from specjax.evaluation import scoring

# What tells a point from the others of its plot.
_POINT = ('temperature', 'draft_length', 'label', 'alpha')


class Job(NamedTuple):
  """A prompt, and what it should be answered."""

  tokens: list[int]
  reference: str


def run(config, workdir):
  """Measures a point for each method, alpha, temperature and draft length.

  Writes the points to `results.json`, what they say of each method to
  `summary.json`, and two plots.
  """
  family = families.load(config.family)
  jobs = read_jobs(config, family.tokenizer)
  without = ('methods', 'temperatures', 'draft_lengths')
  made_by = results.fingerprint(config, without)
  done = results.done(workdir, (*_POINT, 'made_by'))
  rows = []
  for setup in setups(config, family):
    at = (setup.sampling.temperature, setup.draft_length)
    for label, entry in entries(config).items():
      keys = {alpha: (*at, label, alpha, made_by) for alpha in entry['alphas']}
      left = [alpha for alpha, key in keys.items() if key not in done]
      if left:
        entry = entry | {'alphas': left}
        for point in measure(setup, entry, jobs, config.metric, label):
          row = dict(zip(_POINT, keys[point['alpha']])) | point
          done[keys[point['alpha']]] = row
          results.log(workdir, row | {'made_by': made_by})
      rows += [done[key] for key in keys.values()]
  rows = [{k: v for k, v in row.items() if k != 'made_by'} for row in rows]
  results.write(workdir, rows)
  table = summary(rows)
  results.save(os.path.join(workdir, 'summary.json'), table)
  print(results.table(table))
  for cost in ('latency', 'rejection_rate'):
    path = os.path.join(workdir, f'{cost}.png')
    plots.plot_frontier(rows, cost, config.metric, path)


def entries(config: Any) -> dict[str, dict[str, Any]]:
  """Returns `config.methods` by label: `method`, `alphas` and options.

  The method is the label, and alphas are `(0.0,)`, where they are not given.

  Raises:
    ValueError: a method is unknown.
  """
  defaults = {
    label: {'method': label, 'alphas': (0.0,)} for label in config.methods
  }
  made = {
    label: defaults[label] | dict(entry.items())
    for label, entry in config.methods.items()
  }
  for entry in made.values():
    base.lookup(methods.METHODS, 'method', entry['method'])
  return made


def setups(config: Any, family: families.Family) -> list[methods.Setup]:
  """Returns the setup of each temperature and draft length."""
  return [
    methods.Setup(
      family,
      base.lookup(family.drafters, 'drafter', config.draft),
      sampling_lib.Sampling(temperature),
      length,
      config.max_new_tokens,
      config.max_length,
      config.seed,
    )
    for temperature in config.temperatures
    for length in config.draft_lengths
  ]


def read_jobs(config: Any, tokenizer, split: str = 'eval') -> list[Job]:
  """Returns prompts of `config.domain` that fit, shuffled, with references."""
  examples = examples_lib.of_domain(
    examples_lib.read_split(config.data_dir, split), config.domain
  )
  order = np.random.default_rng(config.seed).permutation(len(examples))
  jobs = [
    Job(tokenizer.encode_prompt(each.prompt), each.response)
    for each in (examples[i] for i in order)
  ]
  room = config.max_length - config.max_new_tokens
  jobs = [job for job in jobs if len(job.tokens) <= room][: config.prompts]
  if not jobs:
    raise ValueError(
      f'Nothing of {config.domain!r} fits: max_length={config.max_length} must '
      f'hold prompts and {config.max_new_tokens} new tokens.'
    )
  return jobs


def measure(
  setup: methods.Setup,
  entry: dict[str, Any],
  jobs: Sequence[Job],
  metric: str,
  label: str = '',
) -> list[dict[str, Any]]:
  """Returns a point for each alpha of a method.

  The latency is that of the method over that of the target alone, which takes
  its turn with every prompt: clocks drift.
  """
  options = {k: v for k, v in entry.items() if k not in ('method', 'alphas')}
  alphas = entry['alphas']
  plays = methods.plays(setup, entry['method'], alphas, **options)
  plays += methods.plays(setup, 'target', (0.0,))
  runs = [[] for _ in plays]
  compiled = set()
  for number, job in enumerate(tqdm.tqdm(jobs, desc=label, unit='prompt')):
    width = (len(job.tokens) - 1).bit_length()
    for play, made in zip(plays, runs):
      if (play, width) not in compiled:
        compiled.add((play, width))
        play(job.tokens, number)
      made.append(play(job.tokens, number))
  *own, reference = runs
  return [
    {'alpha': alpha} | _point(setup, jobs, made, reference, metric)
    for alpha, made in zip(alphas, own)
  ]


def _point(setup, jobs, runs, reference, metric):
  """Quality and costs of one alpha."""
  outputs = [run.result for run in runs]
  texts = [setup.family.tokenizer.decode(each.tokens) for each in outputs]
  references = [job.reference for job in jobs]
  score = evaluation.METRICS[metric]()
  target = setup.family.target
  said = likelihood.likelihood(
    target.functions,
    target.params,
    [
      ([*job.tokens, *each.tokens], len(job.tokens))
      for job, each in zip(jobs, outputs)
    ],
  )
  tokens = sum(len(each.tokens) for each in outputs)
  spent, plain = (
    np.array([run.seconds for run in each]) for each in (runs, reference)
  )
  return {
    'quality': float(score(texts, references).total),
    'quality_error': scoring.standard_error(
      score, texts, references, setup.seed
    ),
    'target_nats': float(said.nats.sum() / said.num_tokens.sum()),
    'latency': float(spent.sum() / plain.sum()),
    'latency_error': float(metrics.ratio(spent, plain)[1]),
    'rejection_rate': metrics.rejection_rate(outputs),
    'target_calls': sum(each.rounds for each in outputs) / tokens,
    'tokens': tokens,
    'prompts': len(jobs),
  }


def summary(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
  """Returns for each method what its points say beside the target's.

  `speed_up` is the largest at a quality of the target's or better, None if
  there is no such point; `best_quality` that of a latency of the target's or
  less; `best_share` the share of latencies, from the lowest of all methods to
  the target's, at which no method has a better point of no more latency.
  """
  table = []
  panels = dict.fromkeys(
    (row['temperature'], row['draft_length']) for row in rows
  )
  for panel in panels:
    own = [
      row for row in rows if (row['temperature'], row['draft_length']) == panel
    ]
    bar = [row['quality'] for row in own if row['label'] == 'target']
    grid = np.linspace(min(row['latency'] for row in own), 1, 101)
    fronts = {
      label: _front([row for row in own if row['label'] == label], grid)
      for label in dict.fromkeys(row['label'] for row in own)
    }
    best = np.max(list(fronts.values()), axis=0)
    for label, front in fronts.items():
      points = [row for row in own if row['label'] == label]
      fast = [row['quality'] for row in points if row['latency'] <= 1]
      good = (
        [1 / row['latency'] for row in points if row['quality'] >= max(bar)]
        if bar
        else []
      )
      table.append(
        {
          'temperature': panel[0],
          'draft_length': panel[1],
          'label': label,
          'speed_up': max(good, default=None),
          'best_quality': max(fast, default=None),
          'best_share': float(((front >= best) & np.isfinite(front)).mean()),
        }
      )
  return table


def _front(points, latencies):
  """The best quality that a method has at each latency or less."""
  return np.array(
    [
      max(
        (row['quality'] for row in points if row['latency'] <= each),
        default=-np.inf,
      )
      for each in latencies
    ]
  )
