"""One round: an arm drafts, the target scores, a verifier picks, all commit."""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import goals
from specjax import rewards as rewards_lib
from specjax import sampling as sampling_lib
from specjax.decoding import evidence
from specjax.decoding import play as play_lib
from specjax.decoding import state as state_lib

Round = Callable[
  [state_lib.Params, state_lib.DecodeState],
  tuple[state_lib.DecodeState, state_lib.RoundInfo],
]

# When a drafter that is not played reads what others committed.
_CATCH_UPS = ('lazy', 'always')


def make_round(
  target: base.LanguageModel,
  arms: Sequence[base.Arm],
  bandit: base.Bandit,
  reward: base.Reward | None = rewards_lib.emitted(),
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  per_row: bool = False,
  catch_up: str = 'lazy',
  memories: Sequence[int] | None = None,
) -> Round:
  """Builds the step that every driver repeats.

  Only what was chosen runs. One choice for the batch is a switch over arms; a
  choice for each row drafts with the arms that some row chose, and the target
  scores the rows' different trees in one call. Arms read the caches and return
  what is to be written to them; the writes happen once, behind.

  Args:
    target: the model to sample from.
    arms: the ways to play a round, at least one.
    bandit: the rule that picks among them, of as many arms.
    reward: what a round was worth; the bandit of a batch gets its mean over
      live rows. None leaves learning to the driver (see `drivers.stream`).
    sampling: how the target's tokens are drawn.
    per_row: every row has a bandit of its own, instead of one for the batch.
    catch_up: when a drafter reads what others committed: 'lazy', when it is
      played again, or 'always', after every round, which tells what each arm
      would have earned: `update` gets the `rewards` of all arms.
    memories: which of `state.drafters` is each arm's; its own, by default.

  Returns:
    `round_fn(params, state) -> (state, info)`, pure and jittable; the same one
    for equal arguments, so that they share compiled programs. How the bandit
    begins is not the round's business: `fixed` of another arm is the same.

  Raises:
    ValueError: the arms do not fit to each other, to the target or the bandit.
  """
  return _make_round(
    target,
    tuple(arms),
    bandit._replace(init=None),
    reward,
    sampling,
    per_row,
    catch_up,
    memories,
  )


@base.component
def _make_round(
  target, arms, bandit, reward, sampling, per_row, catch_up, memories
):
  arms = tuple(arm._replace(goal=goals.resolve(arm.goal)) for arm in arms)
  _check(target, arms, bandit, catch_up)
  memories = state_lib.resolve_memories(arms, memories)
  owners = state_lib.owners(arms, memories)
  slots = np.arange(len(owners))[:, None]
  depths = np.array([arm.drafter.topology.depth for arm in arms], np.int32)
  calls = np.array([arm.drafter.num_calls for arm in arms], np.int32)
  # Levels that a drafter has read, where another one commits them.
  shared = np.array([memories.count(memory) > 1 for memory in memories])
  levels_read = np.where(shared, calls - 1, depths)
  always = catch_up == 'always'
  make_play = play_lib.make_row_play if per_row else play_lib.make_batch_play
  play = make_play(target, arms, memories, sampling, always)

  def round_fn(params, state):
    if len(state.drafters) != len(owners):
      raise ValueError(
        f'The state must hold {len(owners)} memories of drafters, as the '
        f'round does, got {len(state.drafters)}.'
      )
    before = base.Context(tokens=state.tokens, lengths=state.lengths)
    arm, lost = _select(bandit, per_row, state)
    state = state.replace(done=state.done | lost)
    live = ~state.done
    # Who plays each memory.
    mine = live & (jnp.asarray(memories)[arm] == slots)
    caught_up = late = jnp.zeros_like(state.lengths)
    # A state that all arms share is never behind, unless its owner lags.
    if (len(owners) > 1 or arms[owners[0]].drafter.lags) and not always:
      state, caught_up, _ = read(arms, owners, params, state, mine)
    played, block, nonfinite, proposals = play(arm, params, state)
    num_emitted, tokens, done = _emit(state, played.outcome)
    feedback = base.Feedback(
      arm=arm,
      emitted=num_emitted.astype(jnp.float32),
      overlap=played.evidence.overlap.sampled,
      agreement=played.evidence.overlap.untempered,
      fidelity=played.evidence.fidelity,
      depth=jnp.asarray(depths)[arm],
      max_depth=int(depths.max()),
      caught_up=caught_up,
    )
    path = jnp.pad(played.outcome.path + 1, ((0, 0), (1, 0)))
    state = state.replace(
      tokens=tokens,
      lengths=state.lengths + num_emitted,
      done=done,
      target=target.keep(state.target, block, path, num_emitted),
      drafters=_commit(
        [arms[i] for i in owners],
        jnp.asarray(levels_read)[arm],
        state,
        before,
        proposals,
        played.outcome,
        mine,
      ),
      num_rounds=state.num_rounds + 1,
    )
    rewards = None
    if always:
      committed = base.Committed(before.lengths, played.evidence.laws)
      state, late, overlaps = read(
        arms, owners, params, state, live & ~mine, committed
      )
      seen = evidence.of_memories(played.evidence, overlaps, mine, num_emitted)
      history = evidence.remember(state.history, *seen)
      state = state.replace(history=history)
      if reward is not None:
        rewards = evidence.rewards(
          reward, feedback, *seen, history, depths, memories
        )
        rewards = jnp.where(live[:, None], rewards, 0.0)
    earned = 0.0 if reward is None else reward(feedback)
    earned = jnp.where(live, earned, 0.0)
    info = state_lib.RoundInfo(
      arm=arm,
      live=live,
      tokens=played.outcome.tokens,
      num_emitted=num_emitted,
      num_accepted=jnp.minimum(played.outcome.num_accepted, num_emitted),
      depth=played.depth,
      overlap=jnp.where(live, feedback.overlap, 0.0),
      agreement=jnp.where(live, feedback.agreement, 0.0),
      fidelity=jnp.where(live, feedback.fidelity, 0.0),
      caught_up=caught_up + late,
      reward=earned,
      rewards=rewards,
      flags=state_lib.Flags(
        target=nonfinite & live,
        draft=live & jnp.isnan(feedback.overlap + feedback.fidelity),
        arm=lost,
        reward=~_are_rewards(earned, rewards),
      ),
    )
    if reward is not None:
      state = state.replace(bandit=learn(bandit, per_row, state.bandit, info))
    return state.replace(
      counters=_count(state.counters, info, jnp.asarray(calls)[arm]),
      flags=jax.tree.map(jnp.logical_or, state.flags, info.flags),
    ), info

  return round_fn


def _check(target, arms, bandit, catch_up):
  if not arms:
    raise ValueError('arms must hold at least one arm, got none.')
  if bandit.num_arms != len(arms):
    raise ValueError(
      f'bandit must pick among the {len(arms)} arms of the round, got one of '
      f'num_arms={bandit.num_arms}.'
    )
  if catch_up not in _CATCH_UPS:
    raise ValueError(f'catch_up must be one of {_CATCH_UPS}, got {catch_up!r}.')
  for i, arm in enumerate(arms):
    if arm.drafter.lags and catch_up == 'always':
      raise ValueError(
        "catch_up 'always' needs drafters that never lag when they are played, "
        f'got one that does (arm {i}).'
      )
    goals.check(arm.goal, target.vocab_size)
    if arm.goal is not None and catch_up == 'always':
      raise ValueError(
        "catch_up 'always' needs arms whose goal is the target, since a text "
        'of another law does not show what the other arms would have earned, '
        f'got another goal (arm {i}).'
      )
    if arm.drafter.vocab_size not in (None, target.vocab_size):
      raise ValueError(
        'Draft and target must share a vocabulary, got vocab_size '
        f'{arm.drafter.vocab_size} and {target.vocab_size} (arm {i}).'
      )


def learn(bandit: base.Bandit, per_row: bool, state: Any, info: Any) -> Any:
  """Returns the bandit's state after a round, in rows that were live.

  Args:
    bandit: the rule.
    per_row: whether `state` has a first axis of rows.
    state: of the bandit, or of all rows' bandits.
    info: of the round, at least `live`, `arm`, `reward` and `rewards`; a bandit
      of the batch gets means over live rows.
  """
  extra = {} if info.rewards is None else {'rewards': info.rewards}
  arm = info.arm if per_row else info.arm[0]

  def update(state, arm, earned):
    return bandit.update(state, arm, **earned)

  return _learn(
    update, per_row, state, info.live, arm, {'reward': info.reward} | extra
  )


def learn_all(
  bandit: base.Bandit,
  per_row: bool,
  state: Any,
  live: jax.Array,
  rewards: jax.Array,
) -> Any:
  """Returns the bandit's state once all arms' rewards are known, unplayed.

  Args:
    bandit: the rule.
    per_row: whether `state` has a first axis of rows.
    state: of the bandit, or of all rows' bandits.
    live: `[B]` the rows that show something.
    rewards: `[B, A]` what every arm would have earned.
  """
  update = lambda state, _, rewards: bandit.update_all(state, rewards)
  arm = jnp.zeros_like(live, jnp.int32) if per_row else jnp.int32(0)
  return _learn(update, per_row, state, live, arm, rewards)


def _learn(update, per_row, state, live, arm, earned):
  """Updates rows that are live, or one state by the means over such rows."""
  if per_row:
    new = jax.vmap(update)(state, arm, earned)
    return play_lib.where(live, new, state)
  weight = live / jnp.maximum(live.sum(), 1)
  mean = lambda value: jnp.tensordot(weight, value, axes=1)
  new = update(state, arm, jax.tree.map(mean, earned))
  return jax.tree.map(
    lambda new, old: jnp.where(live.any(), new, old), new, state
  )


def _select(bandit, per_row, state):
  """Returns `[B]` the arm of each row, and where it is not there (then 0)."""
  if per_row:
    keys = jax.vmap(jax.random.fold_in, (0, None))(
      state.bandit_key, state.num_rounds
    )
    arm = jax.vmap(bandit.select)(keys, state.bandit)
  else:
    key = jax.random.fold_in(state.bandit_key, state.num_rounds)
    arm = jnp.broadcast_to(bandit.select(key, state.bandit), state.done.shape)
  there = (0 <= arm) & (arm < bandit.num_arms)
  return jnp.where(there, arm, 0), ~there & ~state.done


def read(arms, owners, params, state, wanted, committed=None):
  """Lets drafters read what others have committed.

  Args:
    arms: all of them.
    owners: of each memory, the arm that speaks for it.
    params: of all models.
    state: of the decode.
    wanted: `[memories, B]` which rows are to be read, if it is behind there.
    committed: what the target said, if overlaps with it are asked for.

  Returns:
    The state, `[B]` how many tokens were read, and for each memory `[B, P]` the
    overlap, or None.
  """
  context = base.Context(tokens=state.tokens, lengths=state.lengths)
  caught = [
    arms[i].drafter.catch_up(params.drafters[i], own, context, rows, committed)
    for i, own, rows in zip(owners, state.drafters, wanted, strict=True)
  ]
  state = state.replace(drafters=tuple(each.state for each in caught))
  num_read = sum(each.num_tokens for each in caught)
  return state, num_read, [each.overlap for each in caught]


def _commit(owners, read, state, context, proposals, outcome, mine):
  """Returns every drafter's state after the round, with one write for each.

  `read` `[B]` is how many levels of its tree the played drafter can have kept.
  """
  outcome = outcome._replace(
    num_accepted=jnp.minimum(outcome.num_accepted, read)
  )
  return tuple(
    owner.drafter.commit(own, proposal, context, outcome, keep)
    for owner, own, proposal, keep in zip(
      owners, state.drafters, proposals, mine, strict=True
    )
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
    caught_up=counters.caught_up + info.caught_up,
    emitted=counters.emitted + info.num_emitted,
    accepted=counters.accepted + (index < info.num_accepted[:, None]),
    drafted=counters.drafted + live[:, None] * (index < info.depth[:, None]),
    pulls=counters.pulls + live[:, None] * (arms == info.arm[:, None]),
  )


def _are_rewards(earned, rewards):
  """`[B]` whether all rewards of the round lie in [0, 1]; NaN does not."""
  valid = (0 <= earned) & (earned <= 1)
  if rewards is None:
    return valid
  return valid & ((0 <= rewards) & (rewards <= 1)).all(1)
