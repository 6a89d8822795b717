"""What texts show of a rule: their quality, and how often the rule deferred."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import compare
from experiments.common import components
from experiments.common import runner
from specjax import base
from specjax import families
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.evaluation import likelihood
from specjax.evaluation import scoring
from specjax.goals import apply as goal_lib

# Verifiers whose output is another distribution than that of the goal.
LOSSY = ('lossy', 'over_acceptance')
# Padded answers are at least as wide.
_NARROWEST = 8


def metric(config: Any) -> scoring.Metric:
  """Returns the metric that `config.metric` names.

  Raises:
    ValueError: it is unknown.
  """
  return components.build(scoring.Metric, config.metric, 'metric')


def observer(
  family: families.Family,
) -> Callable[[runner.Batch], list[runner.Record]]:
  """Returns what `runner.Options.observe` is to record of each text.

  That is `target_calls`; `target_nats`, the text's log-likelihood by the
  target; `own_nats`, the same by the model that wrote it, where that is another
  one alone; and `deferred`, the sum of `deferrals` over its tokens, None where
  they are not defined.
  """
  models = {'target': family.target, **family.drafters}

  def observe(batch):
    name = batch.point.settings['way']['target']
    texts = [
      (job.turns[0], result.tokens)
      for job, result in zip(batch.jobs, batch.results)
    ]
    nats = {each: _nats(models[each], texts) for each in ('target', name)}
    return [
      {
        'target_calls': result.rounds if name == 'target' else 0,
        'target_nats': nats['target'][i],
        'deferred': _deferred(models, name, batch.player, *texts[i]),
        **({} if name == 'target' else {'own_nats': nats[name][i]}),
      }
      for i, result in enumerate(batch.results)
    ]

  return observe


def columns(
  each: compare.Decoded,
  family: families.Family,
  score: scoring.Metric,
  seed: int,
) -> dict[str, Any]:
  """Returns columns of a row, with standard errors over prompts.

  `quality` is that of the metric, by the prompts' reference answers;
  `target_nats` is the target's log-likelihood of a token; `target_calls` and
  `deferral_rate` are of an emitted token, too.

  Args:
    each: a way on a set of prompts; records have tokens, and what `observer`
      records.
    family: whose tokenizer is used.
    score: from `metric`.
    seed: of the resamples that the error of the quality is from.
  """
  texts = [family.tokenizer.decode(r['tokens']) for r in each.records]
  references = [job.reference for job in each.prompts.jobs]
  references *= len(texts) // len(references)  # Seed after seed.
  quality = float(score(texts, references).total)
  row = {
    'quality': quality,
    'quality_error': scoring.standard_error(score, texts, references, seed),
  }
  names = {
    'target_nats': 'target_nats',
    'target_calls': 'target_calls',
    'deferral_rate': 'deferred',
  }
  for name, recorded in names.items():
    value, error = None, None
    if each.records[0][recorded] is not None:
      sums = [
        compare.by_prompt(each.records, column)
        for column in (recorded, 'emitted')
      ]
      value, error = metrics.ratio(*sums)
    row |= {name: value, f'{name}_error': error}
  return row


def deferrals(
  goal: base.Goal, target: base.Probs, draft: base.Probs
) -> jax.Array:
  """Returns `[T]` the share of a goal's mass that is the target's.

  At each of `T` positions, that is 1 where a rule defers and 0 where it does
  not. Of a token rule it is the mass that is drawn from the target instead,
  equation (13); of a mixture, the mean. Rules take the two distributions as
  they are or scale them, so it is the derivative of the goal towards the
  target, however a goal is written.

  Args:
    goal: made of both models' distributions.
    target: `[T, V]`.
    draft: `[T, V]`.
  """
  num = target.processed.shape[0] - 1
  tree = base.DraftTree(
    tokens=jnp.zeros(num, jnp.int32),
    topology=trees.chain(num),
    valid=jnp.ones(num, bool),
    probs=draft.processed[:-1],
    raw_probs=draft.raw[:-1],
    bonus_probs=jax.tree.map(lambda each: each[-1:], draft),
  )
  made = lambda processed: goal_lib.probs(
    goal, tree, target._replace(processed=processed)
  )
  point = (target.processed,)
  return jax.jvp(made, point, point)[1].sum(axis=1)


def _nats(model, texts):
  """`[B]` log-likelihoods of answers to prompts."""
  sequences = [([*prompt, *answer], len(prompt)) for prompt, answer in texts]
  return likelihood.likelihood(
    model.functions, model.params, sequences, batch_size=len(sequences)
  ).nats.tolist()


def _deferred(models, name, player, prompt, answer):
  """The sum of an answer's deferrals, by the rule at its positions."""
  arm, *others = player.program.arms
  if others or (arm.verifier and arm.verifier.name in LOSSY):
    return None
  if arm.goal is None:
    return float(len(answer)) if name == 'target' else 0.0
  draft = models.get(dict(arm.drafter.options).get('model'))
  if draft is None:
    return None
  probs = [
    _probs_along(model, player.program.sampling, prompt, answer)
    for model in (models[name], draft)
  ]
  each = _deferrals(player.program, player.numbers, *probs)
  return round(float(each[: len(answer)].sum()), 4)


@functools.partial(jax.jit, static_argnames='program')
def _deferrals(program, numbers, target, draft):
  goal = program.round_fn(numbers).arms[0].goal
  if goal is None:  # The rule is the target itself.
    return jnp.ones(len(target.processed))
  return deferrals(goal, target, draft)


def _probs_along(
  model: families.Model,
  sampling: sampling_lib.Sampling,
  prompt: Sequence[int],
  answer: Sequence[int],
) -> base.Probs:
  """`[T, V]` a model's distributions of each token of an answer, then junk."""
  last, width = len(prompt) - 1, _width(len(answer))
  before = np.zeros((1, _width(last)), np.int32)
  before[0, :last] = prompt[:-1]
  tokens = np.zeros((1, width), np.int32)
  tokens[0, : len(answer)] = [prompt[-1], *answer[:-1]]
  return _probs(model.functions, sampling, model.params, before, last, tokens)


@functools.partial(jax.jit, static_argnames=('model', 'sampling'))
def _probs(model: base.LanguageModel, sampling, params, before, last, tokens):
  cache = model.init_cache(params, *before.shape)
  lengths = jnp.asarray(last, jnp.int32)[None]
  cache, _ = model.prefill(params, cache, before, lengths)
  logits = model.extend(params, cache, tokens).logits[0]
  return sampling_lib.both_probs(logits, sampling)


def _width(num):
  return max(_NARROWEST, 1 << max(num - 1, 0).bit_length())
