"""Children of a node that are all different: drawn without replacement.

EAGLE (Li et al. 2024): each sibling is drawn from what the earlier ones have
left, and has that distribution for itself. Verified one after the other, by
multi-round rejection (`VERIFIERS['ensemble']`), they are exact; with the
distribution of the first one for all, they would not be.
"""

from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
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
  probs: base.Probs,
  rows: np.ndarray,
  sampling: sampling_lib.Sampling,
) -> tuple[jax.Array, base.Probs | None, jax.Array]:
  """Draws a level of nodes.

  At temperature 0 they are chosen, the likeliest first, and have no
  distribution.

  Args:
    uniforms: `[B, W, U]`, see `sampling.draw`.
    logits: `[B, P, V]` behind the nodes of the level above.
    probs: `[B, P, V]`, what `sampling.both_probs` makes of them.
    rows: `[W]` which of those each node hangs below.
    sampling: how tokens are drawn.

  Returns:
    `[B, W]` tokens; `[B, W, V]` what each was drawn from, or None; and `[B, W]`
    whether there was a token left.
  """
  rank = ranks(rows)
  rounds = [np.flatnonzero(rank == i) for i in range(rank.max() + 1)]
  drawn = []
  for nodes in rounds:
    own_logits, own = _at(rows[nodes], (logits, probs))
    tokens = sampling_lib.tokens(
      uniforms[:, nodes], own_logits, own.processed, sampling
    )
    drawn.append((tokens, own, _is_left(own_logits, own, sampling)))
    taken = np.arange(len(tokens))[:, None], rows[nodes][None], tokens
    logits = logits.at[taken].set(-jnp.inf)
    probs = jax.tree.map(functools.partial(_without, taken), probs)
  place = np.argsort(np.concatenate(rounds))
  tokens, probs, exists = jax.tree.map(
    lambda *each: jnp.concatenate(each, axis=1)[:, place], *drawn
  )
  return tokens, probs if sampling.temperature else None, exists


def _at(rows: np.ndarray, values: Any) -> Any:
  """What nodes of the level above have."""
  return jax.tree.map(lambda each: each[:, rows], values)


def _is_left(logits, probs, sampling):
  """`[B, W]` whether a token can still be drawn."""
  if not sampling.temperature:
    return logits.max(-1) > -jnp.inf
  return probs.processed.sum(-1) > 0


def _without(taken, probs):
  """Probabilities of what is left; all zero if nothing is."""
  left = probs.at[taken].set(0.0)
  mass = left.sum(-1, keepdims=True)
  return left / jnp.where(mass > 0, mass, 1.0)
