"""How likely drafts are accepted: of the arm that was played, and of others.

The target has computed what may follow at each token that a round commits. So a
drafter that reads them shows what its drafts there would have been worth,
without another call of the target. With lossless verifiers, the tokens have the
target's distribution whatever was played.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees

# Weight of a position for each one that came later: a history is that of the
# last 30 positions or so.
_DECAY = 1 - 1 / 32


class Acceptance(NamedTuple):
  """Probabilities that drafts of the played arm's tree are accepted."""

  mean: base.Probs  # [B] of drafted positions
  at: base.Probs  # [B, P] at each committed position
  known: jax.Array  # [B, P] bool, where something was drafted


def of_tree(
  tree: base.DraftTree, sampled: base.Probs, outcome: base.Outcome
) -> Acceptance:
  """Compares a tree's probabilities with those that are sampled.

  Where the drafter's distribution is known, several children count as one: the
  probability that a draft is accepted is that of the first of them, `1 - TV`.
  Where tokens were chosen, and it is not, it is the mass of all of them.

  Args:
    tree: batched.
    sampled: `[B, N + 1, V]` the target's, or processed those of a goal.
    outcome: batched.
  """
  of_entries = functools.partial(_of_entries, tree)
  raw = tree.probs if tree.raw_probs is None else tree.raw_probs
  each = base.Probs(*map(of_entries, (tree.probs, raw), sampled))
  drafted = _sum_children(tree, tree.valid) > 0
  count = jnp.maximum(drafted.sum(1, dtype=jnp.float32), 1)
  entries = outcome.entries
  at = lambda values: trees.at_entries(values, entries)
  index = np.arange(entries.shape[1])[None]
  return Acceptance(
    mean=jax.tree.map(lambda chance: chance.sum(1) / count, each),
    at=jax.tree.map(at, each),
    known=at(drafted) & (index <= outcome.num_accepted[:, None]),
  )


def fidelity(goal: jax.Array, target: jax.Array, known: jax.Array) -> jax.Array:
  """Returns `[B]` the mean of `1 - TV` of goal and target, 1 where none is.

  Args:
    goal: `[B, N + 1, V]`.
    target: `[B, N + 1, V]` processed probabilities.
    known: `[B, N + 1]` bool, where the goal is not the target.
  """
  same = jnp.minimum(goal, target).sum(-1)
  mean = jnp.mean(same, axis=1, where=known)
  return jnp.where(known.any(1), mean, 1.0)


def _of_entries(tree, draft, sampled):
  """Returns `[B, N + 1]` the probability that a draft is accepted there."""
  probs, counted = trees.at_parents(tree.topology, sampled), tree.valid
  if draft is None:
    each = jnp.take_along_axis(probs, tree.tokens[..., None], axis=2)[..., 0]
  else:
    each = jnp.minimum(probs, draft).sum(-1)
    # Of a member of an ensemble that predicts nothing, as for chosen tokens.
    found = jnp.take_along_axis(probs, tree.tokens[..., None], axis=2)[..., 0]
    each = jnp.where(draft.sum(-1) == 0, found, each)
    counted = _is_first(tree)
  total = _sum_children(tree, jnp.where(counted, each, 0.0))
  return jnp.minimum(total, 1)  # Sums may round past 1.


def _is_first(tree):
  """`[B, N]` which valid nodes are the first children of their parents."""
  children = jnp.asarray(tree.topology.children, bool)
  children = children if children.ndim == 3 else children[None]
  exists = children & tree.valid[:, None]
  return (exists & (jnp.cumsum(exists, axis=-1) == 1)).any(axis=1)


def _sum_children(tree, values):
  """Sums `[B, N]` values of nodes over the children of each entry."""
  children = jnp.asarray(tree.topology.children, jnp.float32)
  values = values.astype(jnp.float32)[..., None]
  return jnp.matmul(children, values, precision='highest')[..., 0]


def of_slots(
  played: Acceptance,
  others: Sequence[base.Probs],
  played_mask: jax.Array,
  num_emitted: jax.Array,
) -> tuple[base.Probs, jax.Array]:
  """Merges what was played with what the other drafters have read.

  Args:
    played: of the arms that were played.
    others: `[B, P]` of each slot, where it was not played.
    played_mask: `[slots, B]` where each slot was.
    num_emitted: `[B]` positions that were committed.

  Returns:
    `[B, slots, P]` the probability at each position, and whether it is known.
  """
  mask = played_mask.T[..., None]
  index = jnp.arange(played.known.shape[1])[None, None]
  there = index < num_emitted[:, None, None]
  merge = lambda own, *each: jnp.where(
    mask, own[:, None], jnp.stack(each, axis=1)
  )
  return (
    jax.tree.map(merge, played.at, *others),
    there & (~mask | played.known[:, None]),
  )


class History(NamedTuple):
  """How often drafts were accepted of late, for each slot (what arms share).

  Sums over committed positions, each weighed by `_DECAY` to the power of its
  age.
  """

  accepted: jax.Array  # [B, slots] float32, probabilities of acceptance
  total: jax.Array  # [B, slots] float32, of the weights


def no_history(batch: int, num_slots: int) -> History:
  """Returns the history before the first token."""
  zeros = jnp.zeros((batch, num_slots), jnp.float32)
  return History(zeros, zeros)


def remember(
  history: History, acceptance: base.Probs, known: jax.Array
) -> History:
  """Adds what a round has shown.

  Args:
    history: until now.
    acceptance: `[B, slots, P]` probabilities at the round's positions.
    known: `[B, slots, P]` where they are known.
  """
  count = known.sum(-1, dtype=jnp.float32)
  decay = _DECAY**count
  accepted = jnp.where(known, acceptance.processed, 0.0).sum(-1)
  return History(
    accepted=decay * history.accepted + accepted,
    total=decay * history.total + count,
  )


def rewards(
  reward: base.Reward,
  info: base.RoundInfo,
  acceptance: base.Probs,
  known: jax.Array,
  history: History,
  arms: Sequence[base.Arm],
  slots: Sequence[int],
) -> jax.Array:
  """Returns `[B, A]` the reward that every arm would have had.

  An arm emits one token more for every position up to its depth that it would
  have reached: the product of the probabilities before. Where the round's text
  ends before the arm's tree does, the probability is that of late, by the rule
  of succession: the few positions of one round would often give 0 or 1, and a
  power of that is no expectation. Several sampled branches count as one.

  Args:
    reward: what a round is worth.
    info: of the arm that was played; the others are put in its place.
    acceptance: `[B, slots, P]` probabilities at the round's positions.
    known: `[B, slots, P]` where they are known.
    history: the round's included.
    arms: all of them.
    slots: `[A]` of each arm.
  """
  late = (history.accepted + 1) / (history.total + 2)
  chance = jnp.where(known, acceptance.processed, late[..., None])
  count = jnp.maximum(known.sum(-1, dtype=jnp.float32), 1)
  mean = jax.tree.map(
    lambda each: jnp.where(known, each, 0.0).sum(-1) / count, acceptance
  )

  every = [
    reward(
      _of_arm(
        info,
        i,
        chance[:, slot, : arm.drafter.topology.depth],
        jax.tree.map(lambda each, slot=slot: each[:, slot], mean),
      )
    )
    for i, (arm, slot) in enumerate(zip(arms, slots))
  ]
  return jnp.stack(every, axis=1)


def _of_arm(info, arm, chance, mean):
  """The round as that of another arm, whose drafts pass with `chance`."""
  return info._replace(
    arm=jnp.full_like(info.arm, arm),
    num_emitted=1 + jnp.cumprod(chance, axis=1).sum(1),
    tree_depth=jnp.full_like(info.tree_depth, chance.shape[1]),
    acceptance=mean.processed,
    raw_acceptance=mean.raw,
    num_catch_up_tokens=jnp.zeros_like(info.num_catch_up_tokens),
  )
