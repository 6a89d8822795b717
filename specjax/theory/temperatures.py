"""Expected acceptance at every token of a text, by the draft's temperature.

A draft token is accepted with probability `sum(min(target, draft))` (Leviathan
et al. 2023, Corollary 3.6). The temperature of the draft model may differ from
the target's, as the output is lossless for any draft distribution. At
temperature 0, the draft is a point mass on its most likely token, which is
accepted with the target's probability of this token.
"""

from collections.abc import Sequence
import dataclasses
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import sampling as sampling_lib
from specjax.theory import diagnosis


class TemperatureSums(NamedTuple):
  """Sums over the emitted tokens of each row, for `E` draft temperatures."""

  num_tokens: np.ndarray  # [B] emitted tokens
  acceptance: np.ndarray  # [B, E] probabilities that a draft is accepted
  highest: np.ndarray  # [B] the highest of these probabilities, at each token
  is_highest: np.ndarray  # [B, E] whether it is that of the first such one


def temperature_sums(
  target: base.LanguageModel,
  draft: base.LanguageModel,
  params: tuple[base.Params, base.Params],
  start: jax.typing.ArrayLike,
  lengths: jax.typing.ArrayLike,
  tokens: jax.typing.ArrayLike,
  temperatures: Sequence[float],
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
) -> TemperatureSums:
  """Returns expected acceptance, summed over the emitted tokens of each row.

  The sums are as if every token had been drafted and tested, given the tokens
  before it. Both models read the texts again.

  Args:
    target: the target model.
    draft: the draft model.
    params: parameters of the target model and of the draft model.
    start: `[B]` lengths of the prompts.
    lengths: `[B]` lengths of the texts, including the prompts.
    tokens: `[B, S]` the texts; undefined past `lengths`.
    temperatures: `E` temperatures of the draft model, at least one; each is 0,
      for the most likely token, or at least 1e-6.
    sampling: how tokens are drawn from the target, and, except for the
      temperature, from the draft model.

  Raises:
    ValueError: there is no temperature, or one is out of range.
  """
  checks.check_range('number of temperatures', len(temperatures), 1)
  draft_samplings = tuple(
    dataclasses.replace(sampling, temperature=float(value))
    for value in temperatures
  )
  texts = np.asarray(start), np.asarray(lengths), np.asarray(tokens)
  sums = _sums(target, draft, params, *texts, sampling, draft_samplings)
  return TemperatureSums(texts[1] - texts[0], *jax.device_get(sums))


@functools.partial(
  jax.jit, static_argnames=('target', 'draft', 'sampling', 'draft_samplings')
)
def _sums(
  target: base.LanguageModel,
  draft: base.LanguageModel,
  params: tuple[base.Params, base.Params],
  start: jax.Array,
  lengths: jax.Array,
  tokens: jax.Array,
  sampling: sampling_lib.Sampling,
  draft_samplings: tuple[sampling_lib.Sampling, ...],
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the last three fields of `TemperatureSums`."""
  num = len(draft_samplings)

  def row_sums(
    row: tuple[jax.Array, jax.Array, jax.Array],
  ) -> tuple[jax.Array, jax.Array, jax.Array]:
    start, length, tokens = row
    target_params, draft_params = params
    target_probs = diagnosis.next_probs(target, target_params, tokens, sampling)
    logits = diagnosis.next_logits(draft, draft_params, tokens)
    acceptance = jnp.stack(
      [
        jnp.minimum(
          target_probs, sampling_lib.probabilities(logits, draft_sampling)
        ).sum(-1)
        for draft_sampling in draft_samplings
      ],
      axis=-1,
    )
    emitted = diagnosis.predicts_emitted(start, length, len(tokens))[:, None]
    best = jax.nn.one_hot(jnp.argmax(acceptance, axis=-1), num)
    total = lambda values: jnp.where(emitted, values, 0.0).sum(0)
    highest = total(acceptance.max(-1, keepdims=True))[0]
    return total(acceptance), highest, total(best)

  return jax.lax.map(row_sums, (start, lengths, tokens))
