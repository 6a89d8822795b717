"""Rates texts by quality, and counts how often a rule deferred."""

from collections.abc import Mapping
import functools

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import arms as arms_lib
from experiments.common import compare
from experiments.common import components
from experiments.common import methods as methods_lib
from experiments.common import runner
from specjax import base
from specjax import families
from specjax import metrics
from specjax import models as models_lib
from specjax import sampling as sampling_lib
from specjax.evaluation import likelihood
from specjax.evaluation import scoring

# Verifiers whose output does not follow the goal distribution.
LOSSY = ('cactus', 'lossy', 'over_acceptance')
# Means over emitted tokens, and the fields of records that they sum.
_MEANS = {
  'target_nats': 'target_nats',  # The text's log-likelihood by the target.
  'target_calls': 'target_calls',
  'deferral_rate': 'deferred',  # None where it is not defined.
}


def decode(config, workdir, setup, **options):
  """Decodes with every method, and records the fields that `rater` needs."""
  observe = functools.partial(_observe, setup.family.models)
  return compare.decode(
    config, workdir, setup, observe=observe, tokens=True, **options
  )


def rater(config, setup):
  """Returns a function from a decoded method to its row: costs and quality.

  `quality` is the metric with the prompts' reference answers; its error comes
  from resampling prompts.

  Raises:
    ValueError: the metric is unknown, or references have no score by it.
  """
  metric = components.build(scoring.Metric, config.metric, 'metric')
  for prompts in setup.prompt_sets:
    metric(*2 * [[job.reference for job in prompts.jobs]])

  def rate(decoded):
    (row,) = compare.rows([decoded])
    tokenizer = setup.family.tokenizer
    answers = [tokenizer.decode(r['tokens']) for r in decoded.records]
    pairs = answers, [job.reference for job in decoded.prompts.jobs]
    row |= {
      'metric': config.metric,
      'quality': float(metric(*pairs).total),
      'quality_error': scoring.standard_error(metric, *pairs, config.seed),
    }
    emitted = compare.by_prompt(decoded.records, 'emitted')
    for name, field in _MEANS.items():
      mean: tuple[float | None, float | None] = None, None
      if decoded.records[0][field] is not None:
        sums = compare.by_prompt(decoded.records, field)
        mean = metrics.ratio(sums, emitted)
      row[name], row[f'{name}_error'] = mean
    return row

  return rate


def deferrals(goal, target, draft):
  """Returns `[T]` the share of a goal distribution that comes from the target.

  This is 1 where a rule defers and 0 where it does not; for a token rule, it is
  the probability that is drawn from the target instead, equation (13). Goals
  use the two distributions as they are or scaled, so that the share is the
  derivative of the goal in the direction of the target.
  """
  raw = base.RawProbs(target.raw, draft.raw)
  goal_probs = lambda target: jax.vmap(goal)(target, draft.processed, raw)
  point = (target.processed,)
  return jax.jvp(goal_probs, point, point)[1].sum(axis=1)


def _observe(
  models: Mapping[str, families.Model], batch: runner.Batch
) -> list[runner.Record]:
  """Returns the record of each text; `own_nats` are by the decoding model."""
  name = batch.run.settings['method']['target']
  texts = [
    ([*job.turns[0], *result.tokens], len(job.turns[0]))
    for job, result in zip(batch.jobs, batch.results)
  ]
  nats = {
    model: likelihood.likelihood(
      models[model].model,
      models[model].params,
      texts,
      batch_size=len(texts),
    ).nats.tolist()
    for model in {name, 'target'}
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


def _deferred(
  models: Mapping[str, families.Model],
  name: str,
  compiled_method: methods_lib.CompiledMethod,
  tokens: list[int],
  start: int,
) -> float | None:
  """Returns the sum of deferrals over the tokens from `start` on."""
  arm, *more_arms = compiled_method.method.arms
  draft = dict(arm.drafter.options).get('model')
  if more_arms or is_lossy(arm) or (arm.goal and not draft):
    return None
  if arm.goal is None:
    return float(len(tokens) - start) if name == 'target' else 0.0
  sampling = compiled_method.method.sampling
  probs = [
    response_probs(models[model], sampling, tokens, start)
    for model in (name, draft)
  ]
  goal = compiled_method.decoder.round_fn.arms[0].goal
  shares = _deferrals(goal, *probs)
  return round(float(shares[: len(tokens) - start].sum()), 4)


def is_lossy(arm: arms_lib.Arm) -> bool:
  """Returns whether an arm has a verifier of `LOSSY`."""
  return arm.verifier is not None and arm.verifier.name in LOSSY


def response_probs(
  model: families.Model,
  sampling: sampling_lib.Sampling,
  tokens: list[int],
  start: int,
) -> base.Probs:
  """Returns a model's distributions at each token of a response.

  Args:
    model: the model.
    sampling: temperature, top-k, top-p and min-p.
    tokens: a prompt and a response.
    start: the index of the response's first token, at least 1.

  Returns:
    `[T, V]`, where `T` is a power of two; undefined past the response.
  """
  last = start - 1  # The prompt's last token, after which the first is drawn.
  inputs = _padded(tokens[:last]), last, _padded(tokens[last:-1])
  return _probs(model.model, sampling, model.params, *inputs)


def head_probs(
  head: models_lib.Head,
  target: families.Model,
  sampling: sampling_lib.Sampling,
  tokens: list[int],
  start: int,
) -> base.Probs:
  """Returns a head's distributions at each token of a response.

  They are those of the first token of a draft: the head reads the target's
  hidden states, up to that of the last token but one.

  Args:
    head: a head on the target's hidden states.
    target: the target.
    sampling: See `response_probs`.
    tokens: a prompt and a response.
    start: the index of the response's first token, at least 2.

  Returns:
    `[T, V]`, where `T` is a power of two; undefined past the response.
  """
  return _head_probs(
    head.model,
    target.model,
    sampling,
    _padded_width(len(tokens) - start),
    (head.params, target.params),
    _padded(tokens),
    start,
  )


def _padded(tokens: list[int]) -> np.ndarray:
  """Pads tokens to `[1, W]`, a power of two, so that few programs compile."""
  padding = [0] * (_padded_width(len(tokens)) - len(tokens))
  return np.array([[*tokens, *padding]], np.int32)


def _padded_width(num_tokens: int) -> int:
  return max(8, 1 << max(num_tokens - 1, 0).bit_length())


_deferrals = jax.jit(deferrals)


@functools.partial(jax.jit, static_argnames=('model', 'sampling'))
def _probs(
  model: base.LanguageModel,
  sampling: sampling_lib.Sampling,
  params: base.Params,
  prefix: jax.Array,
  last: int,
  tokens: jax.Array,
) -> base.Probs:
  """Returns `[T, V]` distributions of the next tokens; undefined in padding."""
  cache = model.init_cache(params, *prefix.shape)
  lengths = jnp.asarray(last, jnp.int32)[None]
  cache, _ = model.prefill(params, cache, prefix, lengths)
  logits = model.extend(params, cache, tokens).logits[0]
  return sampling_lib.both_probs(logits, sampling)


@functools.partial(
  jax.jit, static_argnames=('head', 'target', 'sampling', 'num_tokens')
)
def _head_probs(
  head: base.FeatureHead,
  target: base.LanguageModel,
  sampling: sampling_lib.Sampling,
  num_tokens: int,
  params: tuple[base.Params, base.Params],
  tokens: jax.Array,
  start: int,
) -> base.Probs:
  """Returns `[T, V]` distributions of the tokens from `start` on."""
  head_params, target_params = params
  hidden_states = target.extend(target_params, None, tokens).features
  fused = head.fuse(head_params, tuple(hidden_states[i] for i in head.taps))
  # Pair `t` is the token `t + 1` and hidden states after `t`; it predicts the
  # token `t + 2`.
  outputs, _ = head.extend(head_params, None, tokens[:, 1:], fused[:, :-1])
  pairs = start - 2 + jnp.arange(num_tokens)
  logits = head.predict(
    head_params, jnp.take(outputs, pairs, axis=1, mode='clip')
  )
  return sampling_lib.both_probs(logits[0], sampling)
