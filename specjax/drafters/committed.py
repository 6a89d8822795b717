"""What a drafter would have said where others have committed tokens."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base


def acceptance(
  probs: base.Probs,
  first: jax.Array,
  target: base.TargetProbs,
  known: base.Probs,
) -> base.Probs:
  """Fills in `1 - TV` at the committed positions that `probs` are of.

  Args:
    probs: `[B, T, V]`, of which the one at `i` is of what follows the token at
      position `first + i`.
    first: `[B]` int32.
    target: the target's, at committed positions.
    known: `[B, P]` what is there already, and stays elsewhere.
  """
  num_read, num_committed = (
    each.processed.shape[1] for each in (probs, target.probs)
  )
  index = np.arange(num_committed)[None]
  at = target.start[:, None] - 1 + index - first[:, None]
  here = (0 <= at) & (at < num_read)

  def fill(own, other, before):
    own = jnp.take_along_axis(own, at[..., None], axis=1, mode='clip')
    return jnp.where(here, jnp.minimum(own, other).sum(-1), before)

  return jax.tree.map(fill, probs, target.probs, known)


def nothing(target: base.TargetProbs) -> base.Probs:
  """Returns `[B, P]` zeros, where nothing is known yet."""
  zeros = jnp.zeros(target.probs.processed.shape[:2])
  return base.Probs(zeros, zeros)


def once_read(num: int, *computed: jax.Array) -> Any:
  """Returns `num`, which XLA can know only when something is computed.

  A write of so many entries to the cache that this was computed from comes
  behind it, in place; see `kv_cache.commit`.
  """
  if not computed:
    return num
  return jnp.where(jnp.isnan(computed[0]).any(), num + 1, num)
