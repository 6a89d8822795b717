"""One round of speculative decoding: its eight steps, in their order.

select -> catch_up -> draft -> score -> verify -> commit -> observe -> learn
"""

from collections.abc import Mapping
from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import buckets
from specjax import components
from specjax import ordering
from specjax import padding
from specjax import rewards as rewards_lib
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.decoding import arm_checks
from specjax.decoding import arms as arms_lib
from specjax.decoding import feedback as feedback_lib
from specjax.decoding import state as state_lib
from specjax.decoding import verification as verification_lib
from specjax.goals import apply as goal_lib


@components.component
class Round:
  """The step that every driver repeats, from `make_round`.

  Rounds whose parts differ only in their numbers share compiled programs.

  Attributes:
    target: the model to sample from.
    drafters: the drafter of each arm.
    rules: the different rules of verification, each of which several arms may
      have.
    bandit: the rule that selects arms.
    reward: the reward of a round; None if the driver updates the bandit.
    sampling: how the target's tokens are drawn.
    per_row: whether each row has a bandit.
    feedback: 'bandit' or 'full'.
    rule_of_arm: the index of each arm's rule.
    slots: the drafter states, and the arms that share them.
    taps: the hidden states of the target that each arm's drafter reads.
  """

  target: base.LanguageModel
  drafters: tuple[base.Drafter, ...]
  rules: tuple[verification_lib.Rule, ...]
  bandit: base.Bandit
  reward: base.Reward | None
  sampling: sampling_lib.Sampling
  per_row: bool = components.static()
  feedback: str = components.static()
  rule_of_arm: tuple[int, ...] = components.static()
  slots: tuple[state_lib.Slot, ...] = components.static()
  taps: tuple[tuple[int, ...], ...] = components.static()

  def __call__(
    self, params: state_lib.Params, state: state_lib.DecodeState
  ) -> tuple[state_lib.DecodeState, base.RoundInfo]:
    """Plays one round; pure and jittable.

    Raises:
      ValueError: the state was built for a round with other slots.
    """
    _check_slots(self, state)
    state, choice = select(self, state)
    state, num_read = catch_up(self, params, state, choice)

    def draft_score_verify(group: Sequence[int]) -> GroupOutput:
      drafts = draft(self, params, state, choice, group)
      scores = score(self, params, state, choice, drafts)
      verification = verify(self, choice, drafts, scores)
      proposals = _slot_proposals(self, params, state, choice, drafts)
      # Probabilities `[B, N, V]` stay inside of the branch, since all branches
      # return arrays with the shapes of the largest group.
      return GroupOutput(proposals, scores.output, verification)

    groups = arms_lib.groups_by_size(self.drafters, self.per_row)
    output = padding.switch_padded(
      arms_lib.group_index(groups, choice.arm[0], len(self.drafters)),
      [functools.partial(draft_score_verify, group) for group in groups],
    )
    start, state = state.lengths, commit(self, state, choice, output)
    state, info = observe(self, params, state, choice, output, start, num_read)
    return learn(self, state, info), info

  @functools.cached_property
  def arms(self) -> tuple[base.Arm, ...]:
    """Drafter, verifier and goal of each arm."""
    return tuple(
      base.Arm(drafter, *self.rules[i])
      for drafter, i in zip(self.drafters, self.rule_of_arm)
    )

  @property
  def num_likeliest(self) -> int:
    """How many of the target's likeliest tokens its drafters read."""
    return max(drafter.num_likeliest for drafter in self.drafters)

  @property
  def slot_of_arm(self) -> tuple[int, ...]:
    """`[A]` index of each arm's slot."""
    indices = {arm: i for i, slot in enumerate(self.slots) for arm in slot.arms}
    return tuple(indices[arm] for arm in range(len(self.drafters)))


def make_round(
  target: base.LanguageModel,
  arms: Sequence[base.Arm],
  bandit: base.Bandit,
  reward: base.Reward | None = rewards_lib.Emitted(),
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  per_row: bool = False,
  feedback: str = 'bandit',
  slots: Sequence[int] | None = None,
) -> Round:
  """Builds the step that every driver repeats.

  Only what was selected runs: the drafters of arms that some row has selected,
  and one call of the target for all rows, whose trees may differ. Arms read the
  caches and return what is to be written to them; the writes happen once,
  afterwards.

  Args:
    target: the model to sample from.
    arms: at least one.
    bandit: the rule that selects among as many arms.
    reward: the reward of a round; the bandit of a batch receives its mean over
      live rows. None leaves learning to the driver (see `drivers.stream`), and
      needs feedback 'bandit'.
    sampling: how the target's tokens are drawn.
    per_row: each row has a bandit, instead of one for the batch.
    feedback: what the bandit learns from. With 'bandit', it receives the reward
      of the selected arm; a drafter that was idle reads the tokens committed in
      the meantime once it is selected again. With 'full', all drafters read
      the committed tokens after every round, and `update` also receives an
      estimate of the `rewards` of all arms.
    slots: `[A]` index in `state.drafters` of each arm's state; by default, no
      arms share one.

  Returns:
    The round.

  Raises:
    ValueError: the arms do not fit each other, the target or the bandit.
  """
  arms = tuple(
    arm._replace(goal=None) if goal_lib.is_target(arm.goal) else arm
    for arm in arms
  )
  arm_checks.check_drafters(arms)
  arm_checks.check_bandit(arms, bandit, feedback)
  arm_checks.check_reward(arms, reward, feedback)
  taps = state_lib.hidden_state_taps(target, arms)
  arm_checks.check_arms(target, arms, feedback, sampling)
  rules, rule_of_arm = verification_lib.different_rules(arms)
  return Round(
    target=target,
    drafters=tuple(arm.drafter for arm in arms),
    rules=rules,
    bandit=bandit,
    reward=reward,
    sampling=sampling,
    per_row=per_row,
    feedback=feedback,
    rule_of_arm=rule_of_arm,
    slots=state_lib.make_slots(arms, slots, feedback == 'full'),
    taps=taps,
  )


def _check_slots(round_fn: Round, state: state_lib.DecodeState) -> None:
  """Raises `ValueError` unless a state has the slots of a round."""
  if len(state.drafters) != len(round_fn.slots):
    raise ValueError(
      f'The state must hold {len(round_fn.slots)} drafter states, one for '
      f'each slot of the round, got {len(state.drafters)}.'
    )


# Select.


class Choice(NamedTuple):
  """Which arm every row has selected."""

  arm: jax.Array  # [B] int32
  live: jax.Array  # [B] bool
  invalid: jax.Array  # [B] bool, the bandit returned an invalid arm index
  selected: tuple[jax.Array, ...]  # [B] bool of each arm, in live rows
  draft_keys: jax.Array  # [B] one key per row
  verify_keys: jax.Array  # [B]


def select(
  round_fn: Round, state: state_lib.DecodeState
) -> tuple[state_lib.DecodeState, Choice]:
  """Lets the bandit select an arm; ends rows whose arm index is invalid."""
  num_arms = len(round_fn.drafters)
  state = state.replace(bandit=read_text(round_fn, state))
  if round_fn.per_row:
    # Counted by row, since rows may have begun at different times.
    num_rounds = state.counters.pulls.sum(axis=1)
    keys = jax.vmap(jax.random.fold_in)(state.bandit_key, num_rounds)
    arm = jax.vmap(round_fn.bandit.select)(keys, state.bandit)
  else:
    key = jax.random.fold_in(state.bandit_key, state.num_rounds)
    arm = round_fn.bandit.select(key, state.bandit)
    arm = jnp.broadcast_to(arm, state.done.shape)
  exists = (0 <= arm) & (arm < num_arms)
  arm, invalid = jnp.where(exists, arm, 0), ~exists & ~state.done
  live = exists & ~state.done
  # A row's randomness comes from its key and its length only.
  keys = jax.vmap(jax.random.fold_in)(state.keys, state.lengths)
  draft_keys, verify_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  choice = Choice(
    arm=arm,
    live=live,
    invalid=invalid,
    selected=tuple(live & (arm == i) for i in range(num_arms)),
    draft_keys=draft_keys,
    verify_keys=verify_keys,
  )
  return state.replace(done=~live), choice


def read_text(
  round_fn: Round, state: state_lib.DecodeState
) -> base.BanditState:
  """Returns the bandit's state after it has seen the rows' text."""
  context = state_lib.drafter_context(state, ())
  if not round_fn.per_row:
    return round_fn.bandit.read_text(state.bandit, context, ~state.done)

  def read_row(
    bandit: base.BanditState, context: base.Context, done: jax.Array
  ) -> base.BanditState:
    row = jax.tree.map(lambda leaf: leaf[None], context)
    return round_fn.bandit.read_text(bandit, row, ~done[None])

  return jax.vmap(read_row)(state.bandit, context, state.done)


# Catch up.


def catch_up(
  round_fn: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
) -> tuple[state_lib.DecodeState, jax.Array]:
  """Lets selected drafters read the tokens committed while they were idle.

  Returns:
    The state, and `[B]` how many tokens were read.
  """
  num_read, drafters = jnp.zeros_like(state.lengths), list(state.drafters)
  # Nothing is missing from a state that all arms share; and with full feedback,
  # all drafters have read after the last round. Drafters that lag after their
  # own rounds catch up all the same.
  is_current = round_fn.feedback == 'full' or len(drafters) == 1
  for i, slot in enumerate(round_fn.slots):
    drafter = round_fn.drafters[slot.owner]
    is_needed = drafter.lags_after_own_rounds or not is_current
    if not (drafter.can_catch_up and is_needed):
      continue
    drafters[i], num = drafter.catch_up(
      params.drafters[slot.owner],
      drafters[i],
      state_lib.drafter_context(state, round_fn.taps[slot.owner]),
      _rows_of_slot(slot, choice),
    )
    num_read += num
  return state.replace(drafters=tuple(drafters)), num_read


def _rows_of_slot(slot: state_lib.Slot, choice: Choice) -> jax.Array:
  """Returns `[B]` the rows that selected one of a slot's arms."""
  rows = [choice.selected[arm] for arm in slot.arms]
  return functools.reduce(jnp.logical_or, rows)


# Draft.


class ArmDraft(NamedTuple):
  """What an arm's drafter proposes."""

  tree: base.DraftTree
  proposal: base.Proposal  # for the drafter's `commit`


def draft(
  round_fn: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
  group: Sequence[int],
) -> dict[int, ArmDraft]:
  """Lets selected drafters of a group propose trees; returns them by arm."""
  drafts = arms_lib.run_selected(
    [choice.selected[i] for i in group],
    [
      functools.partial(_draft_arm, round_fn, i, params, state, choice)
      for i in group
    ],
    _selected_index(round_fn, choice, [(i,) for i in group]),
  )
  return dict(zip(group, drafts))


def _selected_index(
  round_fn: Round, choice: Choice, groups: Sequence[Sequence[int]]
) -> jax.Array | None:
  """Returns which group has the batch's arm; None if each row selects."""
  if round_fn.per_row:
    return None
  return arms_lib.group_index(groups, choice.arm[0], len(round_fn.drafters))


# Traced once, although its shapes are asked for first.
@functools.partial(jax.jit, static_argnums=1, inline=True)
def _draft_arm(
  round_fn: Round,
  i: int,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
) -> ArmDraft:
  """Lets the drafter of one arm propose trees for all rows."""
  return ArmDraft(
    *round_fn.drafters[i].draft(
      choice.draft_keys,
      params.drafters[i],
      state.drafters[round_fn.slot_of_arm[i]],
      state_lib.drafter_context(state, round_fn.taps[i], choice.selected[i]),
    )
  )


def _slot_proposals(
  round_fn: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
  drafts: Mapping[int, ArmDraft],
) -> tuple[base.Proposal, ...]:
  """Returns what each slot's drafter is to commit; zeros where it was idle."""
  proposals = []
  for slot in round_fn.slots:
    drafting = [i for i in slot.arms if i in drafts]
    if drafting:
      selected = [choice.selected[i] for i in drafting]
      proposals.append(
        arms_lib.merge(selected, [drafts[i].proposal for i in drafting])
      )
    else:
      function = functools.partial(_draft_arm, round_fn, slot.arms[0])
      shapes = jax.eval_shape(function, params, state, choice)
      proposals.append(padding.zeros(shapes.proposal))
  return tuple(proposals)


# Score.


class TargetOutput(NamedTuple):
  """What the target computed, to be committed where it is accepted."""

  features: dict[int, jax.Array]  # [B, N + 1, F] hidden states by tap
  pending: base.PendingKV
  finite: jax.Array  # [B] bool, whether all logits are
  scored: base.Scored | None  # None if no drafter reads it


class Scores(NamedTuple):
  """The target's distributions after every row's root and nodes."""

  probs: base.Probs  # [B, N + 1, V]
  output: TargetOutput


def score(
  round_fn: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
  drafts: Mapping[int, ArmDraft],
) -> Scores:
  """Scores root and nodes of all rows in one call of the target.

  The call has as many nodes as the batch needs, of few compiled widths.
  """
  selected = [choice.selected[i] for i in drafts]
  drafters = [round_fn.drafters[i] for i in drafts]
  draft_trees = [arm_draft.tree for arm_draft in drafts.values()]
  nodes = arms_lib.merge_trees(selected, draft_trees)
  is_drafted = None
  if round_fn.num_likeliest:
    is_drafted = arms_lib.merge(selected, [tree.valid for tree in draft_trees])
  return buckets.switch_bucket(
    arms_lib.call_widths(drafters),
    arms_lib.num_scored_nodes(selected, drafters, draft_trees),
    functools.partial(_score_first, round_fn, params, state, nodes, is_drafted),
  )


def _score_first(
  round_fn: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  nodes: arms_lib.Nodes,
  is_drafted: jax.Array | None,
  num_nodes: int,
) -> Scores:
  """Scores the root and the first nodes.

  Args:
    round_fn: the round.
    params: of all models.
    state: before the round.
    nodes: of all rows.
    is_drafted: `[B, N]` which nodes are valid; None if no drafter reads what
      the target predicts after them.
    num_nodes: how many nodes are scored.
  """
  last = state.lengths[:, None] - 1
  root = jnp.take_along_axis(state.tokens, last, axis=1)
  levels = nodes.levels[..., : num_nodes + 1]
  levels = jnp.broadcast_to(levels, (len(root), num_nodes + 1))
  tokens = jnp.concatenate([root, nodes.tokens[:, :num_nodes]], axis=1)
  extension = round_fn.target.extend(
    params.target,
    state.target,
    tokens,
    positions=jnp.where(levels > 0, last + levels - 1, -1),
    mask=nodes.mask[..., : num_nodes + 1, : num_nodes + 1],
  )
  # A softmax is finite if and only if the largest logit is, after temperature.
  largest = extension.logits.max(-1)
  if not round_fn.sampling.is_greedy:
    largest = largest / round_fn.sampling.temperature
  probs = sampling_lib.both_probs(extension.logits, round_fn.sampling)
  if round_fn.sampling.shared_noise:
    probs = _select_winners(round_fn, state, levels, probs)
  scored = None
  if is_drafted is not None:
    is_node = is_drafted[:, :num_nodes]
    scored = base.Scored(
      tokens,
      jnp.pad(is_node, ((0, 0), (1, 0)), constant_values=True),
      jax.lax.top_k(extension.logits, round_fn.num_likeliest)[1],
    )
  return Scores(
    probs,
    TargetOutput(
      {tap: extension.features[tap] for tap in state.features},
      extension.pending_kv,
      jnp.isfinite(largest).all(axis=1),
      scored,
    ),
  )


def _select_winners(
  round_fn: Round,
  state: state_lib.DecodeState,
  levels: jax.Array,
  probs: base.Probs,
) -> base.Probs:
  """Returns one-hot distributions on the tokens that the shared noise selects.

  Nothing is left to be drawn: verification is that at temperature 0.

  Args:
    round_fn: the round.
    state: before the round, whose row keys give the noise.
    levels: `[B, N + 1]` the depth of each entry plus 1; 0 for no entry.
    probs: `[B, N + 1, V]` the target's.
  """
  depth = max(drafter.topology.depth for drafter in round_fn.drafters)
  vocab_size = probs.processed.shape[-1]
  times = sampling_lib.race_times(
    base.Noise(state.keys, state.lengths), np.arange(depth + 1), vocab_size
  )
  times = trees.at_entries(times, levels - 1)
  winners = sampling_lib.most_likely(sampling_lib.race(times, probs.processed))
  one_hot = jax.nn.one_hot(winners, vocab_size, dtype=jnp.float32)
  return probs._replace(processed=one_hot)


# Verify.


class GroupOutput(NamedTuple):
  """What a group of arms returns to the steps after `verify`."""

  proposals: tuple[base.Proposal, ...]  # of each slot, for its `commit`
  target: TargetOutput
  verification: verification_lib.Verification


def verify(
  round_fn: Round,
  choice: Choice,
  drafts: Mapping[int, ArmDraft],
  scores: Scores,
) -> verification_lib.Verification:
  """Lets verifiers of selected arms walk their trees against their goals."""
  rules, rule_of_arm = round_fn.rules, round_fn.rule_of_arm
  groups = verification_lib.groups_verified_at_once(
    rules,
    rule_of_arm,
    {i: arm_draft.tree for i, arm_draft in drafts.items()},
  )
  arm = choice.arm if round_fn.per_row else choice.arm[0]
  selected, functions = [], []
  for group in groups:
    rows = [choice.selected[i] for i in group]
    tree = arms_lib.merge(rows, [drafts[i].tree for i in group])
    selected.append(functools.reduce(jnp.logical_or, rows))
    functions.append(
      functools.partial(
        verification_lib.verify_trees,
        *verification_lib.selected_rule(rules, rule_of_arm, group, arm),
        choice.verify_keys,
        tree,
        scores.probs,
        keep_target=round_fn.feedback == 'full',
      )
    )
  results = arms_lib.run_selected(
    selected, functions, _selected_index(round_fn, choice, groups)
  )
  return arms_lib.merge(selected, results)


# Commit.


def commit(
  round_fn: Round,
  state: state_lib.DecodeState,
  choice: Choice,
  output: GroupOutput,
) -> state_lib.DecodeState:
  """Writes what was accepted: tokens, caches and hidden states, once each."""
  outcome = output.verification.outcome
  num_emitted, tokens, done = _emit(state, outcome)
  if outcome.tokens.shape[1] == 1:
    # Without drafts, the count does not depend on the target's call, so the
    # write of the KV cache is ordered after its tokens.
    num_emitted = ordering.after(num_emitted, outcome.tokens)
  features = {
    tap: state_lib.write(
      state.features[tap],
      trees.at_entries(hidden_states, outcome.entries),
      state.lengths - 1,
    )
    for tap, hidden_states in output.target.features.items()
  }
  return state.replace(
    tokens=tokens,
    lengths=state.lengths + num_emitted,
    done=done,
    target=round_fn.target.commit(
      state.target, output.target.pending, outcome.entries, num_emitted
    ),
    features=features,
    drafters=_commit_drafters(round_fn, state, choice, output, num_emitted),
    num_rounds=state.num_rounds + 1,
  )


def _emit(
  state: state_lib.DecodeState, outcome: base.Outcome
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Cuts the outcome at stop tokens and limits, and writes its tokens.

  Returns:
    `[B]` number of emitted tokens, the token buffer, and `[B]` which rows are
    done.
  """
  tokens = outcome.tokens
  index = jnp.arange(tokens.shape[1])
  num = outcome.num_accepted + 1
  stops = (tokens[..., None] == state.stop_tokens[None, None]).any(-1)
  stops &= index[None] < num[:, None]
  stopped = stops.any(-1)
  first = jnp.argmax(stops, axis=-1).astype(jnp.int32)
  num = jnp.where(stopped, first + 1, num)
  room = state.limits - state.lengths
  done = state.done | stopped | (num >= room)
  num = jnp.where(state.done, 0, jnp.minimum(num, room))
  return num, state_lib.write(state.tokens, tokens, state.lengths), done


def _commit_drafters(
  round_fn: Round,
  state: state_lib.DecodeState,
  choice: Choice,
  output: GroupOutput,
  num_emitted: jax.Array,
) -> tuple[base.DraftState, ...]:
  """Returns every slot's state after the round, with one write for each.

  Tokens past a stop token or a limit are not committed to a drafter's KV cache,
  so that `append` can continue the row.
  """
  levels = np.array(
    [state_lib.num_levels(drafter) for drafter in round_fn.drafters], np.int32
  )
  outcome = output.verification.outcome
  num_accepted = jnp.minimum(
    jnp.maximum(num_emitted - 1, 0), jnp.asarray(levels)[choice.arm]
  )
  return tuple(
    round_fn.drafters[slot.owner].commit(
      state.drafters[i],
      output.proposals[i],
      state_lib.drafter_context(state, round_fn.taps[slot.owner]),
      outcome._replace(num_accepted=num_accepted),
      _rows_of_slot(slot, choice),
    )
    for i, slot in enumerate(round_fn.slots)
  )


# Observe.


def observe(
  round_fn: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
  output: GroupOutput,
  start: jax.Array,
  num_read: jax.Array,
) -> tuple[state_lib.DecodeState, base.RoundInfo]:
  """Reports the round and its reward; with full feedback, those of all arms.

  Args:
    round_fn: the round.
    params: of all models.
    state: after `commit`.
    choice: from `select`.
    output: from `draft`, `score` and `verify`.
    start: `[B]` lengths of the rows before the round.
    num_read: `[B]` tokens read by `catch_up`.

  Returns:
    The state, which full feedback updates, and the report.
  """
  info = _report(round_fn, choice, output, state.lengths - start, num_read)
  if round_fn.feedback == 'full':
    state, info = _observe_all(
      round_fn, params, state, choice, output, start, info
    )
  state = _observe_scored(round_fn, state, choice, output)
  reward = jnp.zeros(choice.live.shape, jnp.float32)
  if round_fn.reward is not None:
    reward = jnp.where(choice.live, round_fn.reward(info), 0.0)
  flags = base.Flags(
    target=~output.target.finite & choice.live,
    draft=output.verification.bad_probs & choice.live,
    tree=output.verification.bad_tree & choice.live,
    arm=choice.invalid,
    reward=~feedback_lib.are_valid_rewards(reward, info.rewards),
  )
  return state, info._replace(reward=reward, flags=flags)


def _report(
  round_fn: Round,
  choice: Choice,
  output: GroupOutput,
  num_emitted: jax.Array,
  num_read: jax.Array,
) -> base.RoundInfo:
  """Returns what a reward may depend on."""
  depths = np.array([drafter.topology.depth for drafter in round_fn.drafters])
  verification, live = output.verification, choice.live
  outcome, mean = verification.outcome, verification.acceptance.mean
  return base.RoundInfo(
    arm=choice.arm,
    live=live,
    tokens=outcome.tokens,
    num_emitted=num_emitted,
    num_accepted=jnp.minimum(outcome.num_accepted, num_emitted),
    depth=verification.depth,
    tree_depth=jnp.asarray(depths, jnp.int32)[choice.arm],
    acceptance=jnp.where(live, mean.processed, 0.0),
    raw_acceptance=jnp.where(live, mean.raw, 0.0),
    fidelity=jnp.where(live, verification.fidelity, 0.0),
    num_catch_up_tokens=num_read,
    path=outcome.path,
  )


def _observe_all(
  round_fn: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
  output: GroupOutput,
  start: jax.Array,
  info: base.RoundInfo,
) -> tuple[state_lib.DecodeState, base.RoundInfo]:
  """Lets all drafters read what was committed, and estimates their rewards."""
  verification = output.verification
  # There is full feedback.
  assert verification.target is not None and round_fn.reward is not None
  is_selected = jnp.stack(
    [_rows_of_slot(slot, choice) for slot in round_fn.slots]
  )
  state, num_read, idle = estimate(
    round_fn,
    params,
    state,
    choice.live[None] & ~is_selected,
    base.TargetProbs(start, verification.target),
  )
  acceptance, known = feedback_lib.slot_acceptance(
    verification.acceptance, idle, is_selected, info.num_emitted
  )
  history = feedback_lib.update_history(state.history, acceptance, known)
  rewards = feedback_lib.arm_rewards(
    round_fn.reward,
    info,
    acceptance,
    known,
    history,
    round_fn.drafters,
    round_fn.slot_of_arm,
  )
  rewards = jnp.where(choice.live[:, None], rewards, 0.0)
  num_read += info.num_catch_up_tokens
  info = info._replace(rewards=rewards, num_catch_up_tokens=num_read)
  return state.replace(history=history), info


def _observe_scored(
  round_fn: Round,
  state: state_lib.DecodeState,
  choice: Choice,
  output: GroupOutput,
) -> state_lib.DecodeState:
  """Lets drafters read what the target has predicted."""
  drafters, live = list(state.drafters), choice.live
  if round_fn.feedback == 'full':
    # Estimates have read the states, which are written now.
    live = ordering.after(live.astype(jnp.int32), state.history.accepted) > 0
  for i, slot in enumerate(round_fn.slots):
    drafter = round_fn.drafters[slot.owner]
    if drafter.num_likeliest:
      assert output.target.scored is not None
      drafters[i] = drafter.observe(drafters[i], output.target.scored, live)
  return state.replace(drafters=tuple(drafters))


def estimate(
  round_fn: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  rows: jax.Array,
  target: base.TargetProbs,
) -> tuple[state_lib.DecodeState, jax.Array, list[base.Probs]]:
  """Lets drafters read committed tokens and estimate their acceptance there.

  Args:
    round_fn: the round, whose drafters all have an `estimate`.
    params: of all models.
    state: of the decode.
    rows: `[slots, B]` bool, which rows each slot's drafter reads.
    target: probabilities at the committed positions.

  Returns:
    The state, `[B]` how many tokens were read, and for each slot `[B, P]` the
    probabilities of acceptance.
  """
  num_read, drafters, acceptance = jnp.zeros_like(state.lengths), [], []
  for i, slot in enumerate(round_fn.slots):
    drafter = round_fn.drafters[slot.owner]
    drafter_state, num, probs = drafter.estimate(
      params.drafters[slot.owner],
      state.drafters[i],
      state_lib.drafter_context(state, round_fn.taps[slot.owner]),
      rows[i],
      target,
    )
    drafters.append(drafter_state)
    acceptance.append(probs)
    num_read += num
  return state.replace(drafters=tuple(drafters)), num_read, acceptance


# Learn.


def learn(
  round_fn: Round, state: state_lib.DecodeState, info: base.RoundInfo
) -> state_lib.DecodeState:
  """Updates the bandit, the counters and the flags."""
  if round_fn.reward is not None:
    bandit = feedback_lib.update_bandit(
      round_fn.bandit, round_fn.per_row, state.bandit, info
    )
    state = state.replace(bandit=bandit)
  counters, live = state.counters, info.live[:, None]
  level = np.arange(counters.accepted.shape[1])[None]
  pulled = live & (np.arange(len(round_fn.drafters))[None] == info.arm[:, None])
  drafted = live & (level < info.depth[:, None])
  accepted = level < info.num_accepted[:, None]
  # Where a row has ended, what came next was not judged.
  tested = drafted & (level < info.num_emitted[:, None])
  return state.replace(
    counters=state_lib.Counters(
      pulls=counters.pulls + pulled.astype(jnp.int32),
      catch_up_tokens=counters.catch_up_tokens + info.num_catch_up_tokens,
      accepted=counters.accepted + accepted.astype(jnp.int32),
      drafted=counters.drafted + drafted.astype(jnp.int32),
      tested=counters.tested + tested.astype(jnp.int32),
    ),
    flags=jax.tree.map(jnp.logical_or, state.flags, info.flags),
  )
