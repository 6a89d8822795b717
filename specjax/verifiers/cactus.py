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
  0 it is lossless. If there are several candidates, only one is tested.

  Attributes:
    delta: nats, at least 0; 0 is lossless, and 1 is the paper's choice.
  """

  delta: float = 1.0

  def __post_init__(self) -> None:
    checks.check_range('delta of Cactus', self.delta, 0)

  @property
  def judges_by_level(self) -> bool:
    return True

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    coupling = CactusCoupling(self.delta)
    return walks.TreeWalk(coupling)(key, tree, target_probs)


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
  prob = target[token]
  raised = jnp.minimum(prob + jnp.sqrt(2 * delta * prob * (1 - prob)), 1.0)
  is_certain = prob >= 1
  scale = (1 - raised) / jnp.where(is_certain, 1.0, 1 - prob)
  # Nothing can be added to a probability of 1, nor to one of 0.
  others = jnp.where(is_certain | (prob <= 0), target, target * scale)
  return others.at[token].set(jnp.where(is_certain, prob, raised))
