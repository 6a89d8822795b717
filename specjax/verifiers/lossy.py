"""Lossy verification with a fixed beta, as people use it.

Speculative cascades (Narasimhan et al. 2024), "SpecDecode [Lossy]". Notation:
the paper's p is the target, its q is the draft.
"""

import jax.numpy as jnp

from specjax import base
from specjax import registry
from specjax import trees
from specjax.couplings import maximal
from specjax.goals import lossy as lossy_goal
from specjax.verifiers import tree_walk


@registry.component(topologies=[trees.chains(2, 2), trees.prefix_tree((2, 2))])
def lossy(alpha: float = 0.1, beta: float = 1.0) -> base.Verifier:
  """Builds the verifier that accepts with `min(1, target / ((1-alpha) draft))`.

  What is rejected is replaced by a sample of `max(target / beta - draft, 0)`,
  and the bonus token is the target's. With `beta = 1`, a token has the law
  `kept + (1 - sum kept) max(target - draft, 0) / TV(target, draft)`, where
  `kept = min(draft, target / (1 - alpha))`; that is not the goal
  `max(kept, target)` normalised. At temperature 0 it is lossless.

  Args:
    alpha: in [0, 1); 0 is lossless.
    beta: at least `1 - alpha`. Where it is so large that a rejection leaves
      nothing of the target, the token is drawn from the goal `kept`.

  Returns:
    The verifier, for chains; of several candidates, only one is tried.

  Raises:
    ValueError: an argument is out of range.
  """
  goal = lossy_goal.lossy(alpha, beta)

  def coupling(key, candidates, active, draft, target):
    # Lemma 2: a lossless step against the goal, whatever its mass is.
    made = jnp.where(active.any(), goal(target, draft), target)
    return maximal.maximal(key, candidates, active, draft, made)

  return tree_walk.tree_walk(coupling)
