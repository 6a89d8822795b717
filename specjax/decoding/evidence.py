"""What a round tells of its arms: of the one played, and of the others.

The target has said what may follow at each token that a round commits. So a
drafter that reads them shows what its drafts there would have been worth,
without another call of the target. With lossless verifiers, the tokens have the
target's law whatever was played.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base

# So that a history is that of the last 30 positions or so.
_MEMORY = 1 - 1 / 32


class Evidence(NamedTuple):
  """What the played arm's tree tells; the rest is None unless asked for."""

  overlap: jax.Array  # [B] mean chance that a drafted token is kept
  acceptance: jax.Array | None = None  # [B, P] that at each committed position
  known: jax.Array | None = None  # [B, P] bool, where something was drafted
  laws: jax.Array | None = None  # [B, P, V] the target's


def of_tree(
  tree: base.DraftTree,
  target_probs: jax.Array,
  outcome: base.Outcome,
  committed: bool,
) -> Evidence:
  """Compares a tree with the target's laws.

  Where children were sampled, the chance is that of one of them, `1 - TV`;
  where they were chosen, it is the target's mass of all of them.

  Args:
    tree: batched.
    target_probs: `[B, N + 1, V]`.
    outcome: batched.
    committed: whether to tell of the committed positions, too.
  """
  by_entry, drafted = _by_entry(tree, target_probs)
  overlap = by_entry.sum(1) / jnp.maximum(drafted.sum(1), 1)
  if not committed:
    return Evidence(overlap)
  entries = jnp.pad(outcome.path + 1, ((0, 0), (1, 0)))
  at = lambda values: jnp.take_along_axis(values, entries, axis=1)
  index = np.arange(entries.shape[1])
  return Evidence(
    overlap=overlap,
    acceptance=at(by_entry),
    known=at(drafted) & (index <= outcome.num_accepted[:, None]),
    laws=jnp.take_along_axis(target_probs, entries[..., None], axis=1),
  )


def _by_entry(tree, target_probs):
  """`[B, N + 1]` the chance behind each entry, and whether it has drafts."""
  num = tree.topology.num_nodes
  parents = np.array(tree.topology.parents, np.int32) + 1
  laws = target_probs[:, parents]
  if tree.probs is None:
    each = jnp.take_along_axis(laws, tree.tokens[..., None], axis=2)[..., 0]
  else:
    each = jnp.minimum(laws, tree.probs).sum(-1)
  children = (parents[:, None] == np.arange(num + 1)).astype(np.float32)
  sum_up = lambda values: jnp.matmul(values, children, precision='highest')
  total = sum_up(jnp.where(tree.valid, each, 0.0))
  count = sum_up(tree.valid.astype(jnp.float32))
  if tree.probs is not None:
    total = total / jnp.maximum(count, 1)
  return jnp.minimum(total, 1), count > 0  # Sums may round past 1.


def of_memories(
  played: Evidence,
  acceptance: list[jax.Array],
  mine: jax.Array,
  num_emitted: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Merges what was played with what the other drafters have read.

  Args:
    played: of the arms that were played.
    acceptance: `[B, P]` of each memory, where it was not.
    mine: `[memories, B]` where each was.
    num_emitted: `[B]` positions that were committed.

  Returns:
    `[B, memories, P]` the chance at each position, and whether it is known.
  """
  mine = mine.T[..., None]
  there = np.arange(played.known.shape[1]) < num_emitted[:, None, None]
  return (
    jnp.where(mine, played.acceptance[:, None], jnp.stack(acceptance, axis=1)),
    there & (~mine | played.known[:, None]),
  )


class History(NamedTuple):
  """How often drafts were kept of late, for each memory (what arms share).

  Sums over committed positions, each weighed by `_MEMORY` to the power of its
  age.
  """

  kept: jax.Array  # [B, memories] float32, chances of being kept
  count: jax.Array  # [B, memories] float32


def no_history(batch: int, num_memories: int) -> History:
  """Returns the history before the first token."""
  zeros = jnp.zeros((batch, num_memories))
  return History(zeros, zeros)


def remember(
  history: History, acceptance: jax.Array, known: jax.Array
) -> History:
  """Adds what a round has shown.

  Args:
    history: until now.
    acceptance: `[B, memories, P]` chances at the round's positions.
    known: `[B, memories, P]` where they are known.
  """
  decay = _MEMORY ** known.sum(-1)
  return History(
    kept=decay * history.kept + jnp.where(known, acceptance, 0.0).sum(-1),
    count=decay * history.count + known.sum(-1),
  )


def rewards(
  reward: base.Reward,
  played: base.Feedback,
  acceptance: jax.Array,
  known: jax.Array,
  history: History,
  depths: np.ndarray,
  memories: tuple[int, ...],
) -> jax.Array:
  """Returns `[B, A]` what every arm would have earned.

  An arm emits one token more for every position up to its depth that it would
  have reached: the product of the chances before. Where the round's text ends
  before the arm's block does, the chance is that of late, by the rule of
  succession: the few positions of one block would often say 0 or 1, and a power
  of that is no expectation. Several sampled branches count as one.

  Args:
    reward: what a round is worth.
    played: of the arm that was played; the others are put in its place.
    acceptance: `[B, memories, P]` chances at the round's positions.
    known: `[B, memories, P]` where they are known.
    history: the round's included.
    depths: `[A]` of each arm's tree.
    memories: `[A]` of each arm.
  """
  late = (history.kept + 1) / (history.count + 2)
  chance = jnp.where(known, acceptance, late[..., None])
  overlap = jnp.where(known, acceptance, 0.0).sum(-1)
  overlap /= jnp.maximum(known.sum(-1), 1)

  def of_arm(arm):
    reached = jnp.cumprod(chance[:, memories[arm], : depths[arm]], axis=1)
    return reward(
      played._replace(
        arm=jnp.full_like(played.arm, arm),
        emitted=1 + reached.sum(1),
        overlap=overlap[:, memories[arm]],
        depth=jnp.full_like(played.depth, depths[arm]),
        caught_up=jnp.zeros_like(played.caught_up),
      )
    )

  return jnp.stack([of_arm(arm) for arm in range(len(memories))], axis=1)
