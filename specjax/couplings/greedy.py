"""The greedy rule: the most likely token, whatever was drafted."""

import jax

from specjax import sampling


def greedy(
  key: jax.Array,
  candidates: jax.Array,
  active: jax.Array,
  draft: jax.Array,
  target: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Picks the target's most likely token.

  It has the target's distribution only where that is one-hot (temperature 0).

  Args:
    key: unused.
    candidates: `[W]` int32 tokens.
    active: `[W]` bool, which of them stand here.
    draft: unused.
    target: `[V]` float32.

  Returns:
    `(token, accepted)`: `[]` int32, and whether it is an active candidate.
  """
  del key, draft
  token = sampling.most_likely(target)
  return token, (active & (candidates == token)).any()
