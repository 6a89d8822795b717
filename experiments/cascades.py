"""Quality against cost: deferral rules and baselines on one axis.

Speculative cascades (Narasimhan et al. 2024), Table 2 and the figures of
quality against latency and against rejections.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import os
from typing import Any
from typing import NamedTuple

import jax
import numpy as np
import tqdm

from experiments import methods
from experiments import plots
from experiments import results
from specjax import evaluation
from specjax import families
from specjax import metrics
from specjax import registry
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib
from specjax.evaluation import likelihood
from specjax.evaluation import scoring

# What identifies a point of a plot.
_POINT = ('temperature', 'draft_length', 'label', 'alpha')
# Fields that show how good a point is, and what plots call them.
_QUALITIES = {'quality': '', 'target_nats': 'nats a token, by the target'}
# Fields of the config that rows hold themselves.
_OWN = ('methods', 'temperatures', 'draft_lengths', 'alphas')
MAY_CHANGE = ('methods', 'temperatures', 'draft_lengths')


class Job(NamedTuple):
  """A prompt, and what it should be answered."""

  tokens: list[int]
  reference: str


class Line(NamedTuple):
  """A method with some alphas: a line of a plot."""

  setup: methods.Setup
  label: str
  entry: dict[str, Any]  # method, alphas and options


def run(config, workdir):
  """Measures a point for each method, alpha, temperature and draft length.

  Writes the points to `results.json`, what they show of each method to
  `summary.json`, and plots: of the metric and of the target's likelihood, each
  against latency and against the rate of rejections.
  """
  family = families.load(config.family)
  lines = [
    Line(each, label, entry)
    for each in setups(config, family)
    for label, entry in entries(config).items()
  ]
  jobs = read_jobs(config, family.tokenizer, config.prompts)
  rows = list(points(config, workdir, lines, jobs))
  results.write(workdir, rows)
  table = [row for by in _QUALITIES for row in summary(rows, by)]
  results.save(os.path.join(workdir, 'summary.json'), table)
  print(results.table(table))
  for cost in ('latency', 'rejection_rate'):
    for quality, name in _QUALITIES.items():
      path = os.path.join(workdir, f'{quality}_{cost}.png')
      label = name or config.metric
      plots.plot_frontier(rows, cost, label, path, quality=quality)


def points(
  config: Any,
  workdir: str,
  lines: Sequence[Line],
  jobs: Sequence[Job],
  without: Sequence[str] = (),
) -> Iterator[dict[str, Any]]:
  """Yields a row for each alpha of each line, logged or measured now.

  Args:
    config: whose other fields a logged row must agree with.
    workdir: of the log.
    lines: what to measure.
    jobs: what to measure it on.
    without: fields of the config that these rows do not depend on.

  Raises:
    ValueError: a line or the metric is refused, before any is measured.
  """
  registry.lookup(evaluation.METRICS, 'metric', config.metric)()
  for line in lines:
    methods.plays(line.setup, **line.entry)
  done = results.done(workdir, (*_POINT, 'made_by'))
  reference = None
  for before, line in zip((None, *lines), lines):
    if before is None or before.setup is not line.setup:
      jax.clear_caches()  # Many programs are many maps of memory.
      (reference,) = methods.plays(line.setup, 'target', (0.0,))
    said = dict(config.items()) | dict(config.methods.get(line.label, {}))
    made_by = results.fingerprint(said, (*_OWN, *without))
    at = line.setup.sampling.temperature, line.setup.draft_length, line.label
    keys = {alpha: (*at, alpha, made_by) for alpha in line.entry['alphas']}
    left = [alpha for alpha, key in keys.items() if key not in done]
    if left:
      entry = line.entry | {'alphas': left}
      for point in measure(
        line.setup, entry, jobs, config.metric, reference, line.label
      ):
        key = keys[point['alpha']]
        done[key] = dict(zip((*_POINT, 'made_by'), key)) | point
        results.log(workdir, done[key])
    for key in keys.values():
      yield {k: v for k, v in done[key].items() if k != 'made_by'}


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
    registry.lookup(methods.METHODS, 'method', entry['method'])
  return made


def setups(config: Any, family: families.Family) -> list[methods.Setup]:
  """Returns the setup of each temperature and draft length."""
  return [
    setup(config, family, temperature, length)
    for temperature in config.temperatures
    for length in config.draft_lengths
  ]


def setup(
  config: Any, family: families.Family, temperature: float, draft_length: int
) -> methods.Setup:
  """Returns what all methods of one plot share."""
  return methods.Setup(
    family,
    registry.lookup(family.drafters, 'drafter', config.draft),
    sampling_lib.Sampling(temperature),
    draft_length,
    config.max_new_tokens,
    config.max_length,
    config.seed,
  )


def read_jobs(config: Any, tokenizer, num_prompts: int) -> list[Job]:
  """Returns prompts of `config.domain` that fit, shuffled, with references.

  They are the first `num_prompts`, or all if there are no more.
  """
  examples = examples_lib.of_domain(
    examples_lib.read_split(config.data_dir, 'eval'), config.domain
  )
  order = np.random.default_rng(config.seed).permutation(len(examples))
  jobs = [
    Job(tokenizer.encode_prompt(each.prompt), each.response)
    for each in (examples[i] for i in order)
  ]
  room = config.max_length - config.max_new_tokens
  jobs = [job for job in jobs if len(job.tokens) <= room][:num_prompts]
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
  reference: methods.Play,
  label: str = '',
) -> list[dict[str, Any]]:
  """Returns a point for each alpha of a method.

  The latency is that of the method's loop over that of `reference`, the target
  alone, which takes its turn with every prompt: clocks drift. The total counts
  what it takes to read the prompts, too.
  """
  plays = [*methods.plays(setup, **entry), reference]
  runs = [[] for _ in plays]
  compiled = set()
  for number, job in enumerate(tqdm.tqdm(jobs, desc=label, unit='prompt')):
    width = (len(job.tokens) - 1).bit_length()
    for play, made in zip(plays, runs):
      if (play, width) not in compiled:
        compiled.add((play, width))
        play(job.tokens, number)
      made.append(play(job.tokens, number))
  *own, plain = runs
  return [
    {'alpha': alpha} | _point(setup, jobs, made, plain, metric)
    for alpha, made in zip(entry['alphas'], own)
  ]


def _point(setup, jobs, runs, plain, metric):
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
  nats, nats_error = metrics.ratio(said.nats, said.num_tokens)
  tokens = sum(len(each.tokens) for each in outputs)
  spent, usual = (
    np.array([(run.seconds, run.reading) for run in each])
    for each in (runs, plain)
  )
  drafted = sum(each.drafted.sum() for each in outputs)
  return {
    'quality': float(score(texts, references).total),
    'quality_error': scoring.standard_error(
      score, texts, references, setup.seed
    ),
    'target_nats': nats,
    'target_nats_error': nats_error,
    'latency': float(spent[:, 0].sum() / usual[:, 0].sum()),
    'latency_error': metrics.ratio(spent[:, 0], usual[:, 0])[1],
    'total_latency': float(spent.sum() / usual.sum()),
    'rejection_rate': metrics.rejection_rate(outputs) if drafted else None,
    'target_calls': sum(run.target_calls for run in runs) / tokens,
    'tokens': tokens,
    'prompts': len(jobs),
  }


def summary(
  rows: Sequence[dict[str, Any]], quality: str = 'quality'
) -> list[dict[str, Any]]:
  """Returns for each method what its points show beside the target's.

  `speed_up` is the largest at a quality of the target's or better, None if
  there is no such point; `best` is the best quality of a latency of the
  target's or less; `best_share` is the share of latencies, from the lowest of
  all methods to the target's, at which no method has a better point of no more
  latency.

  Args:
    rows: of `points`.
    quality: the field of the rows that rates a point.
  """
  table = []
  at = lambda row: (row['temperature'], row['draft_length'])
  for panel in dict.fromkeys(map(at, rows)):
    lines = {}
    for row in rows:
      if at(row) == panel:
        point = row['latency'], row[quality]
        lines.setdefault(row['label'], []).append(point)
    bar = max((good for _, good in lines.get('target', [])), default=np.inf)
    lowest = min(each for of in lines.values() for each, _ in of)
    grid = np.linspace(lowest, max(lowest, 1), 101)
    fronts = {label: _front(of, grid) for label, of in lines.items()}
    highest = np.max(list(fronts.values()), axis=0)
    for label, of in lines.items():
      front = fronts[label]
      fast = [good for latency, good in of if latency <= 1]
      speeds = [1 / latency for latency, good in of if good >= bar]
      share = ((front >= highest) & np.isfinite(front)).mean()
      table.append(
        {
          'temperature': panel[0],
          'draft_length': panel[1],
          'by': quality,
          'label': label,
          'speed_up': max(speeds, default=None),
          'best': max(fast, default=None),
          'best_share': float(share),
        }
      )
  return table


def _front(points, latencies):
  """The best quality that a method has at each latency or less."""
  return np.array(
    [
      max(
        (good for latency, good in points if latency <= each), default=-np.inf
      )
      for each in latencies
    ]
  )
