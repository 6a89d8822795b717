"""Lossy verification with a bound on the divergence from the target: Cactus.

"Cactus: Accelerating Auto-Regressive Decoding with Constrained Acceptance
Speculative Sampling" (Hao and Mou 2026, arXiv:2604.04987). Notation: the
paper's q is the target, its p is the draft.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components
from specjax import couplings
from specjax.verifiers import walks


@components.component
class Cactus(base.Verifier):
  """Raises the target's probability of the token that was drafted.

  A draft token `x` is verified as in lossless decoding, but against the target
  with the probability of `x` raised to

      target(x) + sqrt(2 delta target(x) (1 - target(x))), at most 1,

  and the other probabilities scaled to the rest. This is the largest
  probability of `x` whose distribution has a Kullback-Leibler divergence of
  `delta` from the target, to second order. A rejected draft is replaced by a
  sample of what the raised distribution exceeds the draft's by. At temperature
  0 it is lossless. If there are several candidates, only one is tested. Draft
  tokens that were chosen, such as those of prompt lookup, are verified without
  loss.

  Attributes:
    delta: nats, at least 0; 0 is lossless, and 1 is the paper's choice.
  """

  delta: float = 1.0

  def __post_init__(self) -> None:
    checks.check_range('delta of Cactus', self.delta, 0)

  @property
  def is_lossless(self) -> bool:
    return False

  @property
  def judges_by_level(self) -> bool:
    return True

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    coupling = CactusCoupling(self.delta)
    return walks.TreeWalk(coupling)(key, tree, target_probs)

  def token_probs(
    self, draft: jax.Array, target: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns what `Lossy.token_probs` does, for this rule.

    The replacement of a rejected token `x` has the distribution `max(scale(x)
    target - draft, 0)`, normalized, where `scale(x)` is what raising `x` leaves
    of the other probabilities; `x` itself has no mass in it. With tokens sorted
    by `draft / target`, those with any mass come first, so that cumulative sums
    replace the sum over all pairs of tokens.

    Args:
      draft: See `Lossy.token_probs`.
      target: See `Lossy.token_probs`.
    """
    raised, scales = _raise(target, self.delta)
    accepted = jnp.minimum(draft, raised)
    rejected = draft - accepted
    ratios = jnp.where(target > 0, draft / target, jnp.inf)
    order = jnp.argsort(ratios)
    targets, drafts = target[order], draft[order]
    # How many tokens of this order have mass after a rejection of each token.
    counts = jnp.searchsorted(ratios[order], scales)
    sum_first = lambda values: jnp.pad(jnp.cumsum(values), (1, 0))[counts]
    masses = scales * sum_first(targets) - sum_first(drafts)
    # Without rounding errors, no mass is less than what is rejected.
    masses = jnp.maximum(masses, rejected)
    weights = rejected / jnp.where(masses > 0, masses, 1)
    replaced = targets * _sum_after(weights * scales, counts)
    replaced -= drafts * _sum_after(weights, counts)
    probs = accepted.at[order].add(jnp.maximum(replaced, 0))
    return probs, rejected.sum()


@components.component
class CactusCoupling(base.Coupling):
  """The maximal coupling with a target that favors the candidate.

  Attributes:
    delta: See `Cactus`.
  """

  delta: float

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    token = candidates[jnp.argmax(active)]  # The one that `Maximal` tests.
    raised = raise_probability(target, token, self.delta)
    probs = jnp.where(active.any(), raised, target)
    return couplings.Maximal()(key, candidates, active, draft, probs)


def raise_probability(
  target: jax.Array, token: jax.Array, delta: float
) -> jax.Array:
  """Returns the target `[V]` with a higher probability of one token."""
  raised, scale = _raise(target[token], delta)
  return (target * scale).at[token].set(raised)


def _raise(probs: jax.Array, delta: float) -> tuple[jax.Array, jax.Array]:
  """Returns raised probabilities, and the scales of all others."""
  raised = jnp.minimum(probs + jnp.sqrt(2 * delta * probs * (1 - probs)), 1.0)
  # Nothing can be added to a probability of 1, nor to one of 0.
  is_fixed = (probs >= 1) | (probs <= 0)
  scales = (1 - raised) / jnp.where(is_fixed, 1.0, 1 - probs)
  return jnp.where(is_fixed, probs, raised), jnp.where(is_fixed, 1.0, scales)


def _sum_after(values: jax.Array, counts: jax.Array) -> jax.Array:
  """Returns `[V]` sums of the values whose count is above each index."""
  by_count = jnp.zeros(len(values) + 1, values.dtype).at[counts].add(values)
  return jnp.cumsum(by_count[::-1])[::-1][1:]
