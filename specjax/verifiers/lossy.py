"""Lossy verification with a fixed beta, as it is common in practice.

Speculative cascades (Narasimhan et al. 2024), "SpecDecode [Lossy]". Notation:
the paper's p is the target, its q is the draft.
"""

import jax
import jax.numpy as jnp

from specjax import base
from specjax import components
from specjax import couplings
from specjax import goals
from specjax.couplings import residuals
from specjax.verifiers import walks


@components.component
class Lossy(base.Verifier):
  """Accepts a draft with `min(1, target / ((1 - alpha) draft))`.

  A rejected draft is replaced by a sample of `max(target / beta - draft, 0)`,
  and the bonus token is the target's. With `beta = 1`, a token has the
  probabilities `kept + (1 - sum kept) max(target - draft, 0) / TV`, where TV is
  the total variation between target and draft, and
  `kept = min(draft, target / (1 - alpha))`; that is not the goal
  `max(kept, target)` normalized. At temperature 0 it is lossless. If there are
  several candidates, only one is tested. Draft tokens that were chosen, such as
  those of prompt lookup, are verified without loss.

  Attributes:
    alpha: in [0, 1); 0 is lossless.
    beta: at least `1 - alpha`. Where it is so large that a rejection leaves
      nothing of the target, the token is sampled from the goal `kept`.
  """

  alpha: float = 0.1
  beta: float = 1.0

  def __post_init__(self) -> None:
    goals.Lossy(self.alpha, self.beta)  # Checks both.

  @property
  def is_lossless(self) -> bool:
    return False

  @property
  def judges_by_level(self) -> bool:
    return True

  @property
  def _coupling(self) -> 'LossyCoupling':
    return LossyCoupling(goals.Lossy(self.alpha, self.beta))

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    return walks.TreeWalk(self._coupling)(key, tree, target_probs)

  def token_probs(
    self, draft: jax.Array, target: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the distribution of a token that had a draft, in closed form.

    Args:
      draft: `[V]` distribution that the draft token is a sample of.
      target: `[V]` the target's distribution.

    Returns:
      `[V]` probabilities of the emitted token, whether it is the draft token
      or its replacement, and `[]` the probability of a rejection.
    """
    return self._coupling.token_probs(draft, target)


@components.component
class LossyCoupling(base.Coupling):
  """The maximal coupling with a goal, whatever the goal's mass is (Lemma 2).

  Attributes:
    goal: replaces the target wherever there is a candidate.
  """

  goal: goals.Lossy

  def __call__(
    self,
    key: jax.Array,
    candidates: jax.Array,
    active: jax.Array,
    draft: jax.Array,
    target: jax.Array,
  ) -> tuple[jax.Array, jax.Array]:
    probs = jnp.where(active.any(), self._goal_probs(draft, target), target)
    return couplings.Maximal()(key, candidates, active, draft, probs)

  def token_probs(
    self, draft: jax.Array, target: jax.Array
  ) -> tuple[jax.Array, jax.Array]:
    """Returns what `Lossy.token_probs` does."""
    goal_probs = self._goal_probs(draft, target)
    accepted = jnp.minimum(draft, goal_probs)
    rejection = (draft - accepted).sum()
    residual = residuals.residual(draft, goal_probs)
    return accepted + rejection * residual / residual.sum(), rejection

  def _goal_probs(self, draft: jax.Array, target: jax.Array) -> jax.Array:
    return self.goal(target, draft, base.RawProbs(target, draft))
