"""The improvement by several drafts per position with multi-round rejection.

Yin et al. (2024), Section 3. Notation: the paper's p is the draft, its q is the
target.
"""

import jax

from specjax import transport


def batch_improvement(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
) -> jax.Array:
  """Returns by how much `K` drafts reduce the probability of a rejection.

  The improvement is `TV(target, draft)` minus the product of the total
  variations between the residuals of `K` tests and `draft`. It is never
  negative.

  Args:
    draft: `[V]` distribution of each draft.
    target: `[V]` distribution of the emitted token.
    num_drafts: `K >= 1`, may be traced.

  Raises:
    ValueError: `draft` or `target` is not a distribution, or `K < 1` (if the
      values are not traced).
  """
  several = transport.multiround_acceptance(draft, target, num_drafts)
  return several - transport.multiround_acceptance(draft, target, 1)
