"""What a decode carries from round to round."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from flax import struct
import jax
import jax.numpy as jnp

from specjax import base


class Params(NamedTuple):
  """Parameters of the target model and of every arm's drafter."""

  target: base.Params
  drafters: tuple[base.Params, ...]


class Counters(NamedTuple):
  """Sums over the rounds in which a row was live."""

  pulls: jax.Array  # [B, A] int32, rounds of each arm
  catch_up_tokens: jax.Array  # [B] int32, tokens read by drafters that lagged
  accepted: jax.Array  # [B, D] int32, accepted draft tokens of each depth
  drafted: jax.Array  # [B, D] int32, rounds whose tree reached each depth
  # [B, D] int32, of these, those that accepted all tokens above, in rows that
  # had not ended with them.
  tested: jax.Array


class History(NamedTuple):
  """How often the drafts of each slot were accepted recently.

  Sums over committed positions, with weights that decay with their age.
  """

  accepted: jax.Array  # [B, slots] float32, probabilities of acceptance
  total: jax.Array  # [B, slots] float32, weights


class DecodeState(struct.PyTreeNode):
  """The carry of the decode loop.

  A row's committed tokens are `tokens[:lengths]`, prompt included; the buffer
  is undefined past them. The target's KV cache holds all of them except the
  last, which is the next input. Finished rows stay in the batch, frozen.

      tokens   | prompt ... | emitted ... | undefined ... |
                                        ^ lengths
      KV cache | keys and values ...  | undefined ...     |
                                      ^ lengths - 1
  """

  tokens: jax.Array  # [B, S] int32
  lengths: jax.Array  # [B] int32
  limits: jax.Array  # [B] int32, length at which a row is done
  done: jax.Array  # [B] bool
  keys: jax.Array  # [B] one key per row
  stop_tokens: jax.Array  # [E] int32
  target: base.Cache
  features: dict[int, jax.Array]  # [B, S, F] the target's hidden states by tap
  drafters: tuple[base.DraftState, ...]  # of each slot
  history: History  # updated with full feedback only
  bandit: base.BanditState  # of the batch, or with a leading axis of rows
  bandit_key: jax.Array  # [] or [B]
  num_rounds: jax.Array  # [] int32
  counters: Counters
  flags: base.Flags


class Slot(NamedTuple):
  """A drafter state in `DecodeState.drafters`, which several arms may share."""

  owner: int  # the arm whose drafter reads the most levels; commits for all
  arms: tuple[int, ...]


def make_slots(
  arms: Sequence[base.Arm],
  slot_of_arm: Sequence[int] | None = None,
  estimates: bool = False,
) -> tuple[Slot, ...]:
  """Builds the slots of arms.

  Args:
    arms: drafter, verifier and goal of each arm.
    slot_of_arm: `[A]` index of each arm's slot; by default, no arms share one.
    estimates: whether drafters estimate acceptance.

  Raises:
    ValueError: slots are not numbered from 0 without gaps, or drafters share
      a slot although their states or estimates differ.
  """
  indices = tuple(
    range(len(arms)) if slot_of_arm is None else map(int, slot_of_arm)
  )
  num_slots = max(indices, default=-1) + 1
  if len(indices) != len(arms) or set(indices) != set(range(num_slots)):
    raise ValueError(
      f'slots must name a state for each of {len(arms)} arms, numbered from 0 '
      f'without gaps, got {indices}.'
    )
  members = [
    tuple(arm for arm, index in enumerate(indices) if index == slot)
    for slot in range(num_slots)
  ]
  for shared in members:
    state_slots = [arms[i].drafter.slot for i in shared]
    keys = {slot and slot.key(estimates) for slot in state_slots}
    if len(shared) > 1 and (None in keys or len(keys) > 1):
      raise ValueError(
        'Arms that share a slot need drafters of one StateSlot, got arms '
        f'{list(shared)} with {len(keys)} different ones, or none.'
      )
  return tuple(
    Slot(max(shared, key=lambda i: num_levels(arms[i].drafter)), shared)
    for shared in members
  )


def num_levels(drafter: base.Drafter) -> int:
  """Returns how many levels of its trees a drafter can commit by itself."""
  slot = drafter.slot
  return drafter.topology.depth if slot is None else slot.num_levels


def hidden_state_taps(
  target: base.LanguageModel, arms: Sequence[base.Arm]
) -> tuple[tuple[int, ...], ...]:
  """Returns which hidden states of the target each arm's drafter reads.

  Args:
    target: the target model.
    arms: drafter, verifier and goal of each arm.

  Returns:
    For each arm, indices of `ModelOutput.features`, all at least 0.

  Raises:
    ValueError: a drafter taps a hidden state that the target does not return,
      or that has another size than its head reads.
  """
  num = len(target.feature_sizes)
  taps = sorted({tap for arm in arms for tap in arm.drafter.taps})
  if taps and not num:
    raise ValueError(
      f'taps {tuple(taps)} ask for features of a target that has none (its '
      'feature_sizes are empty).'
    )
  for tap in taps:
    if not -num <= tap < num:
      raise ValueError(
        f'taps must lie in [{-num}, {num - 1}], as the target has {num} '
        f'features, got {tap}.'
      )
  for drafter in (arm.drafter for arm in arms):
    sizes = {target.feature_sizes[tap] for tap in drafter.taps}
    if drafter.feature_size is not None and sizes != {drafter.feature_size}:
      raise ValueError(
        f'A drafter reads features of size {drafter.feature_size}, but the '
        f"target's at {drafter.taps} are of size {sorted(sizes)}: its head was "
        'made for another target.'
      )
    if drafter.feature_size is not None and target.start_id is not None:
      raise ValueError(
        'A head needs a decoder-only target, got an encoder-decoder (its '
        f'start_id is {target.start_id}).'
      )
  return tuple(tuple(tap % num for tap in arm.drafter.taps) for arm in arms)


def drafter_context(
  state: DecodeState, taps: Sequence[int], rows: jax.Array | None = None
) -> base.Context:
  """Returns what a drafter may read of the rows.

  Args:
    state: the state of the decode.
    taps: indices of the hidden states that the drafter reads.
    rows: `[B]` bool, rows whose drafts are used; None for all.
  """
  features = tuple(state.features[tap] for tap in taps)
  noise = base.Noise(state.keys, state.lengths)
  return base.Context(state.tokens, state.lengths, features, noise, rows)


@jax.vmap
def write(buffer: jax.Array, values: jax.Array, start: jax.Array) -> jax.Array:
  """Writes `[B, T, ...]` values into `[B, S, ...]` from positions `[B]` on."""
  return jax.lax.dynamic_update_slice_in_dim(
    buffer, values, start, 0, allow_negative_indices=False
  )


def initial_sums(
  batch_size: int, num_arms: int, num_slots: int, depth: int
) -> dict[str, Any]:
  """Returns the fields of a `DecodeState` that rounds add to, all zero.

  Args:
    batch_size: `B`.
    num_arms: `A`.
    num_slots: number of drafter states.
    depth: `D` of the deepest arm.
  """
  history = jnp.zeros((batch_size, num_slots), jnp.float32)
  no_flags = jnp.zeros(batch_size, bool)
  return {
    'history': History(history, history),
    'num_rounds': jnp.int32(0),
    'counters': Counters(
      pulls=jnp.zeros((batch_size, num_arms), jnp.int32),
      catch_up_tokens=jnp.zeros(batch_size, jnp.int32),
      accepted=jnp.zeros((batch_size, depth), jnp.int32),
      drafted=jnp.zeros((batch_size, depth), jnp.int32),
      tested=jnp.zeros((batch_size, depth), jnp.int32),
    ),
    'flags': base.Flags(*[no_flags] * len(base.Flags._fields)),
  }
