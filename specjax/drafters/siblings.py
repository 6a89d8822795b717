"""Children of a node that are all different: drawn without replacement.

EAGLE (Li et al. 2024): each sibling is drawn from what the earlier ones have
left, a distribution of its own. Verified one after the other, by multi-round
rejection (`VERIFIERS['ensemble']`), they are exact; with the distribution of
the first one for all, they would not be.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import sampling as sampling_lib


def ranks(parents: Sequence[int] | np.ndarray) -> np.ndarray:
  """Returns `[N]` how many earlier nodes have the same parent."""
  parents = np.asarray(parents)
  return np.array(
    [(parents[:node] == parent).sum() for node, parent in enumerate(parents)]
  )


def shared_scores(
  noise: base.Noise | None, levels: np.ndarray, probs: jax.Array
) -> jax.Array:
  """Returns `[B, T, V]` scores, the largest of which shared noise selects.

  Args:
    noise: of the context in a round.
    levels: `[T]`, or `[1]` for one level of all, from 0 on.
    probs: `[B, T, V]` after the nodes above.
  """
  assert noise is not None  # Only contexts of `Drafter.init` lack it.
  times = sampling_lib.race_times(noise, levels, probs.shape[-1])
  return sampling_lib.race(times, probs)


def draw(
  uniforms: jax.Array,
  logits: jax.Array,
  probs: jax.Array,
  rows: np.ndarray,
  sampling: sampling_lib.Sampling,
) -> tuple[jax.Array, jax.Array | None, jax.Array]:
  """Draws a level of nodes.

  At temperature 0 and with shared noise they are chosen, the best first.

  Args:
    uniforms: `[B, W, U]`, see `sampling.draw`.
    logits: `[B, P, V]` after the nodes of the level above; with shared noise,
      the scores of `sampling.race`.
    probs: `[B, P, V]`, the result of `sampling.probabilities` for these logits.
    rows: `[W]` the parent of each node, as an index of these nodes.
    sampling: how tokens are drawn.

  Returns:
    `[B, W]` tokens; `[B, W, V]` the distribution that each was drawn from, or
    None where they were chosen; and `[B, W]` whether there was a token left.
  """
  rank = ranks(rows)
  if sampling.chooses:
    num = min(int(rank.max()) + 1, logits.shape[-1])
    best, tokens = jax.lax.top_k(logits, num)
    column = np.minimum(rank, num - 1)
    exists = (best[:, rows, column] > -jnp.inf) & (rank < num)[None]
    return tokens[:, rows, column].astype(jnp.int32), None, exists
  rounds = [np.flatnonzero(rank == i) for i in range(rank.max() + 1)]
  drawn, remaining = [], probs
  for nodes in rounds:
    drawn_from = remaining[:, rows[nodes]]
    tokens = jax.vmap(jax.vmap(sampling_lib.draw))(
      uniforms[:, nodes], drawn_from
    )
    drawn.append((tokens, drawn_from, drawn_from.sum(-1) > 0))
    index = np.arange(len(tokens))[:, None], rows[nodes][None], tokens
    remaining = _remove(remaining, index)
  order = np.argsort(np.concatenate(rounds))
  tokens, drawn_from, exists = jax.tree.map(
    lambda *parts: jnp.concatenate(parts, axis=1)[:, order], *drawn
  )
  return tokens, drawn_from, exists


def _remove(
  probs: jax.Array, index: tuple[np.ndarray | jax.Array, ...]
) -> jax.Array:
  """Returns the distribution without some tokens; zero if none is left.

  Args:
    probs: `[B, P, V]`.
    index: of the tokens, as indices of the three axes.
  """
  remaining = probs.at[index].set(0.0)
  mass = remaining.sum(-1, keepdims=True)
  return remaining / jnp.where(mass > 0, mass, 1.0)
