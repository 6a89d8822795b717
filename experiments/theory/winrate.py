"""Win rates of methods, by the target's own likelihood and a metric.

Yin et al. (2024), Section 4.2, Tables 1 and 2. The score of a response is the
mean log-likelihood per token that the target gives it. This is no reward model:
it shows what the target finds likely, not what is good, and does not fall where
a rule prefers likely tokens more than the target does. With `config.metric`,
responses are also scored against the prompts' reference answers.
"""

import functools

import numpy as np

from experiments.common import compare
from experiments.common import components
from experiments.common import plots
from experiments.theory import diagnose
from specjax.evaluation import likelihood
from specjax.evaluation import scoring

MAY_CHANGE = (*compare.MAY_CHANGE, 'comparisons')
_LIKELIHOOD = 'likelihood'


def prepare(config):
  """Returns the methods and prompts of a config; pairs and metric must fit."""
  prepared = compare.plan(config)
  _pairs(config, prepared.methods)
  _judges(config, prepared)
  return prepared


def run(config, workdir):
  """Returns a row for each judge and each two methods of equal columns."""
  made = prepare(config)
  pairs = _pairs(config, made.methods)
  judges = _judges(config, made)
  options = {
    'fields': diagnose.FIELDS,
    'observe': functools.partial(observe, judges),
  }
  samples = {}
  for i, method in enumerate(made.methods):
    own = config.copy_and_resolve_references()
    # No two methods share their randomness.
    own.seed = config.seed + i * config.num_seeds
    alone = made._replace(methods=[method])
    for decoded in compare.decode(own, workdir, alone, **options):
      for judge in judges:
        sample = _sample(decoded.records, judge, config.num_seeds)
        samples[judge, decoded.prompts.label, i] = sample
  return [
    {
      'judge': judge,
      'prompts': prompts.label,
      'method': made.methods[first].label,
      'against': made.methods[second].label,
      **made.methods[first].columns,
      **versus(*(samples[judge, prompts.label, i] for i in (first, second))),
    }
    for judge in judges
    for prompts in made.prompt_sets
    for first, second in pairs
  ]


def _judges(config, made):
  """By name, `(batch) -> [B]` scores of responses, the better the higher."""
  judges = {_LIKELIHOOD: functools.partial(by_likelihood, made.family.target)}
  if config.metric:
    metric = components.build(scoring.Metric, config.metric, 'metric')
    for (
      prompts
    ) in made.prompt_sets:  # A reference that it cannot read is refused.
      metric(*2 * [[job.reference for job in prompts.jobs]])
    judges[config.metric] = functools.partial(
      by_metric, metric, made.family.tokenizer
    )
  return judges


def _pairs(config, methods):
  """Indices of the methods that are compared."""
  pairs = []
  for i, wanted in enumerate(config.comparisons):
    found = [
      (first, second)
      for first, one in enumerate(methods)
      for second, other in enumerate(methods)
      if (one.label, other.label) == tuple(wanted)
      and one.columns == other.columns
    ]
    if not found:
      known = ', '.join(dict.fromkeys(method.label for method in methods))
      raise ValueError(
        f'comparisons[{i}] must be labels of two methods of equal columns, got '
        f'{wanted}. Known: {known}.'
      )
    pairs += found
  return pairs


def by_likelihood(target, batch):
  """Returns `[B]` the target's mean log-likelihood per token."""
  prompts = [job.turns[0] for job in batch.jobs]
  texts = [
    (prompt + result.tokens, len(prompt))
    for prompt, result in zip(prompts, batch.results)
  ]
  found = likelihood.likelihood(target.model, target.params, texts)
  return found.nats / found.num_tokens


def by_metric(metric, tokenizer, batch):
  """Returns `[B]` the score against each prompt's reference answer."""
  said = [tokenizer.decode(list(result.tokens)) for result in batch.results]
  return metric(said, [job.reference for job in batch.jobs]).examples


def observe(judges, batch):
  """Returns the scores and the rejected drafts of each response."""
  infos = batch.infos
  # A correction stands where a draft was rejected; a bonus behind all.
  corrected = infos.num_accepted < np.minimum(infos.num_emitted, infos.depth)
  scores = {name: judge(batch) for name, judge in judges.items()}
  return [
    {
      'scores': {name: float(each[i]) for name, each in scores.items()},
      'rejected': int(rejected),
    }
    for i, rejected in enumerate(corrected.sum(axis=0))
  ]


def _sample(records, judge, num_responses):
  """Returns `[P, n]` scores, and rejected drafts per token.

  Records come seed after seed.
  """
  scores = np.array([record['scores'][judge] for record in records])
  rejected, emitted = (
    np.array([record[name] for record in records])
    for name in ('rejected', 'emitted')
  )
  rejections = float(rejected.sum() / emitted.sum())
  return scores.reshape(num_responses, -1).T, rejections


def versus(first, second):
  """Returns how often one sample wins a prompt against another.

  All responses to a prompt are compared with all of the other method's; the
  prompt is won by the method that wins more of these comparisons. The prompts
  lost are those that were neither won nor tied.
  """
  (own, rejections), (other, against_rejections) = first, second
  balance = np.sign(own[:, :, None] - other[:, None]).sum((1, 2))
  rate = float((balance > 0).mean())
  gap = own.mean(1) - other.mean(1)
  return {
    'win_rate': rate,
    'win_rate_error': float(np.sqrt(rate * (1 - rate) / len(gap))),
    'tied': float((balance == 0).mean()),
    'score': float(own.mean()),
    'against_score': float(other.mean()),
    'gap': float(gap.mean()),
    'gap_error': float(gap.std() / np.sqrt(len(gap))),
    'rejections': rejections,
    'against_rejections': against_rejections,
  }


def figures(rows):
  """Draws win rates beside the paper's, and how far apart the scores are."""
  rows = [row for row in rows if row.get('epsilon') is not None]
  made = {}
  for name, label, middle in (
    ('win_rate', 'prompts won', 0.5),
    ('gap', "score over the other, in the judge's unit", 0.0),
  ):
    if rows:
      made[name] = plots.lines(
        rows,
        'epsilon',
        name,
        ('method', 'against'),
        panel='judge',
        error=f'{name}_error',
        ylabel=label,
        paper=True,
      )
      for axes in made[name].axes:
        axes.set_xscale('log')
        axes.axhline(middle, color='0.5', linewidth=0.8)
  return made
