"""What a round shows: how likely drafts are accepted, and what a bandit learns.

The target computes a distribution at each token that a round commits. A drafter
that reads these tokens shows how likely its drafts would have been accepted
there, without another call of the target. With lossless verifiers, the tokens
have the target's distribution whichever arm was selected. This is *full
feedback* (the full-information setting); with *bandit feedback*, a round shows
the reward of the selected arm only.
"""

from collections.abc import Sequence
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import trees
from specjax.decoding import arms as arms_lib
from specjax.decoding import state as state_lib

# Weight of a position relative to the next one: a history covers about the
# last 30 positions.
_DECAY = 1 - 1 / 32


# Acceptance of the selected arm.


class Acceptance(NamedTuple):
  """Probabilities that drafts of the selected arm's tree are accepted."""

  mean: base.Probs  # [B] over drafted positions
  by_position: base.Probs  # [B, P] at each committed position
  known: jax.Array  # [B, P] bool, positions with a draft


def tree_acceptance(
  tree: base.DraftTree, sampled: base.Probs, outcome: base.Outcome
) -> Acceptance:
  """Compares a tree's probabilities with those that the verifier samples.

  If the drafter's distribution is known, several children count as one: the
  probability that a draft is accepted is that of the first child, `1 - TV`. If
  tokens were chosen, so that it is not known, it is the mass of all children.

  Args:
    tree: batched.
    sampled: `[B, N + 1, V]` of the target; `processed` may be a goal's.
    outcome: batched.
  """
  of_entries = functools.partial(_entry_acceptance, tree)
  raw = tree.probs if tree.raw_probs is None else tree.raw_probs
  by_entry = base.Probs(*map(of_entries, (tree.probs, raw), sampled))
  drafted = _sum_children(tree, tree.valid) > 0
  count = jnp.maximum(drafted.sum(1, dtype=jnp.float32), 1)
  entries = outcome.entries
  along_path = lambda values: trees.at_entries(values, entries)
  position = np.arange(entries.shape[1])[None]
  return Acceptance(
    mean=jax.tree.map(lambda probs: probs.sum(1) / count, by_entry),
    by_position=jax.tree.map(along_path, by_entry),
    known=along_path(drafted) & (position <= outcome.num_accepted[:, None]),
  )


def _entry_acceptance(
  tree: base.DraftTree, draft: jax.Array | None, sampled: jax.Array
) -> jax.Array:
  """Returns `[B, N + 1]` the probability that a child is accepted."""
  probs, counted = trees.at_parents(tree.topology, sampled), tree.valid
  token_probs = jnp.take_along_axis(probs, tree.tokens[..., None], axis=2)
  token_probs = token_probs[..., 0]
  if draft is None:
    by_node = token_probs
  else:
    by_node = jnp.minimum(probs, draft).sum(-1)
    # A member of an ensemble that predicts no distribution chose its token.
    by_node = jnp.where(draft.sum(-1) == 0, token_probs, by_node)
    counted = _is_first_child(tree)
  total = _sum_children(tree, jnp.where(counted, by_node, 0.0))
  return jnp.minimum(total, 1)  # Sums may round past 1.


def _is_first_child(tree: base.DraftTree) -> jax.Array:
  """Returns `[B, N]` which nodes are the first valid children of a parent."""
  children = jnp.asarray(tree.topology.children, bool)
  children = children if children.ndim == 3 else children[None]
  exists = children & tree.valid[:, None]
  return (exists & (jnp.cumsum(exists, axis=-1) == 1)).any(axis=1)


def _sum_children(tree: base.DraftTree, values: jax.Array) -> jax.Array:
  """Sums `[B, N]` values of nodes over the children of each entry."""
  children = jnp.asarray(tree.topology.children, jnp.float32)
  values = values.astype(jnp.float32)[..., None]
  return jnp.matmul(children, values, precision='highest')[..., 0]


def goal_fidelity(
  goal: jax.Array, target: jax.Array, known: jax.Array
) -> jax.Array:
  """Returns `[B]` the mean of `1 - TV` between goal and target.

  Args:
    goal: `[B, N + 1, V]`.
    target: `[B, N + 1, V]` processed probabilities.
    known: `[B, N + 1]` bool, entries whose goal may differ from the target;
      rows without any have fidelity 1.
  """
  overlap = jnp.minimum(goal, target).sum(-1)
  mean = jnp.mean(overlap, axis=1, where=known)
  return jnp.where(known.any(1), mean, 1.0)


# Full feedback: acceptance and rewards of all arms.


def slot_acceptance(
  selected: Acceptance,
  idle: Sequence[base.Probs],
  is_selected: jax.Array,
  num_emitted: jax.Array,
) -> tuple[base.Probs, jax.Array]:
  """Merges the acceptance of selected arms with that of idle drafters.

  Args:
    selected: acceptance of the arms that were selected.
    idle: `[B, P]` of each slot, in the rows where it was not selected.
    is_selected: `[slots, B]` where each slot was selected.
    num_emitted: `[B]` number of committed positions.

  Returns:
    `[B, slots, P]` the probability at each position, and where it is known.
  """
  mask = is_selected.T[..., None]
  position = jnp.arange(selected.known.shape[1])[None, None]
  committed = position < num_emitted[:, None, None]
  merge = lambda selected, *idle: jnp.where(
    mask, selected[:, None], jnp.stack(idle, axis=1)
  )
  return (
    jax.tree.map(merge, selected.by_position, *idle),
    committed & (~mask | selected.known[:, None]),
  )


def update_history(
  history: state_lib.History, acceptance: base.Probs, known: jax.Array
) -> state_lib.History:
  """Adds the positions of a round to a history.

  Args:
    history: of earlier rounds.
    acceptance: `[B, slots, P]` probabilities at the round's positions.
    known: `[B, slots, P]` where they are known.
  """
  count = known.sum(-1, dtype=jnp.float32)
  decay = _DECAY**count
  accepted = jnp.where(known, acceptance.processed, 0.0).sum(-1)
  return state_lib.History(
    accepted=decay * history.accepted + accepted,
    total=decay * history.total + count,
  )


def arm_rewards(
  reward: base.Reward,
  info: base.RoundInfo,
  acceptance: base.Probs,
  known: jax.Array,
  history: state_lib.History,
  drafters: Sequence[base.Drafter],
  slot_of_arm: Sequence[int],
  num_starts: int = 1,
) -> jax.Array:
  """Returns `[B, A]` the reward that every arm would have received.

  An arm emits one more token for every position up to its depth that it would
  have reached, which has the product of the probabilities before it. Where the
  round's text ends before the arm's tree does, the probability is that of the
  history, by the rule of succession: the few positions of one round would often
  give 0 or 1, whose powers estimate nothing. Several sampled branches count as
  one.

  A longer text shows several rounds, which begin at its first `num_starts`
  positions; the number of tokens is their mean. The first one is completed from
  the history as above; the others count only if the text holds all of their
  levels.

  Args:
    reward: the reward of a round.
    info: the round of the selected arm, which the others replace.
    acceptance: `[B, slots, P]` probabilities at the round's positions.
    known: `[B, slots, P]` where they are known.
    history: includes this round.
    drafters: the drafter of each arm.
    slot_of_arm: `[A]` index of each arm's slot.
    num_starts: number of positions at which a round may begin.
  """
  recent = (history.accepted + 1) / (history.total + 2)
  by_position = jnp.where(known, acceptance.processed, recent[..., None])
  count = jnp.maximum(known.sum(-1, dtype=jnp.float32), 1)

  def mean_emitted(slot: int, depth: int) -> jax.Array:
    """Returns `[B]` the mean number of tokens of the rounds."""
    at = np.arange(num_starts)[:, None] + np.arange(depth)[None]
    inside, at = at < known.shape[-1], np.minimum(at, known.shape[-1] - 1)
    levels = jnp.where(
      inside[None], by_position[:, slot, at], recent[:, slot, None, None]
    )
    emitted = 1 + jnp.cumprod(levels, axis=-1).sum(-1)
    counts = (inside[None] & known[:, slot, at]).all(-1)
    counts |= np.arange(num_starts)[None] == 0
    return jnp.mean(emitted, axis=-1, where=counts)

  mean = jax.tree.map(
    lambda probs: jnp.where(known, probs, 0.0).sum(-1) / count, acceptance
  )
  rewards = [
    reward(
      _info_of_arm(
        info,
        i,
        drafter.topology.depth,
        mean_emitted(slot, drafter.topology.depth),
        jax.tree.map(lambda probs, slot=slot: probs[:, slot], mean),
      )
    )
    for i, (drafter, slot) in enumerate(zip(drafters, slot_of_arm))
  ]
  return jnp.stack(rewards, axis=1)


def _info_of_arm(
  info: base.RoundInfo,
  arm: int,
  depth: int,
  num_emitted: jax.Array,
  mean: base.Probs,
) -> base.RoundInfo:
  """Returns the round as that of another arm.

  Args:
    info: the round of the selected arm.
    arm: index of the other.
    depth: of its tree.
    num_emitted: `[B]` float32, expected number of tokens.
    mean: `[B]` probabilities of acceptance, over the positions of the round.
  """
  return info._replace(
    arm=jnp.full_like(info.arm, arm),
    num_emitted=num_emitted,
    tree_depth=jnp.full_like(info.tree_depth, depth),
    acceptance=mean.processed,
    raw_acceptance=mean.raw,
    num_catch_up_tokens=jnp.zeros_like(info.num_catch_up_tokens),
  )


def are_valid_rewards(
  reward: jax.Array, rewards: jax.Array | None
) -> jax.Array:
  """Returns `[B]` whether all rewards of a round lie in [0, 1]; NaN does not.

  Args:
    reward: `[B]` of the selected arm.
    rewards: `[B, A]` of all arms, or None.
  """
  valid = (0 <= reward) & (reward <= 1)
  if rewards is None:
    return valid
  return valid & ((0 <= rewards) & (rewards <= 1)).all(1)


# What the bandit learns.


def update_bandit(
  bandit: base.Bandit,
  per_row: bool,
  state: base.BanditState,
  info: base.RoundInfo,
) -> base.BanditState:
  """Returns the bandit's state after a round.

  Args:
    bandit: the rule.
    per_row: whether `state` has a leading axis of rows.
    state: of the batch's bandit, or of all rows' bandits.
    info: of the round. A bandit of the batch receives means of rewards over
      live rows, and sums of their levels; rows that are not live change no
      bandit.
  """

  def update(
    state: base.BanditState,
    arm: jax.Array,
    reward: jax.Array,
    rewards: jax.Array | None,
    levels: base.Levels,
  ) -> base.BanditState:
    extra = {} if rewards is None else {'rewards': rewards}
    return bandit.update(state, arm, reward, levels=levels, **extra)

  assert info.reward is not None  # `observe` has computed it.
  levels = _levels(info)
  if per_row:
    new = jax.vmap(update)(state, info.arm, info.reward, info.rewards, levels)
    return arms_lib.where(info.live, new, state)
  reward, rewards = _mean_of_live(info.live, (info.reward, info.rewards))
  levels = jax.tree.map(lambda rows: rows.sum(axis=0), levels)
  new = update(state, info.arm[0], reward, rewards, levels)
  return _if_any_live(info.live, new, state)


def update_bandit_with_all_rewards(
  bandit: base.Bandit,
  per_row: bool,
  state: base.BanditState,
  live: jax.Array,
  rewards: jax.Array,
) -> base.BanditState:
  """Returns the bandit's state given all arms' rewards, none being selected.

  Args:
    bandit: the rule.
    per_row: whether `state` has a leading axis of rows.
    state: of the batch's bandit, or of all rows' bandits.
    live: `[B]` rows that have rewards.
    rewards: `[B, A]` of all arms.
  """
  if per_row:
    new = jax.vmap(bandit.update_all)(state, rewards)
    return arms_lib.where(live, new, state)
  new = bandit.update_all(state, _mean_of_live(live, rewards))
  return _if_any_live(live, new, state)


def _levels(info: base.RoundInfo) -> base.Levels:
  """Returns `[B, D]` which levels each row has reached and passed.

  A level that ends its row adds no token after it, and a level that was not
  drafted adds none: both count as not accepted.
  """
  level = np.arange(info.tokens.shape[1] - 1)[None]
  deepest = jnp.minimum(info.tree_depth, info.num_emitted)
  live = info.live[:, None]
  reached, passed = (
    (live & (level < num[:, None])).astype(jnp.float32)
    for num in (deepest, info.num_emitted - 1)
  )
  return base.Levels(reached, passed)


def _mean_of_live(live: jax.Array, values: Any) -> Any:
  """Returns the means of `[B, ...]` arrays over live rows; 0 if none is."""
  count = jnp.maximum(live.sum(dtype=jnp.float32), 1)
  weight = live.astype(jnp.float32) / count

  def mean(rows: jax.Array) -> jax.Array:
    return (weight.reshape(-1, *[1] * (rows.ndim - 1)) * rows).sum(axis=0)

  return jax.tree.map(mean, values)


def _if_any_live(
  live: jax.Array, new: base.BanditState, old: base.BanditState
) -> base.BanditState:
  """Returns the new state of a batch's bandit; the old one if all are done."""
  return jax.tree.map(
    lambda new, old: jnp.where(live.any(), new, old), new, old
  )
