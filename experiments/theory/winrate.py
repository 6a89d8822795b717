"""Computes win rates of methods, by the target's likelihood and a metric.

This reproduces Section 4.2, Tables 1 and 2, of Yin et al. (2024). The score of
a response is its mean log-likelihood per token under the target. Unlike a
reward model, it measures likelihood instead of quality, and it rewards rules
that prefer likely tokens more than the target does. With `config.metric`,
responses are also scored against the prompts' reference answers.
"""

from collections.abc import Callable
import functools
from typing import Any

import numpy as np

from experiments.common import compare
from experiments.common import components
from experiments.common import methods as methods_lib
from experiments.common import plots
from experiments.common import runner
from experiments.theory import diagnose
from specjax.evaluation import likelihood
from specjax.evaluation import scoring

MAY_CHANGE = (*compare.MAY_CHANGE, 'comparisons')
_LIKELIHOOD = 'likelihood'


def prepare(config):
  """Returns the methods and prompts; checks the comparisons and the metric."""
  setup = compare.prepare(config)
  _pairs(config, setup.methods)
  _judges(config, setup)
  return setup


def run(config, workdir):
  """Returns a row per judge and pair of methods with equal columns."""
  setup = prepare(config)
  pairs = _pairs(config, setup.methods)
  judges = _judges(config, setup)
  options = {
    'fields': diagnose.FIELDS,
    'observe': functools.partial(observe, judges),
  }
  samples = {}
  for i, method in enumerate(setup.methods):
    seeded = config.copy_and_resolve_references()
    # No two methods share their randomness.
    seeded.seed = config.seed + i * config.num_seeds
    single = setup._replace(methods=[method])
    for decoded in compare.decode(seeded, workdir, single, **options):
      for judge in judges:
        sample = _sample(decoded.records, judge, config.num_seeds)
        samples[judge, decoded.prompts.label, i] = sample
  return [
    {
      'judge': judge,
      'prompts': prompts.label,
      'method': setup.methods[first].label,
      'against': setup.methods[second].label,
      **setup.methods[first].columns,
      **versus(*(samples[judge, prompts.label, i] for i in (first, second))),
    }
    for judge in judges
    for prompts in setup.prompt_sets
    for first, second in pairs
  ]


def _judges(
  config: Any, setup: compare.Setup
) -> dict[str, Callable[[runner.Batch], np.ndarray]]:
  """Returns judges by name: `(batch) -> [B]` scores; higher is better."""
  judges = {_LIKELIHOOD: functools.partial(by_likelihood, setup.family.target)}
  if config.metric:
    metric = components.build(scoring.Metric, config.metric, 'metric')
    for prompts in setup.prompt_sets:  # Raises for invalid references.
      metric(*2 * [[job.reference for job in prompts.jobs]])
    judges[config.metric] = functools.partial(
      by_metric, metric, setup.family.tokenizer
    )
  return judges


def _pairs(
  config: Any, methods: list[methods_lib.Method]
) -> list[tuple[int, int]]:
  """Returns the indices of the methods to be compared."""
  pairs = []
  for i, labels in enumerate(config.comparisons):
    matches = [
      (first, second)
      for first, one in enumerate(methods)
      for second, other in enumerate(methods)
      if (one.label, other.label) == tuple(labels)
      and one.columns == other.columns
    ]
    if not matches:
      known = ', '.join(dict.fromkeys(method.label for method in methods))
      raise ValueError(
        f'comparisons[{i}] must be labels of two methods with equal columns, '
        f'got {labels}. Known: {known}.'
      )
    pairs += matches
  return pairs


def by_likelihood(target, batch):
  """Returns `[B]` the target's mean log-likelihood per token."""
  prompts = [job.turns[0] for job in batch.jobs]
  texts = [
    (prompt + result.tokens, len(prompt))
    for prompt, result in zip(prompts, batch.results)
  ]
  scores = likelihood.likelihood(target.model, target.params, texts)
  return scores.nats / scores.num_tokens


def by_metric(metric, tokenizer, batch):
  """Returns `[B]` scores against the prompts' reference answers."""
  answers = [tokenizer.decode(list(result.tokens)) for result in batch.results]
  return metric(answers, [job.reference for job in batch.jobs]).examples


def observe(judges, batch):
  """Returns the scores and the rejected draft tokens of each response."""
  infos = batch.infos
  # A correction replaces a rejected draft token; a bonus follows all of them.
  corrected = infos.num_accepted < np.minimum(infos.num_emitted, infos.depth)
  scores = {name: judge(batch) for name, judge in judges.items()}
  return [
    {
      'scores': {name: float(values[i]) for name, values in scores.items()},
      'rejected': int(rejected),
    }
    for i, rejected in enumerate(corrected.sum(axis=0))
  ]


def _sample(
  records: list[runner.Record], judge: str, num_responses: int
) -> tuple[np.ndarray, float]:
  """Returns `[P, n]` scores, and rejected draft tokens per emitted token.

  Records are ordered by seed.
  """
  scores = np.array([record['scores'][judge] for record in records])
  rejected, emitted = (
    np.array([record[name] for record in records])
    for name in ('rejected', 'emitted')
  )
  rejections = float(rejected.sum() / emitted.sum())
  return scores.reshape(num_responses, -1).T, rejections


def versus(first, second):
  """Returns how often one method's samples win a prompt against another's.

  All responses to a prompt are compared with all of the other method's; the
  prompt is won by the method that wins more of these comparisons. Prompts that
  are neither won nor tied are lost.
  """
  scores, rejections = first
  against_scores, against_rejections = second
  differences = scores[:, :, None] - against_scores[:, None]
  balance = np.sign(differences).sum((1, 2))
  rate = float((balance > 0).mean())
  gap = scores.mean(1) - against_scores.mean(1)
  return {
    'win_rate': rate,
    'win_rate_error': float(np.sqrt(rate * (1 - rate) / len(gap))),
    'tied': float((balance == 0).mean()),
    'score': float(scores.mean()),
    'against_score': float(against_scores.mean()),
    'gap': float(gap.mean()),
    'gap_error': float(gap.std() / np.sqrt(len(gap))),
    'rejections': rejections,
    'against_rejections': against_rejections,
  }


def figures(rows):
  """Draws win rates with the paper's, and the gaps between scores."""
  rows = [row for row in rows if row.get('epsilon') is not None]
  drawn = {}
  for name, label, middle in (
    ('win_rate', 'prompts won', 0.5),
    ('gap', "difference of scores, in the judge's unit", 0.0),
  ):
    if rows:
      drawn[name] = plots.lines(
        rows,
        'epsilon',
        name,
        ('method', 'against'),
        panel='judge',
        error=f'{name}_error',
        ylabel=label,
        paper=True,
      )
      for axes in drawn[name].axes:
        axes.set_xscale('log')
        axes.axhline(middle, color='0.5', linewidth=0.8)
  return drawn
