"""Children of a node that are all different: drawn without replacement.

EAGLE (Li et al. 2024): each sibling is drawn from what the earlier ones have
left, and has that distribution for itself. Verified one after the other, by
multi-round rejection (`VERIFIERS['ensemble']`), they are exact; with the
distribution of the first one for all, they would not be.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib


def ranks(parents: Sequence[int] | np.ndarray) -> np.ndarray:
  """Returns `[N]` how many earlier nodes have the same parent as each."""
  of_each = np.asarray(parents)
  return np.array(
    [(of_each[:i] == parent).sum() for i, parent in enumerate(of_each)]
  )


def draw(
  uniforms: jax.Array,
  logits: jax.Array,
  probs: jax.Array,
  rows: np.ndarray,
  sampling: sampling_lib.Sampling,
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
  """Draws a level of nodes.

  At temperature 0 they are chosen, the likeliest first.

  Args:
    uniforms: `[B, W, U]`, see `sampling.draw`.
    logits: `[B, P, V]` behind the nodes of the level above.
    probs: `[B, P, V]`, what `sampling.probabilities` makes of them.
    rows: `[W]` which of those each node hangs below.
    sampling: how tokens are drawn.

  Returns:
    `[B, W]` tokens; `[B, W, V]` what each was drawn from, or None where they
    were chosen; and `[B, W]` whether there was a token left.
  """
  rank = ranks(rows)
  if not sampling.temperature:
    num = min(int(rank.max()) + 1, logits.shape[-1])
    best, tokens = jax.lax.top_k(logits, num)
    column = np.minimum(rank, num - 1)
    exists = (best[:, rows, column] > -jnp.inf) & (rank < num)[None]
    return tokens[:, rows, column].astype(jnp.int32), None, exists
  rounds = [np.flatnonzero(rank == i) for i in range(rank.max() + 1)]
  drawn, left = [], probs
  for nodes in rounds:
    own = left[:, rows[nodes]]
    tokens = jax.vmap(jax.vmap(sampling_lib.draw))(uniforms[:, nodes], own)
    drawn.append((tokens, own, own.sum(-1) > 0))
    taken = np.arange(len(tokens))[:, None], rows[nodes][None], tokens
    left = _without(taken, left)
  place = np.argsort(np.concatenate(rounds))
  tokens, own, exists = jax.tree.map(
    lambda *each: jnp.concatenate(each, axis=1)[:, place], *drawn
  )
  return tokens, own, exists


def _without(taken, probs):
  """Probabilities of what is left; all zero if nothing is."""
  left = probs.at[taken].set(0.0)
  mass = left.sum(-1, keepdims=True)
  return left / jnp.where(mass > 0, mass, 1.0)
