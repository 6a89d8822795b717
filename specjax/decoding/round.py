"""One round: an arm drafts, the target scores, a verifier picks, all commit."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import rewards
from specjax import sampling as sampling_lib
from specjax.decoding import state as state_lib

Round = Callable[
  [state_lib.Params, state_lib.DecodeState],
  tuple[state_lib.DecodeState, state_lib.RoundInfo],
]


class Scored(NamedTuple):
  """A draft that the target has scored; the first three are a verifier's."""

  keys: jax.Array  # [B] one key a row
  tree: base.DraftTree
  target_probs: jax.Array  # [B, N + 1, V]
  proposal: Any  # for the drafter's `commit`
  block: Any  # of the target, for `keep`
  nonfinite: jax.Array  # [B] bool


class _Play(NamedTuple):
  """What an arm's round computed; every arm returns the same shapes."""

  outcome: base.Outcome  # batched, padded to the deepest tree
  block: Any  # of the target, padded to the largest tree
  nonfinite: jax.Array  # [B] bool
  proposals: tuple[Any, ...]  # of each drafter; zeros where it did not play


def make_round(
  target: base.LanguageModel,
  arms: Sequence[base.Arm],
  bandit: base.Bandit,
  reward: base.Reward = rewards.emitted,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
) -> Round:
  """Builds the step that every driver repeats.

  The bandit picks one arm for the whole batch. Only that arm runs: a switch
  over arms reads the caches and returns what is to be written to them, and the
  writes happen once, behind it.

  Args:
    target: the model to sample from.
    arms: the ways to play a round, at least one.
    bandit: the rule that picks among them.
    reward: `info -> [B]`; the bandit gets its mean over live rows.
    sampling: how the target's tokens are drawn.

  Returns:
    `round_fn(params, state) -> (state, info)`, pure and jittable.
  """
  arms = tuple(arms)
  if not arms:
    raise ValueError('arms must hold at least one arm, got none.')
  depths = np.array([arm.drafter.topology.depth for arm in arms], np.int32)
  calls = np.array([arm.drafter.num_calls for arm in arms], np.int32)
  play = _make_play(target, arms, sampling)

  def round_fn(params, state):
    select_key = jax.random.fold_in(state.bandit_key, state.num_rounds)
    arm = bandit.select(select_key, state.bandit)
    context = base.Context(tokens=state.tokens, lengths=state.lengths)
    if len(arms) > 1:
      state = _catch_up(arms, params, state, context, arm)
    played = play(arm, params, state, context)
    num_emitted, tokens, done = _emit(state, played.outcome)
    info = state_lib.RoundInfo(
      arm=arm,
      live=~state.done,
      tokens=played.outcome.tokens,
      num_emitted=num_emitted,
      num_accepted=jnp.minimum(played.outcome.num_accepted, num_emitted),
      depth=jnp.asarray(depths)[arm],
      reward=jnp.zeros(num_emitted.shape),
      nonfinite=played.nonfinite & ~state.done,
    )
    info = info._replace(reward=jnp.where(info.live, reward(info), 0.0))
    path = jnp.pad(played.outcome.path + 1, ((0, 0), (1, 0)))
    return state.replace(
      tokens=tokens,
      lengths=state.lengths + num_emitted,
      done=done,
      target=target.keep(state.target, played.block, path, num_emitted),
      drafters=_commit(arms, state, context, played, arm),
      bandit=_learn(bandit, state.bandit, info),
      num_rounds=state.num_rounds + 1,
      counters=_count(state.counters, info, jnp.asarray(calls)[arm]),
    ), info

  return round_fn


def draft_and_score(
  target: base.LanguageModel,
  drafter: base.Drafter,
  sampling: sampling_lib.Sampling,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  context: base.Context,
  arm: int = 0,
) -> Scored:
  """Plays a round up to its verification.

  Args:
    target: the model to sample from.
    drafter: of the arm.
    sampling: how the target's tokens are drawn.
    params: of all models.
    state: of the decode; only read.
    context: what the drafter sees of it.
    arm: whose parameters and state are the drafter's.
  """
  topology = drafter.topology
  keys = jax.vmap(jax.random.fold_in)(state.keys, state.lengths)
  draft_keys, verify_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  tree, proposal = drafter.draft(
    draft_keys, params.drafters[arm], state.drafters[arm], context
  )
  last = state.lengths[:, None] - 1
  root = jnp.take_along_axis(state.tokens, last, axis=1)
  extension = target.extend(
    params.target,
    state.target,
    jnp.concatenate([root, tree.tokens], axis=1),
    positions=last + topology.offsets,
    mask=topology.mask,
  )
  return Scored(
    keys=verify_keys,
    tree=tree,
    target_probs=sampling_lib.probabilities(extension.logits, sampling),
    proposal=proposal,
    block=extension.block,
    nonfinite=~(extension.logits < jnp.inf).all(axis=(1, 2)),
  )


def _make_play(target, arms, sampling):
  """Returns `(arm, params, state, context) -> _Play`: one arm's round."""

  def run(i, params, state, context):
    """Drafts, scores and verifies with arm `i`."""
    scored = draft_and_score(
      target, arms[i].drafter, sampling, params, state, context, i
    )
    outcome = jax.vmap(arms[i].verifier)(
      scored.keys, scored.tree, scored.target_probs
    )
    return (outcome, scored.block, scored.nonfinite), scored.proposal

  def play(arm, *args):
    if len(arms) == 1:
      scored, proposal = run(0, *args)
      return _Play(*scored, (proposal,))
    shapes = [
      jax.eval_shape(functools.partial(run, i), *args) for i in range(len(arms))
    ]
    # A switch needs one type: the largest tree's, and every drafter's proposal.
    widest = jax.tree.map(
      lambda *leaves: np.max([leaf.shape for leaf in leaves], axis=0),
      *[scored for scored, _ in shapes],
    )
    empty = [
      jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), proposal)
      for _, proposal in shapes
    ]

    def branch(i, *args):
      scored, proposal = run(i, *args)
      scored = jax.tree.map(_pad_to, scored, widest)
      return _Play(*scored, (*empty[:i], proposal, *empty[i + 1 :]))

    branches = [functools.partial(branch, i) for i in range(len(arms))]
    return jax.lax.switch(arm, branches, *args)

  return play


def _pad_to(leaf, shape):
  return jnp.pad(leaf, [(0, new - old) for old, new in zip(leaf.shape, shape)])


def _catch_up(arms, params, state, context, arm):
  """Lets the drafter of the chosen arm read what others committed."""
  return state.replace(
    drafters=tuple(
      each.drafter.catch_up(own_params, own_state, context, arm == i)
      for i, (each, own_params, own_state) in enumerate(
        zip(arms, params.drafters, state.drafters, strict=True)
      )
    )
  )


def _commit(arms, state, context, played, arm):
  """Returns every drafter's state after the round."""
  return tuple(
    each.drafter.commit(
      own_state, proposal, context, played.outcome, ~state.done & (arm == i)
    )
    for i, (each, own_state, proposal) in enumerate(
      zip(arms, state.drafters, played.proposals, strict=True)
    )
  )


def _learn(bandit, state, info):
  """Returns the bandit's state after the round, if any row was live."""
  mean_reward = info.reward.sum() / jnp.maximum(info.live.sum(), 1)
  return jax.tree.map(
    lambda new, old: jnp.where(info.live.any(), new, old),
    bandit.update(state, info.arm, mean_reward),
    state,
  )


def _emit(state, outcome):
  """Cuts the outcome at stop tokens and limits, and writes what is left.

  Returns:
    `[B]` emitted tokens, the token buffer, and which rows are done now.
  """
  tokens = outcome.tokens
  index = jnp.arange(tokens.shape[1])
  num = outcome.num_accepted + 1
  stops = (tokens[..., None] == state.stop_tokens).any(-1)
  stops &= index < num[:, None]
  stopped = stops.any(-1)
  num = jnp.where(stopped, jnp.argmax(stops, axis=-1) + 1, num)
  room = state.limits - state.lengths
  done = state.done | stopped | (num >= room)
  num = jnp.where(state.done, 0, jnp.minimum(num, room))
  write = jax.vmap(jax.lax.dynamic_update_slice_in_dim, in_axes=(0, 0, 0, None))
  return num, write(state.tokens, tokens, state.lengths, 0), done


def _count(counters, info, draft_calls):
  live = info.live.astype(jnp.int32)
  index = jnp.arange(counters.accepted.shape[1])
  arms = jnp.arange(counters.pulls.shape[1])
  return state_lib.Counters(
    rounds=counters.rounds + live,
    draft_calls=counters.draft_calls + live * draft_calls,
    emitted=counters.emitted + info.num_emitted,
    accepted=counters.accepted + (index < info.num_accepted[:, None]),
    drafted=counters.drafted + live[:, None] * (index < info.depth),
    pulls=counters.pulls + live[:, None] * (arms == info.arm),
    nonfinite=counters.nonfinite | info.nonfinite,
  )
