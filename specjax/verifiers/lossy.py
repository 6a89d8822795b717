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
  several candidates, only one is tested.

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
  def judges_by_level(self) -> bool:
    return True

  def __call__(
    self, key: jax.Array, tree: base.DraftTree, target_probs: jax.Array
  ) -> base.Outcome:
    coupling = LossyCoupling(goals.Lossy(self.alpha, self.beta))
    return walks.TreeWalk(coupling)(key, tree, target_probs)


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
    probs = self.goal(target, draft, base.RawProbs(target, draft))
    probs = jnp.where(active.any(), probs, target)
    return couplings.Maximal()(key, candidates, active, draft, probs)
