"""What texts show of a rule: their quality, and how often the rule deferred."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import compare
from experiments.common import components
from specjax import base
from specjax import metrics
from specjax import sampling as sampling_lib
from specjax.evaluation import likelihood
from specjax.evaluation import scoring

# Verifiers whose output is another distribution than that of the goal.
LOSSY = ('lossy', 'over_acceptance')
# Means over emitted tokens, and what of each text they are the sums of.
_MEANS = {
  'target_nats': 'target_nats',  # The text's log-likelihood by the target.
  'target_calls': 'target_calls',
  'deferral_rate': 'deferred',  # None where it is not defined.
}


def decode(config, workdir, made, **options):
  """Decodes every method of a plan, and records what rows of `rater` are of."""
  observe = functools.partial(_observe, made.family.models)
  return compare.decode(
    config, workdir, made, observe=observe, tokens=True, **options
  )


def rater(config, family):
  """Returns a function from a decoded method to its row: costs and quality.

  `quality` is by the prompts' reference answers; its error is that of resampled
  prompts. Raises a `ValueError` if the metric is unknown.
  """
  metric = components.build(scoring.Metric, config.metric, 'metric')

  def rate(each):
    (row,) = compare.rows([each])
    said = [family.tokenizer.decode(r['tokens']) for r in each.records]
    pairs = said, [job.reference for job in each.prompts.jobs]
    row |= {
      'metric': config.metric,
      'quality': float(metric(*pairs).total),
      'quality_error': scoring.standard_error(metric, *pairs, config.seed),
    }
    emitted = compare.by_prompt(each.records, 'emitted')
    for name, recorded in _MEANS.items():
      mean = None, None
      if each.records[0][recorded] is not None:
        mean = metrics.ratio(compare.by_prompt(each.records, recorded), emitted)
      row[name], row[f'{name}_error'] = mean
    return row

  return rate


def deferrals(goal, target, draft):
  """Returns `[T]` the share of a goal's mass that is the target's.

  That is 1 where a rule defers and 0 where it does not; of a token rule, the
  mass that is drawn from the target instead, equation (13). Rules take the two
  distributions as they are or scale them, so it is the derivative of the goal
  towards the target, however a goal is written.
  """
  raw = base.RawProbs(target.raw, draft.raw)
  goal_probs = lambda target: jax.vmap(goal)(target, draft.processed, raw)
  point = (target.processed,)
  return jax.jvp(goal_probs, point, point)[1].sum(axis=1)


def _observe(models, batch):
  """What is recorded of each text; `own_nats` are by the model it is of."""
  name = batch.run.settings['method']['target']
  texts = [
    ([*job.turns[0], *result.tokens], len(job.turns[0]))
    for job, result in zip(batch.jobs, batch.results)
  ]
  nats = {
    each: likelihood.likelihood(
      models[each].model, models[each].params, texts, batch_size=len(texts)
    ).nats.tolist()
    for each in {name, 'target'}
  }
  return [
    {
      'target_calls': result.rounds if name == 'target' else 0,
      'target_nats': nats['target'][i],
      'own_nats': nats[name][i],
      'deferred': _deferred(models, name, batch.compiled_method, *texts[i]),
    }
    for i, result in enumerate(batch.results)
  ]


def _deferred(models, name, compiled_method, tokens, start):
  """The sum of deferrals over the tokens from `start` on."""
  arm, *others = compiled_method.method.arms
  draft = dict(arm.drafter.options).get('model')
  lossy = arm.verifier and arm.verifier.name in LOSSY
  if others or lossy or (arm.goal and not draft):
    return None
  if arm.goal is None:
    return float(len(tokens) - start) if name == 'target' else 0.0
  last = start - 1  # Of the prompt, behind which the first is drawn.
  inputs = _padded(tokens[:last]), last, _padded(tokens[last:-1])
  probs = [
    _probs(each.model, compiled_method.method.sampling, each.params, *inputs)
    for each in (models[name], models[draft])
  ]
  at_positions = _deferrals(
    compiled_method.decoder.round_fn.arms[0].goal, *probs
  )
  return round(float(at_positions[: len(tokens) - start].sum()), 4)


def _padded(tokens):
  """`[1, W]`; of few widths, powers of two, as each is a compiled program."""
  width = max(8, 1 << max(len(tokens) - 1, 0).bit_length())
  return np.array([[*tokens, *[0] * (width - len(tokens))]], np.int32)


_deferrals = jax.jit(deferrals)


@functools.partial(jax.jit, static_argnames=('model', 'sampling'))
def _probs(model, sampling, params, before, last, tokens):
  """`[T, V]` distributions of the token behind each of some, and then junk."""
  cache = model.init_cache(params, *before.shape)
  lengths = jnp.asarray(last, jnp.int32)[None]
  cache, _ = model.prefill(params, cache, before, lengths)
  logits = model.extend(params, cache, tokens).logits[0]
  return sampling_lib.both_probs(logits, sampling)
