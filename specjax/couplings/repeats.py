"""Draws with repeats, of which candidates without replacement are the first.

Such candidates are the first `k` different tokens of i.i.d. draws. Repeated
draws cost no node of a tree, and a coupling may draw them when it needs them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Candidates(NamedTuple):
  """The active candidates, in the order in which they were drawn."""

  tokens: jax.Array  # [W] int32, active ones first
  num: jax.Array  # [] int32, number of active ones
  draft: jax.Array  # [V] distribution of each draw
  draw_probs: jax.Array  # [W] the probability of each token; 0 if not active
  remaining: jax.Array  # [W] probability of a token other than those so far


def in_order(
  candidates: jax.Array, active: jax.Array, draft: jax.Array
) -> Candidates:
  """Sorts candidates; see `base.Coupling` for the arguments."""
  size = candidates.shape[0]
  order = jnp.argsort(~active)
  num, tokens = active.sum(), candidates[order]
  probs = jnp.broadcast_to(jnp.atleast_2d(draft), (size, draft.shape[-1]))
  first = probs[order[0]]
  draw_probs = jnp.where(np.arange(size) < num, first[tokens], 0.0)
  # From the distribution of the next candidate: as a difference to 1 it would
  # be rounded.
  index = np.minimum(np.arange(1, size + 1), size - 1)
  following = probs[order[index], tokens[index]]
  remaining = draw_probs[index] / jnp.where(following > 0, following, 1.0)
  return Candidates(tokens, num, first, draw_probs, remaining)
