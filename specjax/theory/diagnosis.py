"""Whether the rejections of a run are those that theory predicts for it.

Yin et al. (2024), Theorem 1, along one run: a draft that is tested is rejected
with the total variation between draft and target at its place. What was seen,
less the sum of these, is a martingale, whatever was drafted and emitted, so its
variance is the sum of `TV (1 - TV)`.
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


class Diagnosis(NamedTuple):
  """Rejections of each row, and what theory predicts."""

  tested: np.ndarray  # [B] drafts that were tested
  seen: np.ndarray  # [B] drafts that were rejected
  predicted: np.ndarray  # [B] sum of total variations
  variance: np.ndarray  # [B]

  @property
  def deviation(self) -> float:
    """Seen less predicted of all rows, in standard errors."""
    excess = float(self.seen.sum() - self.predicted.sum())
    error = math.sqrt(self.variance.sum())
    if error:
      return excess / error
    return math.copysign(math.inf, excess) if excess else 0.0

  def interval(self, width: float = 3.0) -> tuple[float, float]:
    """Returns where `seen` should lie in sum, within so many errors."""
    center, error = self.predicted.sum(), math.sqrt(self.variance.sum())
    return float(center - width * error), float(center + width * error)

  @property
  def flagged(self) -> bool:
    """Whether the run disagrees with theory by more than 3 standard errors."""
    return abs(self.deviation) > 3


def diagnose(
  target: base.LanguageModel,
  draft: base.LanguageModel,
  params: Any,
  start: jax.Array,
  tokens: jax.Array,
  infos: Any,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
) -> Diagnosis:
  """Compares a traced run with its prediction.

  Each round drafted one chain, as `speculative` does by default; of several
  drafts a round Theorem 1 predicts nothing. Both models read the texts once
  more, so the run itself pays nothing.

  Args:
    target: the model that was sampled from.
    draft: the model that drafted.
    params: `Params` of the decoder, with `draft`'s as the only drafter's.
    start: `[B]` lengths of the prompts.
    tokens: `[B, S]` of the final state.
    infos: `RoundInfo` of all rounds, stacked, from `trace`.
    sampling: how both models' tokens were drawn.

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
  # A correction stands where a test failed; a bonus token was never tested.
  rejected = (accepted < emitted) & (accepted < np.asarray(infos.depth))
  begins = np.asarray(start) + np.cumsum(emitted, axis=0) - emitted
  place = np.arange(distance.shape[1])
  tested = np.zeros(distance.shape, bool)
  for begin, num in zip(begins, accepted + rejected):
    tested |= (begin[:, None] <= place) & (place < (begin + num)[:, None])
  return Diagnosis(
    tested=tested.sum(1),
    seen=rejected.sum(0),
    predicted=(tested * distance).sum(1),
    variance=(tested * distance * (1 - distance)).sum(1),
  )


@functools.partial(jax.jit, static_argnames=('target', 'draft', 'sampling'))
def _distances(target, draft, params, tokens, sampling):
  """`[B, S]` total variation between what both predict at each token."""

  def of_row(row):
    excess = next_probs(target, params.target, row, sampling) - next_probs(
      draft, params.drafters[0], row, sampling
    )
    distance = jnp.minimum(jnp.maximum(excess, 0.0).sum(-1), 1.0)
    return jnp.append(0.0, distance[:-1])  # Predicted a place before.

  return jax.lax.map(of_row, tokens)


def next_probs(
  model: base.LanguageModel,
  params: base.Params,
  tokens: jax.Array,
  sampling: sampling_lib.Sampling,
) -> jax.Array:
  """Returns `[S, V]`, what a model predicts after each token of `[S]`."""
  cache = model.init_cache(params, 1, 1)
  logits = model.extend(params, cache, tokens[None]).logits[0]
  return sampling_lib.probabilities(logits, sampling)
