"""What a decode carries from round to round."""

from collections.abc import Sequence
from typing import NamedTuple

from flax import struct
import jax
import jax.numpy as jnp

from specjax import allocation
from specjax import base
from specjax.decoding import estimates


class Params(NamedTuple):
  """Parameters of the target and of every arm's drafter."""

  target: base.Params
  drafters: tuple[base.Params, ...]


class Counters(NamedTuple):
  """Sums over the rounds in which a row was live."""

  pulls: jax.Array  # [B, A] int32, rounds of each arm
  catch_up_tokens: jax.Array  # [B] int32, others' tokens that were read
  accepted: jax.Array  # [B, D] int32, accepted draft tokens of each depth
  drafted: jax.Array  # [B, D] int32, rounds whose tree reached each depth


class DecodeState(struct.PyTreeNode):
  """The carry of the decode loop.

  A row's committed tokens are `tokens[:lengths]`, prompt included; what lies
  beyond is junk. The target cache holds all of them but the last, which is the
  next input. Rows that are done keep running, but nothing of them moves.
  """

  tokens: jax.Array  # [B, S] int32
  lengths: jax.Array  # [B] int32
  limits: jax.Array  # [B] int32, length at which a row is done
  done: jax.Array  # [B] bool
  keys: jax.Array  # [B] one key a row
  stop_tokens: jax.Array  # [E] int32
  target: base.Cache
  features: dict[int, jax.Array]  # [B, S, F] the target's, of each tap
  drafters: tuple[base.DraftState, ...]  # of each slot
  history: estimates.History  # where drafters are kept current
  bandit: base.BanditState  # of the batch, or with a first axis of rows
  bandit_key: jax.Array  # [] or [B]
  num_rounds: jax.Array  # [] int32
  counters: Counters
  flags: base.Flags


class Slots(NamedTuple):
  """Which drafters share a state: the slots of `DecodeState.drafters`."""

  of_arms: tuple[int, ...]  # [A] the slot of each arm
  owners: tuple[int, ...]  # of each slot, the arm that reads the most levels

  @property
  def arms(self) -> list[list[int]]:
    """The arms of each slot."""
    return [
      [arm for arm, own in enumerate(self.of_arms) if own == slot]
      for slot in range(len(self.owners))
    ]


def make_slots(
  arms: Sequence[base.Arm], of_arms: Sequence[int] | None = None
) -> Slots:
  """Builds the slots of arms.

  Args:
    arms: the ways to play a round.
    of_arms: `[A]` the slot of each arm; by default, each has its own.

  Raises:
    ValueError: slots are not numbered from 0 without gaps, or drafters share
      one that cannot.
  """
  of_arms = tuple(range(len(arms)) if of_arms is None else map(int, of_arms))
  if len(of_arms) != len(arms) or set(of_arms) != set(range(max(of_arms) + 1)):
    raise ValueError(
      f'slots must name a state for each of {len(arms)} arms, numbered from 0 '
      f'without gaps, got {of_arms}.'
    )
  slots = Slots(of_arms, tuple(range(max(of_arms) + 1)))
  owners = []
  for shared in slots.arms:
    own = [arms[i].drafter.slot for i in shared]
    names = {None if slot is None else slot.name for slot in own}
    if len(shared) > 1 and (None in names or len(names) > 1):
      raise ValueError(
        f'Arms of one slot need drafters of one StateSlot, got arms {shared} '
        f'with {len(names)} different ones, or none.'
      )
    owners.append(max(shared, key=lambda i: num_levels(arms[i].drafter)))
  return slots._replace(owners=tuple(owners))


def num_levels(drafter: base.Drafter) -> int:
  """Returns how many levels of its trees a drafter can commit itself."""
  slot = drafter.slot
  return drafter.topology.depth if slot is None else slot.num_levels


def taps(
  target: base.LanguageModel, arms: Sequence[base.Arm]
) -> tuple[int, ...]:
  """Returns which features of the target some drafter reads, as indices >= 0.

  Raises:
    ValueError: a drafter asks for one that the target does not have, or of
      another size.
  """
  num = len(target.feature_sizes)
  asked = sorted({tap for arm in arms for tap in arm.drafter.taps})
  if asked and not num:
    raise ValueError(
      f'taps {tuple(asked)} ask for features of a target that has none (its '
      'feature_sizes are empty).'
    )
  for tap in asked:
    if not -num <= tap < num:
      raise ValueError(
        f'taps must lie in [{-num}, {num - 1}], as the target has {num} '
        f'features, got {tap}.'
      )
  for drafter in (arm.drafter for arm in arms):
    own = {target.feature_sizes[tap] for tap in drafter.taps}
    if drafter.feature_size is not None and own != {drafter.feature_size}:
      raise ValueError(
        f'A drafter reads features of size {drafter.feature_size}, but the '
        f"target's at {drafter.taps} are of size {sorted(own)}: its head is of "
        'another target.'
      )
    if drafter.feature_size is not None and target.start_id is not None:
      raise ValueError(
        'A head needs a decoder-only target, got an encoder-decoder (its '
        f'start_id is {target.start_id}).'
      )
  return tuple(sorted({tap % num for tap in asked}))


def context(
  target: base.LanguageModel, drafter: base.Drafter, state: DecodeState
) -> base.Context:
  """Returns what a drafter may see of the rows."""
  return base.Context(
    tokens=state.tokens,
    lengths=state.lengths,
    features=_asked(state.features, drafter, len(target.feature_sizes)),
  )


def _asked(features, drafter, num):
  """Those of `num` features, by their indices, that a drafter reads."""
  return tuple(features[tap % num] for tap in drafter.taps)


def init(
  target: base.LanguageModel,
  arms: Sequence[base.Arm],
  bandit_state: base.BanditState,
  params: Params,
  prompts: jax.Array,
  lengths: jax.Array,
  limits: jax.Array,
  keys: jax.Array,
  bandit_key: jax.Array,
  stop_tokens: jax.Array,
  max_length: int,
  *,
  slots: Sequence[int] | None = None,
) -> DecodeState:
  """Reads the prompts into the caches.

  Args:
    target: the model to sample from.
    arms: the ways to play a round.
    bandit_state: to begin with: of the batch, or with a first axis of rows.
    params: of all models.
    prompts: `[B, T]` int32, row by row padded at the end.
    lengths: `[B]` prompt lengths, from 1 to `T`.
    limits: `[B]` lengths at which rows are done, at most `max_length`.
    keys: `[B]` one key a row.
    bandit_key: key of the bandit's own randomness, or `[B]` of each row's
      bandit.
    stop_tokens: `[E]` tokens that end a row.
    max_length: longest row, prompt included; at least `T`.
    slots: `[A]` which of `DecodeState.drafters` is each arm's.

  Returns:
    The state before the first round.
  """
  # Dynamic updates clamp silently at the end of a buffer, so the widest write
  # of a round must fit behind the longest row.
  depth = max(arm.drafter.topology.depth for arm in arms)
  size = max_length + depth + 1
  cache = target.init_cache(
    params.target, len(prompts), allocation.round_up_slots(size)
  )
  cache, read = target.prefill(params.target, cache, prompts, lengths - 1)
  owners = make_slots(arms, slots).owners
  return DecodeState(
    tokens=_pad(prompts, size),
    lengths=lengths,
    limits=limits,
    done=lengths >= limits,
    keys=keys,
    stop_tokens=stop_tokens,
    target=cache,
    features={tap: _pad(read[tap], size) for tap in taps(target, arms)},
    drafters=_init_drafters(
      arms, owners, params, base.Context(prompts, lengths, read), max_length
    ),
    bandit=bandit_state,
    bandit_key=bandit_key,
    **_no_rounds(len(prompts), len(arms), len(owners), depth),
  )


def _pad(rows, size):
  """`[B, T, ...]` with room for `[B, size, ...]`."""
  width = rows.shape[1]
  return jnp.pad(rows, [(0, 0), (0, size - width)] + [(0, 0)] * (rows.ndim - 2))


def _init_drafters(arms, owners, params, context, max_length):
  """Lets slot owners read the prompts; `context` has all features."""
  states = []
  for owner in owners:
    drafter = arms[owner].drafter
    own = _asked(context.features, drafter, len(context.features))
    states.append(
      drafter.init(
        params.drafters[owner], context._replace(features=own), max_length
      )
    )
  return tuple(states)


def _no_rounds(batch, num_arms, num_slots, depth):
  """What rounds leave behind, before the first one."""
  return {
    'history': estimates.no_history(batch, num_slots),
    'num_rounds': jnp.int32(0),
    'counters': Counters(
      pulls=jnp.zeros((batch, num_arms), jnp.int32),
      catch_up_tokens=jnp.zeros(batch, jnp.int32),
      accepted=jnp.zeros((batch, depth), jnp.int32),
      drafted=jnp.zeros((batch, depth), jnp.int32),
    ),
    'flags': base.Flags(*[jnp.zeros(batch, bool)] * len(base.Flags._fields)),
  }
