"""Draws with repeats, behind candidates that are drawn without replacement.

Such candidates are the first `k` different tokens of i.i.d. draws. Repeated
draws cost no node of a tree, and a coupling may draw them when it needs them.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np


class Candidates(NamedTuple):
  """Candidates in the order in which they were drawn, those that are there."""

  tokens: jax.Array  # [W] int32, active ones first
  num: jax.Array  # [] int32, how many of them are
  draft: jax.Array  # [V] distribution of each draw
  drawn: jax.Array  # [W] chance that a draw is of this token; 0 of others
  left: jax.Array  # [W] chance that it is of none of the tokens so far


def in_order(
  candidates: jax.Array, active: jax.Array, draft: jax.Array
) -> Candidates:
  """Sorts candidates; arguments as of a coupling, see `kseq_distinct`."""
  size = candidates.shape[0]
  order = jnp.argsort(~active)
  num, tokens = active.sum(), candidates[order]
  own = jnp.broadcast_to(jnp.atleast_2d(draft), (size, draft.shape[-1]))
  first = own[order[0]]
  drawn = jnp.where(np.arange(size) < num, first[tokens], 0.0)
  # From the distribution of the next candidate: as a difference to 1 it would
  # be rounded.
  index = np.minimum(np.arange(1, size + 1), size - 1)
  after = own[order[index], tokens[index]]
  left = drawn[index] / jnp.where(after > 0, after, 1.0)
  return Candidates(tokens, num, first, drawn, left)
