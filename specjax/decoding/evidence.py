"""What a round tells of its arms: of the one played, and of the others.

The target has said what may follow at each token that a round commits. So a
drafter that reads them shows what its drafts there would have been worth,
without another call of the target. With lossless verifiers, the tokens have the
target's law whatever was played.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import goals

# So that a history is that of the last 30 positions or so.
_MEMORY = 1 - 1 / 32


class Evidence(NamedTuple):
  """What the played arm's tree tells; the rest is None unless asked for."""

  overlap: base.Laws  # [B] mean of 1 - TV of the draft and what is sampled
  fidelity: jax.Array  # [B] mean of 1 - TV of the target and the goal
  at: base.Laws | None = None  # [B, P] that at each committed position
  known: jax.Array | None = None  # [B, P] bool, where something was drafted
  laws: base.Laws | None = None  # [B, P, V] the target's


def of_tree(
  tree: base.DraftTree,
  target: base.Laws,
  goal: jax.Array | None,
  outcome: base.Outcome,
  committed: bool,
) -> Evidence:
  """Compares a tree with the target's laws, and with the goal's.

  Where children were sampled, the chance that a draft is kept is that of one of
  them, `1 - TV`; where they were chosen, it is the mass of all of them.

  Args:
    tree: batched.
    target: `[B, N + 1, V]`.
    goal: `[B, N + 1, V]`, what the verifier samples; None is the target's.
    outcome: batched.
    committed: whether to tell of the committed positions, too.
  """
  wanted = target if goal is None else target._replace(sampled=goal)
  by_entry = base.Laws(
    *map(functools.partial(_by_entry, tree), tree.laws, wanted)
  )
  drafted = _children(tree, tree.valid) > 0
  mean = lambda each: each.sum(1) / jnp.maximum(drafted.sum(1), 1)
  overlap = jax.tree.map(mean, by_entry)
  fidelity = jnp.ones(len(tree.tokens))
  if goal is not None:
    told = jax.vmap(goals.told)(tree)  # Elsewhere the goal is the target.
    same = jnp.minimum(goal, target.sampled).sum(-1)
    fidelity = jnp.mean(same, axis=1, where=told)
    fidelity = jnp.where(told.any(1), fidelity, 1.0)
  if not committed:
    return Evidence(overlap, fidelity)
  entries = jnp.pad(outcome.path + 1, ((0, 0), (1, 0)))
  at = lambda values: jnp.take_along_axis(
    values, entries[(...,) + (None,) * (values.ndim - 2)], axis=1
  )
  index = np.arange(entries.shape[1])
  return Evidence(
    overlap=overlap,
    fidelity=fidelity,
    at=jax.tree.map(at, by_entry),
    known=at(drafted) & (index <= outcome.num_accepted[:, None]),
    laws=jax.tree.map(at, target),
  )


def _by_entry(tree, draft, target):
  """Returns `[B, N + 1]` the chance that a draft behind each entry is kept."""
  laws = target[:, np.array(tree.topology.parents, np.int32) + 1]
  if draft is None:
    each = jnp.take_along_axis(laws, tree.tokens[..., None], axis=2)[..., 0]
  else:
    each = jnp.minimum(laws, draft).sum(-1)
  total = _children(tree, jnp.where(tree.valid, each, 0.0))
  if draft is not None:
    total = total / jnp.maximum(_children(tree, tree.valid), 1)
  return jnp.minimum(total, 1)  # Sums may round past 1.


def _children(tree, values):
  """Sums `[B, N]` values of nodes over the children of each entry."""
  entries = np.arange(tree.topology.num_nodes + 1)
  parents = np.array(tree.topology.parents, np.int32)[:, None] + 1
  children = (parents == entries).astype(np.float32)
  return jnp.matmul(values.astype(jnp.float32), children, precision='highest')


def of_memories(
  played: Evidence,
  overlaps: list[base.Laws],
  mine: jax.Array,
  num_emitted: jax.Array,
) -> tuple[base.Laws, jax.Array]:
  """Merges what was played with what the other drafters have read.

  Args:
    played: of the arms that were played.
    overlaps: `[B, P]` of each memory, where it was not.
    mine: `[memories, B]` where each was.
    num_emitted: `[B]` positions that were committed.

  Returns:
    `[B, memories, P]` the chance at each position, and whether it is known.
  """
  mine = mine.T[..., None]
  there = np.arange(played.known.shape[1]) < num_emitted[:, None, None]
  merge = lambda own, *others: jnp.where(
    mine, own[:, None], jnp.stack(others, axis=1)
  )
  return (
    jax.tree.map(merge, played.at, *overlaps),
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
  history: History, overlaps: base.Laws, known: jax.Array
) -> History:
  """Adds what a round has shown.

  Args:
    history: until now.
    overlaps: `[B, memories, P]` chances at the round's positions.
    known: `[B, memories, P]` where they are known.
  """
  decay = _MEMORY ** known.sum(-1)
  kept = jnp.where(known, overlaps.sampled, 0.0).sum(-1)
  return History(
    kept=decay * history.kept + kept,
    count=decay * history.count + known.sum(-1),
  )


def rewards(
  reward: base.Reward,
  played: base.Feedback,
  overlaps: base.Laws,
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
    overlaps: `[B, memories, P]` chances at the round's positions.
    known: `[B, memories, P]` where they are known.
    history: the round's included.
    depths: `[A]` of each arm's tree.
    memories: `[A]` of each arm.
  """
  late = (history.kept + 1) / (history.count + 2)
  chance = jnp.where(known, overlaps.sampled, late[..., None])
  mean = jax.tree.map(
    lambda each: (
      jnp.where(known, each, 0.0).sum(-1) / jnp.maximum(known.sum(-1), 1)
    ),
    overlaps,
  )

  def of_arm(arm):
    reached = jnp.cumprod(chance[:, memories[arm], : depths[arm]], axis=1)
    return reward(
      played._replace(
        arm=jnp.full_like(played.arm, arm),
        emitted=1 + reached.sum(1),
        overlap=mean.sampled[:, memories[arm]],
        agreement=mean.untempered[:, memories[arm]],
        depth=jnp.full_like(played.depth, depths[arm]),
        caught_up=jnp.zeros_like(played.caught_up),
      )
    )

  return jnp.stack([of_arm(arm) for arm in range(len(memories))], axis=1)
