"""Win rates of ways to decode, by the target's own likelihood.

Yin et al. (2024), Section 4.2, Tables 1 and 2. The score of a response is the
mean log-likelihood per token that the target gives it. This is no reward model:
it shows what the target finds likely, not what is good, and does not fall where
a rule prefers likely tokens more than the target does.
"""

import functools
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.common import compare
from experiments.common import plots
from experiments.common import runner
from experiments.common import ways as ways_lib
from specjax import families
from specjax.evaluation import likelihood

MAY_CHANGE = (*compare.MAY_CHANGE, 'comparisons')
# Of rounds, by which rejected drafts are counted.
_FIELDS = 'num_accepted', 'num_emitted', 'depth'


class Sample(NamedTuple):
  """Responses of one way, scored."""

  scores: np.ndarray  # [P, n]
  rejections: float  # rejected drafts per token


def run(config, workdir):
  """Returns a row for each comparison of two ways of equal columns."""
  made = compare.plan(config)
  pairs = _pairs(config, made.ways)
  samples: dict[tuple[str, int], Sample] = {}
  for i, way in enumerate(made.ways):
    own = config.copy_and_resolve_references()
    # No two ways share their randomness.
    own.seed = config.seed + i * config.num_seeds
    scored = functools.partial(observe, made.family.target)
    for decoded in compare.decode(
      own,
      workdir,
      made._replace(ways=[way]),
      fields=_FIELDS,
      observe=scored,
    ):
      samples[decoded.prompts.label, i] = _sample(decoded, config.num_seeds)
  return [
    {
      'prompts': prompts.label,
      'way': made.ways[first].label,
      'against': made.ways[second].label,
      **made.ways[first].columns,
      **versus(*(samples[prompts.label, i] for i in (first, second))),
    }
    for prompts in made.sets
    for first, second in pairs
  ]


def _pairs(config, ways: list[ways_lib.Way]):
  """Indices of the ways that are compared."""
  pairs = []
  for i, (first, second) in enumerate(config.comparisons):
    places = [
      [at for at, way in enumerate(ways) if way.label == label]
      for label in (first, second)
    ]
    found = [
      (one, other)
      for one in places[0]
      for other in places[1]
      if ways[one].columns == ways[other].columns
    ]
    if not found:
      known = ', '.join(dict.fromkeys(way.label for way in ways))
      raise ValueError(
        f'comparisons[{i}] must be labels of two ways of equal columns, got '
        f'{(first, second)}. Known: {known}.'
      )
    pairs += found
  return pairs


def observe(target: families.Model, batch: runner.Batch) -> list[Any]:
  """Returns the score and the rejected drafts of each response."""
  prompts = [job.turns[0] for job in batch.jobs]
  texts = [
    (prompt + result.tokens, len(prompt))
    for prompt, result in zip(prompts, batch.results)
  ]
  found = likelihood.likelihood(target.functions, target.params, texts)
  infos = batch.infos
  # A correction stands where a draft was rejected; a bonus behind all.
  corrected = infos.num_accepted < np.minimum(infos.num_emitted, infos.depth)
  return [
    {'score': score, 'rejected': int(rejected)}
    for score, rejected in zip(
      (found.nats / found.num_tokens).tolist(), corrected.sum(axis=0)
    )
  ]


def _sample(decoded, num_responses):
  """All responses to a set of prompts; records come seed after seed."""
  scores, rejected, emitted = (
    np.array([record[name] for record in decoded.records])
    for name in ('score', 'rejected', 'emitted')
  )
  return Sample(
    scores.reshape(num_responses, -1).T, float(rejected.sum() / emitted.sum())
  )


def versus(first: Sample, second: Sample) -> dict[str, float]:
  """Returns how often `first` wins a prompt, and what both are like.

  All responses to a prompt are compared with all of the other way's; the prompt
  is won by the way that wins more of these comparisons. The prompts lost are
  those that were neither won nor tied.
  """
  sign = np.sign(first.scores[:, :, None] - second.scores[:, None])
  balance = sign.sum((1, 2))
  rate = float((balance > 0).mean())
  gap = first.scores.mean(1) - second.scores.mean(1)
  return {
    'win_rate': rate,
    'win_rate_error': float(np.sqrt(rate * (1 - rate) / len(sign))),
    'tied': float((balance == 0).mean()),
    'comparisons_won': float((sign > 0).mean()),
    'score': float(first.scores.mean()),
    'against_score': float(second.scores.mean()),
    'gap': float(gap.mean()),
    'gap_error': float(gap.std() / np.sqrt(len(gap))),
    'rejections': first.rejections,
    'against_rejections': second.rejections,
  }


def figures(rows):
  """Draws win rates beside the paper's, and how far apart the scores are."""
  rows = [row for row in rows if row.get('epsilon') is not None]
  made: dict[str, Any] = {}
  if not rows:
    return made
  for name, label, middle in (
    ('win_rate', 'prompts won', 0.5),
    ('gap', 'score over the other (nats per token)', 0.0),
  ):
    made[name] = plots.lines(
      rows,
      'epsilon',
      name,
      ('way', 'against'),
      error=f'{name}_error',
      ylabel=label,
      paper=True,
    )
    (axes,) = made[name].axes
    axes.set_xscale('log')
    axes.axhline(middle, color='0.5', linewidth=0.8)
  return made
