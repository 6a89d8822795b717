"""The exact rejection and bias of over-acceptance at every token of a text.

Yin et al. (2024), Section 4. At each position, both are closed forms of the
draft distribution and the target model's distribution. So the difference
between two rules has no sampling noise, while a judge of whole responses needs
thousands of them.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import sampling as sampling_lib
from specjax.theory import diagnosis
from specjax.theory import pareto
from specjax.verifiers import over_acceptance


class Ledger(NamedTuple):
  """Sums over the emitted tokens of each row, for each of `E` epsilons."""

  num_tokens: np.ndarray  # [B] emitted tokens
  rejection: np.ndarray  # [B, E] probabilities that the draft is rejected
  # [B, E, 3] total variations, in the order of `over_acceptance.REPLACEMENTS`.
  bias: np.ndarray


def ledger(
  target: base.LanguageModel,
  draft: base.LanguageModel,
  params: tuple[base.Params, base.Params],
  start: jax.typing.ArrayLike,
  lengths: jax.typing.ArrayLike,
  tokens: jax.typing.ArrayLike,
  epsilons: Sequence[float],
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
) -> Ledger:
  """Returns the rejection and bias of over-acceptance, summed over tokens.

  The sums are over all emitted tokens of each row, as if every token had been
  drafted and tested, given the tokens before it. Both models read the texts
  again.

  Args:
    target: the target model.
    draft: the draft model.
    params: parameters of the target model and of the draft model.
    start: `[B]` lengths of the prompts.
    lengths: `[B]` lengths of the texts, including the prompts.
    tokens: `[B, S]` the texts; undefined past `lengths`.
    epsilons: parameters of over-acceptance, each at least 0.
    sampling: how tokens are drawn from both models.

  Raises:
    ValueError: an epsilon is negative.
  """
  checks.check_range('epsilons', epsilons, 0)
  texts = np.asarray(start), np.asarray(lengths), np.asarray(tokens)
  rejection, bias = _sums(
    target, draft, params, *texts, np.asarray(epsilons, np.float32), sampling
  )
  num_tokens = texts[1] - texts[0]
  return Ledger(num_tokens, np.asarray(rejection), np.asarray(bias))


@functools.partial(jax.jit, static_argnames=('target', 'draft', 'sampling'))
def _sums(
  target: base.LanguageModel,
  draft: base.LanguageModel,
  params: tuple[base.Params, base.Params],
  start: jax.Array,
  lengths: jax.Array,
  tokens: jax.Array,
  epsilons: jax.Array,
  sampling: sampling_lib.Sampling,
) -> tuple[jax.Array, jax.Array]:
  """Returns the fields `rejection` and `bias` of `Ledger`."""

  def row_sums(
    row: tuple[jax.Array, jax.Array, jax.Array],
  ) -> tuple[jax.Array, jax.Array]:
    start, length, tokens = row
    target_params, draft_params = params
    probs = (
      diagnosis.next_probs(draft, draft_params, tokens, sampling),
      diagnosis.next_probs(target, target_params, tokens, sampling),
    )
    emitted = diagnosis.predicts_emitted(start, length, len(tokens))

    def epsilon_sums(epsilon: jax.Array) -> tuple[jax.Array, jax.Array]:
      rules = [
        functools.partial(
          pareto.over_acceptance_point, epsilon=epsilon, replacement=name
        )
        for name in over_acceptance.REPLACEMENTS
      ]
      points = [jax.vmap(rule)(*probs) for rule in rules]
      total = lambda field: jnp.where(emitted, field, 0.0).sum()
      biases = jnp.stack([total(point.bias) for point in points])
      return total(points[0].rejection), biases

    return jax.lax.map(epsilon_sums, epsilons)

  return jax.lax.map(row_sums, (start, lengths, tokens))
