"""What more drafts of one token are worth under multi-round rejection.

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
  """Returns by how much `K` drafts lower the chance of a rejection.

  `TV(target, draft)` less the product of the distances that the `K` residuals
  have from the draft; never negative.

  Args:
    draft: `[V]` distribution of each draft.
    target: `[V]` distribution of the token.
    num_drafts: `K >= 1`, may be traced.

  Raises:
    ValueError: no distributions or `K < 1`, where the values are known.
  """
  several = transport.multiround_acceptance(draft, target, num_drafts)
  return several - transport.multiround_acceptance(draft, target, 1)
