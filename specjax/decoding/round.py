"""One round: its steps stand here in the order in which they run.

select -> catch_up -> draft -> score -> verify -> commit -> observe -> learn
"""

from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import bandits
from specjax import base
from specjax import buckets
from specjax import padding
from specjax import rewards as rewards_lib
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.decoding import arms as arms_lib
from specjax.decoding import estimates
from specjax.decoding import learning
from specjax.decoding import state as state_lib
from specjax.goals import apply as goal_lib

# When a drafter that is not played reads what others committed.
_CATCH_UPS = ('lazy', 'always')


@dataclasses.dataclass(frozen=True, eq=False)
class Round:
  """The step that every driver repeats, from `make_round`.

  A value: rounds of equal parts are equal, and share compiled programs. Numbers
  of rules may be traced; a traced number is equal to itself only.
  """

  target: base.LanguageModel
  arms: tuple[base.Arm, ...]
  bandit: base.Bandit
  reward: base.Reward | None
  sampling: sampling_lib.Sampling
  per_row: bool
  full_information: bool
  slots: state_lib.Slots

  def _key(self) -> tuple[Any, ...]:
    return tuple(
      _identity(getattr(self, field.name)) for field in dataclasses.fields(self)
    )

  def __hash__(self) -> int:
    return hash(self._key())

  def __eq__(self, other: object) -> bool:
    return isinstance(other, Round) and self._key() == other._key()

  def __call__(
    self, params: state_lib.Params, state: state_lib.DecodeState
  ) -> tuple[state_lib.DecodeState, base.RoundInfo]:
    """Plays a round; pure and jittable."""
    if len(state.drafters) != len(self.slots.owners):
      raise ValueError(
        f'The state must hold {len(self.slots.owners)} slots of drafters, as '
        f'the round does, got {len(state.drafters)}.'
      )
    state, choice = select(self, state)
    state, num_read = catch_up(self, params, state, choice)
    # Probabilities stay inside: none is padded for trees of another size.
    played = padding.switch_padded(
      choice.group,
      [
        functools.partial(play, self, params, state, choice, group)
        for group in _groups(self)
      ],
    )
    before, state = state, commit(self, state, choice, played)
    state, info = observe(self, params, before, state, choice, played, num_read)
    return learn(self, state, info), info


def make_round(
  target: base.LanguageModel,
  arms: Sequence[base.Arm],
  bandit: base.Bandit,
  reward: base.Reward | None = rewards_lib.Emitted(),
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  per_row: bool = False,
  catch_up: str = 'lazy',
  slots: Sequence[int] | None = None,
) -> Round:
  """Builds the step that every driver repeats.

  Only what was chosen runs: drafts of the arms that some row has chosen, and
  one call of the target for all rows, which may have different trees in it.
  Arms read the caches and return what is to be written to them; the writes
  happen once, afterwards.

  Args:
    target: the model to sample from.
    arms: the ways to play a round, at least one.
    bandit: the rule that picks among them, of as many arms.
    reward: what a round was worth; the bandit of a batch gets its mean over
      live rows. None leaves learning to the driver (see `drivers.stream`).
    sampling: how the target's tokens are drawn.
    per_row: every row has a bandit of its own, instead of one for the batch.
    catch_up: when a drafter reads what others committed: 'lazy', when it is
      played again, or 'always', after every round, which shows what each arm
      would have earned: `update` gets the `rewards` of all arms.
    slots: which of `state.drafters` is each arm's; its own, by default.

  Returns:
    The round. Rounds with `Fixed` bandits of different arms are equal.

  Raises:
    ValueError: the arms do not fit to each other, to the target or the bandit.
  """
  arms = tuple(
    arm._replace(goal=None) if goal_lib.is_target(arm.goal) else arm
    for arm in arms
  )
  _check(target, arms, bandit, catch_up, sampling)
  if type(bandit) is bandits.Fixed:
    # Its state holds the arm, so that one program serves all of them.
    bandit = bandits.Fixed(bandit.num_arms)
  return Round(
    target,
    arms,
    bandit,
    reward,
    sampling,
    per_row,
    catch_up == 'always',
    state_lib.make_slots(arms, slots),
  )


def _check(target, arms, bandit, catch_up, sampling):
  if not arms:
    raise ValueError('arms must hold at least one arm, got none.')
  if bandit.num_arms != len(arms):
    raise ValueError(
      f'bandit must pick among the {len(arms)} arms of the round, got one of '
      f'num_arms={bandit.num_arms}.'
    )
  if catch_up not in _CATCH_UPS:
    raise ValueError(f'catch_up must be one of {_CATCH_UPS}, got {catch_up!r}.')
  state_lib.taps(target, arms)
  for i, arm in enumerate(arms):
    if not isinstance(arm.verifier, base.Verifier):
      raise ValueError(
        'verifier must be a Verifier, such as those of VERIFIERS, got '
        f'{arm.verifier!r} (arm {i}).'
      )
    goal_lib.check(arm.goal, target.vocab_size)
    if arm.drafter.vocab_size not in (None, target.vocab_size):
      raise ValueError(
        'Draft and target must share a vocabulary, got vocab_size '
        f'{arm.drafter.vocab_size} and {target.vocab_size} (arm {i}).'
      )
    if sampling.temperature or _draws_from_goal(arm, target.vocab_size):
      _check_verifier(i, arm)
    if catch_up == 'always':
      _check_full_information(i, arm)


def _draws_from_goal(arm, vocab_size):
  """Whether an arm's tokens are drawn even if the target is greedy."""
  return arm.goal is not None and not goal_lib.is_one_hot(
    arm.goal, vocab_size, arm.drafter.greedy
  )


def _check_verifier(i: int, arm: base.Arm) -> None:
  """Checks that a verifier is exact where tokens are sampled."""
  verifier, drafter = arm.verifier, arm.drafter
  if verifier.is_greedy:
    raise ValueError(
      "The verifier 'greedy' picks the most likely token, which is exact only "
      'at temperature 0 and for a goal that is one-hot there; elsewhere use '
      f"another one, such as 'maximal' or 'otm' (arm {i})."
    )
  if drafter.own_probs and not verifier.takes_sibling_probs:
    raise ValueError(
      'Siblings are drawn from different distributions, which needs a '
      "verifier that takes them, such as 'ensemble', got another one (arm "
      f'{i}).'
    )
  if verifier.needs_distinct and not drafter.distinct:
    if drafter.topology.width > 1:
      raise ValueError(
        "The verifier 'distinct' needs siblings that are all different, got a "
        f'drafter that draws them with replacement (arm {i}).'
      )


def _check_full_information(i, arm):
  if arm.drafter.estimate is None:
    raise ValueError(
      "catch_up 'always' needs drafters that can estimate how likely their "
      f'drafts are accepted, got one that cannot (arm {i}).'
    )
  if arm.goal is not None:
    raise ValueError(
      "catch_up 'always' needs arms whose goal is the target, since a text "
      'of another distribution does not show what the other arms would have '
      f'earned, got another goal (arm {i}).'
    )


# Select.


class Choice(NamedTuple):
  """Which arm every row plays."""

  arm: jax.Array  # [B] int32
  live: jax.Array  # [B] bool
  lost: jax.Array  # [B] bool, the bandit picked an arm that is not there
  plays: tuple[jax.Array, ...]  # [B] bool of each arm: live, and it was picked
  group: jax.Array  # [] int32, which group of arms, if the batch has one bandit
  draft_keys: jax.Array  # [B] one key a row
  verify_keys: jax.Array  # [B]


def select(
  plan: Round, state: state_lib.DecodeState
) -> tuple[state_lib.DecodeState, Choice]:
  """The bandit picks an arm; rows for which it is not there are done."""
  if plan.per_row:
    # By the row's own rounds, whenever it has begun.
    num_rounds = state.counters.pulls.sum(axis=1)
    keys = jax.vmap(jax.random.fold_in)(state.bandit_key, num_rounds)
    arm = jax.vmap(plan.bandit.select)(keys, state.bandit)
  else:
    key = jax.random.fold_in(state.bandit_key, state.num_rounds)
    arm = plan.bandit.select(key, state.bandit)
    arm = jnp.broadcast_to(arm, state.done.shape)
  exists = (0 <= arm) & (arm < len(plan.arms))
  arm, lost = jnp.where(exists, arm, 0), ~exists & ~state.done
  live = exists & ~state.done
  plays = tuple(live & (arm == i) for i in range(len(plan.arms)))
  of_arms = {i: at for at, arms in enumerate(_groups(plan)) for i in arms}
  group = jnp.asarray([of_arms[i] for i in range(len(plays))])[arm[0]]
  # A row's randomness comes from its own key and what it has said so far.
  keys = jax.vmap(jax.random.fold_in)(state.keys, state.lengths)
  draft_keys, verify_keys = jax.vmap(jax.random.split, out_axes=1)(keys)
  choice = Choice(arm, live, lost, plays, group, draft_keys, verify_keys)
  return state.replace(done=~live), choice


def _groups(plan: Round) -> list[tuple[int, ...]]:
  """The arms that one program plays: of as many nodes, or all, if rows choose.

  Of a group only drafts and verifications are chosen: the call of the target
  is compiled once.
  """
  sizes = [arm.drafter.topology.num_nodes for arm in plan.arms]
  if plan.per_row:
    return [tuple(range(len(sizes)))]
  return [
    tuple(i for i, each in enumerate(sizes) if each == size)
    for size in sorted({*sizes})
  ]


# Catch up.


def catch_up(
  plan: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
) -> tuple[state_lib.DecodeState, jax.Array]:
  """Drafters that are to draft read what others have committed.

  Returns:
    The state, and `[B]` how many tokens were read.
  """
  num_read, drafters = jnp.zeros_like(state.lengths), list(state.drafters)
  # A state that all arms share lacks nothing, and with full information all
  # have read after the last round; but for drafters that read in every round.
  shared = plan.full_information or len(drafters) == 1
  for slot, (owner, rows) in enumerate(_played(plan, choice)):
    drafter = plan.arms[owner].drafter
    reads = drafter.catch_up
    if reads is None or (shared and not reads.every_round):
      continue
    drafters[slot], num = reads.read(
      params.drafters[owner],
      drafters[slot],
      state_lib.context(plan.target, drafter, state),
      rows,
    )
    num_read += num
  return state.replace(drafters=tuple(drafters)), num_read


def _played(plan: Round, choice):
  """For each slot, its owner and `[B]` the rows that have chosen one of it."""
  return [
    (owner, functools.reduce(jnp.logical_or, [choice.plays[i] for i in arms]))
    for owner, arms in zip(plan.slots.owners, plan.slots.arms)
  ]


# Draft.


class Drafted(NamedTuple):
  """What an arm's drafter proposes."""

  tree: base.DraftTree
  proposal: base.Proposal  # for the drafter's `commit`


def draft(
  plan: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
  group: Sequence[int],
) -> dict[int, Drafted]:
  """The drafters of a group's chosen arms propose trees, by the arm."""
  drafts = arms_lib.run_chosen(
    [choice.plays[i] for i in group],
    [
      functools.partial(_draft_arm, plan, i, params, state, choice)
      for i in group
    ],
    _place(plan, choice, [(i,) for i in group]),
  )
  return dict(zip(group, drafts))


def _place(plan: Round, choice, groups: Sequence[Sequence[int]]):
  """Which group has the arm of the batch; None if each row has an arm."""
  if plan.per_row:
    return None
  of_arms = {i: place for place, arms in enumerate(groups) for i in arms}
  places = [of_arms.get(i, 0) for i in range(len(plan.arms))]
  return jnp.asarray(places, jnp.int32)[choice.arm[0]]


# Traced once, for what it does as for what it would return.
@functools.partial(jax.jit, static_argnums=(0, 1), inline=True)
def _draft_arm(plan: Round, i, params, state, choice):
  drafter = plan.arms[i].drafter
  return Drafted(
    *drafter.draft(
      choice.draft_keys,
      params.drafters[i],
      state.drafters[plan.slots.of_arms[i]],
      state_lib.context(plan.target, drafter, state),
    )
  )


def _proposals(plan: Round, params, state, choice, drafts):
  """What every slot's drafter is to commit; zeros where none has drafted."""
  proposals = []
  for arms in plan.slots.arms:
    own = [i for i in arms if i in drafts]
    if own:
      plays = [choice.plays[i] for i in own]
      each = arms_lib.merge(plays, [drafts[i].proposal for i in own])
    else:
      drafted = functools.partial(_draft_arm, plan, arms[0])
      shapes = jax.eval_shape(drafted, params, state, choice)
      each = padding.zeros(shapes.proposal)
    proposals.append(each)
  return tuple(proposals)


# Score.


class Extended(NamedTuple):
  """What the target has computed, to be written where it is accepted."""

  features: dict[int, jax.Array]  # [B, N + 1, F] of each tap
  pending: base.PendingKV
  finite: jax.Array  # [B] bool, whether all logits and probabilities were


class Scored(NamedTuple):
  """What the target says of every row's root and nodes."""

  probs: base.Probs  # [B, N + 1, V]
  extended: Extended


class _Nodes(NamedTuple):
  """Nodes of all rows, which may be of different trees."""

  tokens: jax.Array  # [B, N]
  # [N + 1] or [B, N + 1], of root and nodes: 1 + the distance from the root, or
  # 0 for no node.
  places: jax.Array
  mask: jax.Array  # [N + 1, N + 1] or [B, N + 1, N + 1]


def score(
  plan: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
  drafts: Mapping[int, Drafted],
) -> Scored:
  """The target scores root and nodes, as many as were drafted, in one call."""
  trees = [each.tree for each in drafts.values()]
  drafters = [plan.arms[i].drafter for i in drafts]
  plays = [choice.plays[i] for i in drafts]
  needed = [
    jnp.where(rows, _num_needed(drafter, tree), 0).max()
    for rows, drafter, tree in zip(plays, drafters, trees)
  ]
  nodes = [_nodes(tree, several=len(trees) > 1) for tree in trees]
  return buckets.switch_bucket(
    _widths(drafters),
    functools.reduce(jnp.maximum, needed),
    functools.partial(
      _score_first, plan, params, state, arms_lib.merge(plays, nodes)
    ),
  )


def _nodes(tree, several):
  """The nodes of one arm's trees; for all rows alike, unless there are more."""
  topology, rows = tree.topology, tree.tokens.shape[:1]
  places, mask = topology.offsets + 1, topology.mask
  if several and places.ndim == 1:
    places = jnp.broadcast_to(places, (*rows, *places.shape))
    mask = jnp.broadcast_to(mask, (*rows, *mask.shape))
  return _Nodes(tree.tokens, places, mask)


def _widths(drafters):
  """Numbers of nodes that a call may have: few, since each is compiled."""
  widths = set()
  for drafter in drafters:
    size, width = drafter.topology.num_nodes, drafter.topology.width
    steps = [0, *(width * 4**i for i in range(size.bit_length()))]
    widths |= {*(each for each in steps if drafter.partial and each < size)}
    widths.add(size)
  return sorted(widths)


def _num_needed(drafter, tree):
  """`[B]` the first nodes of the tree that hold all valid ones."""
  size = tree.topology.num_nodes
  if not drafter.partial:
    return jnp.full(tree.valid.shape[:1], size)
  return jnp.where(tree.valid, np.arange(1, size + 1)[None], 0).max(
    axis=1, initial=0
  )


def _score_first(plan: Round, params, state, nodes, num_nodes):
  """Scores the root and the first nodes."""
  last = state.lengths[:, None] - 1
  root = jnp.take_along_axis(state.tokens, last, axis=1)
  places = nodes.places[..., : num_nodes + 1]
  places = jnp.broadcast_to(places, (len(root), num_nodes + 1))
  extension = plan.target.extend(
    params.target,
    state.target,
    jnp.concatenate([root, nodes.tokens[:, :num_nodes]], axis=1),
    positions=jnp.where(places > 0, last + places - 1, -1),
    mask=nodes.mask[..., : num_nodes + 1, : num_nodes + 1],
  )
  # A softmax is finite if and only if the largest logit is, after temperature.
  largest = extension.logits.max(-1) / (plan.sampling.temperature or 1.0)
  return Scored(
    sampling_lib.both_probs(extension.logits, plan.sampling),
    Extended(
      {tap: extension.features[tap] for tap in state.features},
      extension.pending_kv,
      jnp.isfinite(largest).all(axis=1),
    ),
  )


# Verify.


class ArmOutput(NamedTuple):
  """What became of an arm's trees; padded, where arms merge."""

  outcome: base.Outcome  # batched, of the deepest tree
  depth: jax.Array  # [B] int32, of the deepest valid node
  acceptance: estimates.Acceptance
  fidelity: jax.Array  # [B]
  target: base.Probs | None  # [B, P, V] at committed positions, if asked for
  bad_probs: jax.Array  # [B] bool, probabilities of drafter or goal were NaN
  bad_tree: jax.Array  # [B] bool, the tree contradicts its bounds


def verify(
  plan: Round, choice: Choice, drafts: Mapping[int, Drafted], scored: Scored
) -> ArmOutput:
  """The verifiers of chosen arms walk their trees against their goals."""
  groups = _verified_as_one(plan, drafts)
  plays, functions = [], []
  for arms in groups:
    rows = [choice.plays[i] for i in arms]
    tree = arms_lib.merge(rows, [drafts[i].tree for i in arms])
    plays.append(functools.reduce(jnp.logical_or, rows))
    functions.append(
      functools.partial(_verify_arm, plan, choice, arms[0], tree, scored)
    )
  outputs = arms_lib.run_chosen(plays, functions, _place(plan, choice, groups))
  return arms_lib.merge(plays, outputs)


def _verified_as_one(
  plan: Round, drafts: Mapping[int, Drafted]
) -> list[list[int]]:
  """Groups arms whose verifiers, goals and shapes of trees are equal."""
  groups: dict[Any, list[int]] = {}
  for i, drafted in drafts.items():
    arm, structure = plan.arms[i], jax.tree.structure(drafted.tree)
    key = _identity((arm.verifier, arm.goal)), structure
    groups.setdefault(key, []).append(i)
  return list(groups.values())


def _identity(parts: Any) -> Hashable:
  """Returns a key that is equal for equal parts, whose numbers may be traced.

  Traced numbers have no hash; each one is equal to itself only.
  """
  leaves, structure = jax.tree.flatten(parts)
  return structure, *(
    id(leaf) if isinstance(leaf, jax.core.Tracer) else leaf for leaf in leaves
  )


def _verify_arm(plan: Round, choice, i, tree, scored):
  arm, topology = plan.arms[i], tree.topology
  target = jax.tree.map(
    lambda each: each[:, : topology.num_nodes + 1], scored.probs
  )
  sampled, fidelity = target, jnp.ones(choice.live.shape, jnp.float32)
  bad_probs = _has_bad_probs(tree, arm.goal is not None)
  if arm.goal is not None:
    goal = jax.vmap(functools.partial(goal_lib.probs, arm.goal))(tree, target)
    known = jax.vmap(goal_lib.has_draft_probs)(tree)
    fidelity = estimates.fidelity(goal, target.processed, known)
    sampled = target._replace(processed=goal)
    bad_probs |= jnp.isnan(fidelity)
  depths = jnp.broadcast_to(topology.depths, tree.valid.shape)
  outcome = jax.vmap(arm.verifier)(choice.verify_keys, tree, sampled.processed)
  return ArmOutput(
    outcome=outcome,
    depth=jnp.where(tree.valid, depths, 0).max(axis=1, initial=0),
    acceptance=estimates.of_tree(tree, sampled, outcome),
    fidelity=fidelity,
    target=_committed(target, outcome) if plan.full_information else None,
    bad_probs=bad_probs,
    bad_tree=~jnp.broadcast_to(topology.is_valid, choice.live.shape),
  )


def _has_bad_probs(tree, has_goal):
  """`[B]` whether a probability that is read of a tree is not finite.

  Only goals read the raw ones and those of bonus positions.
  """
  known = [(tree.probs, tree.valid)]
  if has_goal:
    known.append((tree.raw_probs, tree.valid))
  if has_goal and tree.bonus_probs is not None:
    drawn = jnp.pad(tree.valid, ((0, 0), (1, 0)), constant_values=True)
    leaves = drawn[:, goal_lib.leaf_entries(tree.topology)]
    known += [(each, leaves) for each in tree.bonus_probs]
  bad = jnp.zeros(tree.tokens.shape[:1], bool)
  for probs, exists in known:
    if probs is not None:
      bad |= (~jnp.isfinite(probs.sum(2)) & exists).any(axis=1)
  return bad


def _committed(target, outcome):
  """`[B, P, V]` the target's probabilities along the accepted path."""
  return jax.tree.map(
    lambda each: trees.at_entries(each, outcome.entries), target
  )


# Play: these three, by a group of arms.


class Played(NamedTuple):
  """What a round needs of drafts, scores and verdicts: no probabilities."""

  proposals: tuple[base.Proposal, ...]  # of each slot, for its `commit`
  extended: Extended
  output: ArmOutput


def play(
  plan: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  choice: Choice,
  group: Sequence[int],
) -> Played:
  """Drafts, scores and verifies, by the chosen arms of a group."""
  drafts = draft(plan, params, state, choice, group)
  scored = score(plan, params, state, choice, drafts)
  output = verify(plan, choice, drafts, scored)
  proposals = _proposals(plan, params, state, choice, drafts)
  return Played(proposals, scored.extended, output)


# Commit.


def commit(
  plan: Round,
  state: state_lib.DecodeState,
  choice: Choice,
  played: Played,
) -> state_lib.DecodeState:
  """Writes what was accepted: tokens, caches and features, once each."""
  # All that is written comes behind all that is read, so that no compiler
  # keeps a copy of a cache: of plain decoding, where to write is known before.
  num_emitted, tokens, done = jax.lax.optimization_barrier(
    _emit(state, played.output.outcome)
  )
  entries = played.output.outcome.entries
  features = {
    tap: write(
      state.features[tap],
      trees.at_entries(each, entries),
      state.lengths - 1,
    )
    for tap, each in played.extended.features.items()
  }
  return state.replace(
    tokens=tokens,
    lengths=state.lengths + num_emitted,
    done=done,
    target=plan.target.commit(
      state.target, played.extended.pending, entries, num_emitted
    ),
    features=features,
    drafters=_commit_drafters(plan, state, choice, played, num_emitted),
    num_rounds=state.num_rounds + 1,
  )


def _emit(state, outcome):
  """Cuts the outcome at stop tokens and limits, and writes what is left.

  Returns:
    `[B]` emitted tokens, the token buffer, and which rows are done now.
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
  return num, write(state.tokens, tokens, state.lengths), done


@jax.vmap
def write(buffer: jax.Array, rows: jax.Array, start: jax.Array) -> jax.Array:
  """Writes `[B, T, ...]` rows into `[B, S, ...]` from `[B]` places on."""
  return jax.lax.dynamic_update_slice_in_dim(buffer, rows, start, 0)


def _commit_drafters(plan: Round, state, choice, played, num_emitted):
  """Returns every slot's state after the round, with one write for each.

  A drafter's cache holds no token that a stop token or a limit has cut off:
  more text may be appended to the row.
  """
  levels = np.array(
    [state_lib.num_levels(arm.drafter) for arm in plan.arms], np.int32
  )
  outcome = played.output.outcome
  kept = jnp.maximum(num_emitted - 1, 0)
  outcome = outcome._replace(
    num_accepted=jnp.minimum(kept, jnp.asarray(levels)[choice.arm])
  )
  committed = []
  for slot, (owner, rows) in enumerate(_played(plan, choice)):
    drafter = plan.arms[owner].drafter
    committed.append(
      drafter.commit(
        state.drafters[slot],
        played.proposals[slot],
        state_lib.context(plan.target, drafter, state),
        outcome,
        rows,
      )
    )
  return tuple(committed)


# Observe.


def observe(
  plan: Round,
  params: state_lib.Params,
  before: state_lib.DecodeState,
  state: state_lib.DecodeState,
  choice: Choice,
  played: Played,
  num_read: jax.Array,
) -> tuple[state_lib.DecodeState, base.RoundInfo]:
  """Reports the round, and its reward; with full information, of all arms."""
  output = played.output
  info = _describe(
    plan, choice, output, state.lengths - before.lengths, num_read
  )
  if plan.full_information:
    state, num_late, rewards = _all_rewards(
      plan, params, before, state, choice, output, info
    )
    info = info._replace(
      rewards=rewards, num_catch_up_tokens=num_read + num_late
    )
  reward = jnp.zeros(choice.live.shape, jnp.float32)
  if plan.reward is not None:
    reward = jnp.where(choice.live, plan.reward(info), 0.0)
  flags = base.Flags(
    target=~played.extended.finite & choice.live,
    draft=output.bad_probs & choice.live,
    tree=output.bad_tree & choice.live,
    arm=choice.lost,
    reward=~_are_rewards(reward, info.rewards),
  )
  return state, info._replace(reward=reward, flags=flags)


def _describe(plan: Round, choice, output, num_emitted, num_read):
  """What a reward may see of the round."""
  depths = np.array([arm.drafter.topology.depth for arm in plan.arms])
  live, mean = choice.live, output.acceptance.mean
  return base.RoundInfo(
    arm=choice.arm,
    live=live,
    tokens=output.outcome.tokens,
    num_emitted=num_emitted,
    num_accepted=jnp.minimum(output.outcome.num_accepted, num_emitted),
    depth=output.depth,
    tree_depth=jnp.asarray(depths, jnp.int32)[choice.arm],
    acceptance=jnp.where(live, mean.processed, 0.0),
    raw_acceptance=jnp.where(live, mean.raw, 0.0),
    fidelity=jnp.where(live, output.fidelity, 0.0),
    num_catch_up_tokens=num_read,
    path=output.outcome.path,
  )


def _all_rewards(plan: Round, params, before, state, choice, output, info):
  """Lets all drafters read what was committed, and estimates their rewards.

  Returns:
    The state, `[B]` how many tokens were read, and `[B, A]` rewards or None.
  """
  committed = base.TargetProbs(before.lengths, output.target)
  played = jnp.stack([rows for _, rows in _played(plan, choice)])
  state, num_read, others = estimate(
    plan, params, state, choice.live[None] & ~played, committed
  )
  acceptance, known = estimates.of_slots(
    output.acceptance, others, played, info.num_emitted
  )
  history = estimates.remember(state.history, acceptance, known)
  state = state.replace(history=history)
  if plan.reward is None:
    return state, num_read, None
  rewards = estimates.rewards(
    plan.reward,
    info,
    acceptance,
    known,
    history,
    plan.arms,
    plan.slots.of_arms,
  )
  return state, num_read, jnp.where(choice.live[:, None], rewards, 0.0)


def estimate(
  plan: Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  rows: jax.Array,
  target: base.TargetProbs,
) -> tuple[state_lib.DecodeState, jax.Array, list[base.Probs]]:
  """Lets drafters read what others have committed, and compares.

  Args:
    plan: the round.
    params: of all models.
    state: of the decode.
    rows: `[slots, B]` bool, which rows each slot's drafter reads.
    target: probabilities at the committed positions.

  Returns:
    The state, `[B]` how many tokens were read, and for each slot `[B, P]` the
    probabilities of acceptance.
  """
  num_read, drafters, chances = jnp.zeros_like(state.lengths), [], []
  for slot, owner in enumerate(plan.slots.owners):
    drafter = plan.arms[owner].drafter
    assert drafter.estimate is not None  # As `make_round` has checked.
    own, num, chance = drafter.estimate(
      params.drafters[owner],
      state.drafters[slot],
      state_lib.context(plan.target, drafter, state),
      rows[slot],
      target,
    )
    drafters.append(own)
    chances.append(chance)
    num_read += num
  return state.replace(drafters=tuple(drafters)), num_read, chances


def _are_rewards(reward, rewards):
  """`[B]` whether all rewards of the round lie in [0, 1]; NaN does not."""
  valid = (0 <= reward) & (reward <= 1)
  if rewards is None:
    return valid
  return valid & ((0 <= rewards) & (rewards <= 1)).all(1)


# Learn.


def learn(
  plan: Round, state: state_lib.DecodeState, info: base.RoundInfo
) -> state_lib.DecodeState:
  """Updates the bandit, the counters and the flags."""
  if plan.reward is not None:
    bandit = learning.update(plan.bandit, plan.per_row, state.bandit, info)
    state = state.replace(bandit=bandit)
  counters, live = state.counters, info.live[:, None]
  levels = np.arange(counters.accepted.shape[1])[None]
  played = live & (np.arange(len(plan.arms))[None] == info.arm[:, None])
  drafted = live & (levels < info.depth[:, None])
  accepted = levels < info.num_accepted[:, None]
  return state.replace(
    counters=state_lib.Counters(
      pulls=counters.pulls + played.astype(jnp.int32),
      catch_up_tokens=counters.catch_up_tokens + info.num_catch_up_tokens,
      accepted=counters.accepted + accepted.astype(jnp.int32),
      drafted=counters.drafted + drafted.astype(jnp.int32),
    ),
    flags=jax.tree.map(jnp.logical_or, state.flags, info.flags),
  )
