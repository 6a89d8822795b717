"""Comparison of a run's rejections with the number that theory predicts.

Yin et al. (2024), Theorem 1, along one run: a tested draft is rejected with the
total variation between the draft distribution and the target model's
distribution at its position. The number of rejections minus the sum of these
probabilities is a martingale, whatever was drafted and emitted, so its variance
is the sum of `TV * (1 - TV)`.
"""

import functools
import math
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import sampling as sampling_lib

# Standard errors beyond which a run is flagged.
_MAX_DEVIATION = 3.0


class Diagnosis(NamedTuple):
  """Observed and predicted rejections in each row."""

  num_tests: np.ndarray  # [B] drafts that were tested
  num_rejections: np.ndarray  # [B] drafts that were rejected
  predicted_rejections: np.ndarray  # [B] sum of the total variations
  variance: np.ndarray  # [B] of `num_rejections - predicted_rejections`

  @property
  def deviation(self) -> float:
    """The excess of rejections over all rows, in standard errors."""
    excess = float(self.num_rejections.sum() - self.predicted_rejections.sum())
    error = math.sqrt(self.variance.sum())
    if error:
      return excess / error
    return math.copysign(math.inf, excess) if excess else 0.0

  @property
  def interval(self) -> tuple[float, float]:
    """Range of rejections over all rows in which the run is not flagged."""
    center = float(self.predicted_rejections.sum())
    radius = _MAX_DEVIATION * math.sqrt(self.variance.sum())
    return center - radius, center + radius

  @property
  def flagged(self) -> bool:
    """Whether the run deviates from theory by more than 3 standard errors."""
    return abs(self.deviation) > _MAX_DEVIATION


def diagnose(
  target: base.LanguageModel,
  draft: base.LanguageModel,
  params: Any,
  start: jax.Array,
  tokens: jax.Array,
  infos: Any,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
) -> Diagnosis:
  """Compares the rejections of a traced run with the prediction.

  Each round must draft one chain, as `speculative` does by default; Theorem 1
  does not cover several drafts per round. Both models read the texts again
  here, so the run itself has no overhead.

  Args:
    target: the target model.
    draft: the draft model.
    params: `Params` of the decoder; the only entry of `drafters` must be the
      parameters of `draft`.
    start: `[B]` lengths of the prompts.
    tokens: `[B, S]` tokens of the final state.
    infos: stacked `RoundInfo` of all rounds, from `trace`.
    sampling: how the tokens of both models were drawn.

  Raises:
    ValueError: the trace has several arms.
  """
  if len(params.drafters) != 1:
    raise ValueError(
      f'A diagnosis needs a trace of one arm, got {len(params.drafters)}.'
    )
  distance = np.asarray(
    _distances(target, draft, params, jnp.asarray(tokens), sampling)
  )
  accepted, emitted = (
    np.asarray(infos.num_accepted),
    np.asarray(infos.num_emitted),
  )
  # The last token of a round is a correction if a test failed. A bonus token
  # follows a draft that was accepted as a whole, and was not tested.
  rejected = (accepted < emitted) & (accepted < np.asarray(infos.depth))
  begins = np.asarray(start) + np.cumsum(emitted, axis=0) - emitted
  position = np.arange(distance.shape[1])
  is_tested = np.zeros(distance.shape, bool)
  for begin, num in zip(begins, accepted + rejected):
    end = begin + num
    is_tested |= (begin[:, None] <= position) & (position < end[:, None])
  return Diagnosis(
    num_tests=is_tested.sum(1),
    num_rejections=rejected.sum(0),
    predicted_rejections=(is_tested * distance).sum(1),
    variance=(is_tested * distance * (1 - distance)).sum(1),
  )


@functools.partial(jax.jit, static_argnames=('target', 'draft', 'sampling'))
def _distances(
  target: base.LanguageModel,
  draft: base.LanguageModel,
  params: Any,
  tokens: jax.Array,
  sampling: sampling_lib.Sampling,
) -> jax.Array:
  """Returns `[B, S]`, the total variation of both predictions of each token."""

  def row_distances(row: jax.Array) -> jax.Array:
    excess = next_probs(target, params.target, row, sampling) - next_probs(
      draft, params.drafters[0], row, sampling
    )
    distance = jnp.minimum(jnp.maximum(excess, 0.0).sum(-1), 1.0)
    return jnp.append(0.0, distance[:-1])  # Entry `i` predicts token `i + 1`.

  return jax.lax.map(row_distances, tokens)


def predicts_emitted(
  start: jax.Array, length: jax.Array, num_tokens: int
) -> jax.Array:
  """Returns `[S]` bool, whether the token after each token was emitted.

  Args:
    start: length of the prompt.
    length: length of the text, including the prompt.
    num_tokens: `S`, the size of the buffer.
  """
  index = jnp.arange(num_tokens)
  return (start - 1 <= index) & (index < length - 1)


def next_probs(
  model: base.LanguageModel,
  params: base.Params,
  tokens: jax.Array,
  sampling: sampling_lib.Sampling,
) -> jax.Array:
  """Returns `[S, V]`, a model's distribution after each token of `[S]`."""
  logits = next_logits(model, params, tokens)
  return sampling_lib.probabilities(logits, sampling)


def next_logits(
  model: base.LanguageModel, params: base.Params, tokens: jax.Array
) -> jax.Array:
  """Returns `[S, V]`, a model's logits after each token of `[S]`."""
  cache = model.init_cache(params, 1, 1)
  return model.extend(params, cache, tokens[None]).logits[0]
