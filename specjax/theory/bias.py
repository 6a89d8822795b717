"""What over-acceptance would cost at every token of given texts, exactly.

Yin et al. (2024), Section 4: rejection and bias are closed forms of draft and
target at a position, so that two rules differ here by numbers without noise,
where a judge of whole responses needs thousands of them.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import sampling as sampling_lib
from specjax.theory import diagnosis
from specjax.theory import pareto

# What may stand for a rejected draft, as `verifiers.over_acceptance` has it.
REPLACEMENTS = ('residual', 'target', 'draft')


class Ledger(NamedTuple):
  """Sums over the tokens of each row that were emitted; of `E` epsilons."""

  num_tokens: np.ndarray  # [B]
  rejection: np.ndarray  # [B, E] chances that a draft is replaced
  bias: np.ndarray  # [B, E, 3] total variations, in order of `REPLACEMENTS`


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
  """Returns where over-acceptance stands at each emitted token.

  As if every token had been drafted and tested, behind the tokens before it.
  Both models read the texts once more.

  Args:
    target: the model that is sampled from.
    draft: the model that drafts.
    params: of target and draft.
    start: `[B]` lengths of the prompts.
    lengths: `[B]` lengths of the texts, prompts included.
    tokens: `[B, S]` the texts, junk behind them.
    epsilons: at least 0 each.
    sampling: how both models' tokens are drawn.
  """
  texts = np.asarray(start), np.asarray(lengths), np.asarray(tokens)
  rejection, bias = _sums(
    target, draft, params, *texts, np.asarray(epsilons, np.float32), sampling
  )
  num_tokens = texts[1] - texts[0]
  return Ledger(num_tokens, np.asarray(rejection), np.asarray(bias))


@functools.partial(jax.jit, static_argnames=('target', 'draft', 'sampling'))
def _sums(target, draft, params, start, lengths, tokens, epsilons, sampling):
  """`[B, E]` rejection and `[B, E, 3]` bias, summed over emitted tokens."""

  def of_row(row):
    start, length, tokens = row
    probs = [
      diagnosis.next_probs(model, own, tokens, sampling)
      for model, own in zip((draft, target), params[::-1])
    ]
    after = jnp.arange(tokens.shape[0])  # The last token predicts none.
    emitted = (start - 1 <= after) & (after < length - 1)

    def of_epsilon(epsilon):
      rules = [
        functools.partial(
          pareto.over_acceptance_point, epsilon=epsilon, replacement=name
        )
        for name in REPLACEMENTS
      ]
      points = [jax.vmap(rule)(*probs) for rule in rules]
      total = lambda field: jnp.where(emitted, field, 0.0).sum()
      biases = jnp.stack([total(point.bias) for point in points])
      return total(points[0].rejection), biases

    return jax.lax.map(of_epsilon, epsilons)

  return jax.lax.map(of_row, (start, lengths, tokens))
