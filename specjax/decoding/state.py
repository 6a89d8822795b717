"""What a decode carries from round to round, and what a round reports."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

from flax import struct
import jax
import jax.numpy as jnp

from specjax import base
from specjax.decoding import evidence


class Params(NamedTuple):
  """Parameters of the target and of every arm's drafter."""

  target: base.Params
  drafters: tuple[base.Params, ...]


class Counters(NamedTuple):
  """Sums over the rounds in which a row was live."""

  rounds: jax.Array  # [B] int32, target calls
  draft_calls: jax.Array  # [B] int32, sequential drafter calls
  caught_up: jax.Array  # [B] int32, tokens that drafters read behind others
  emitted: jax.Array  # [B] int32, tokens
  accepted: jax.Array  # [B, D] int32, draft tokens kept at each depth
  drafted: jax.Array  # [B, D] int32, rounds whose tree reached each depth
  pulls: jax.Array  # [B, A] int32, rounds of each arm


class Flags(NamedTuple):
  """What went wrong in a row, to be raised by the host."""

  target: jax.Array  # [B] bool, logits or probabilities were not finite
  draft: jax.Array  # [B] bool, probabilities of drafter or goal were not
  arm: jax.Array  # [B] bool, the bandit picked an arm that is not there
  reward: jax.Array  # [B] bool, a reward was outside [0, 1]


@struct.dataclass
class DecodeState:
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
  drafters: tuple[Any, ...]  # of each memory
  history: evidence.History  # where drafters are kept current
  bandit: Any  # of the batch, or with a first axis of rows
  bandit_key: jax.Array  # [] or [B]
  num_rounds: jax.Array  # [] int32
  counters: Counters
  flags: Flags


class RoundInfo(NamedTuple):
  """One round, row by row. `D` is the depth of the deepest arm."""

  arm: jax.Array  # [B] int32
  live: jax.Array  # [B] bool, rows that were not done
  tokens: jax.Array  # [B, D + 1] int32, the first `num_emitted` were committed
  num_emitted: jax.Array  # [B] int32, 0 in rows that were done
  num_accepted: jax.Array  # [B] int32, committed tokens that were drafted
  depth: jax.Array  # [B] int32, depth to which something was drafted
  overlap: jax.Array  # [B] float32, mean chance that a drafted token is kept
  agreement: jax.Array  # [B] float32, 1 - TV of the untempered laws
  fidelity: jax.Array  # [B] float32, mean of 1 - TV of goal and target
  caught_up: jax.Array  # [B] int32, tokens that drafters read behind others
  reward: jax.Array  # [B] float32
  rewards: jax.Array | None  # [B, A] of all arms, where the round yields them
  flags: Flags


def init(
  target: base.LanguageModel,
  arms: tuple[base.Arm, ...],
  bandit_state: Any,
  params: Params,
  prompts: jax.Array,
  lengths: jax.Array,
  limits: jax.Array,
  keys: jax.Array,
  bandit_key: jax.Array,
  stop_tokens: jax.Array,
  max_length: int,
  *,
  memories: tuple[int, ...] | None = None,
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
    memories: which of the drafters' states is each arm's.

  Returns:
    The state before the first round.
  """
  batch, width = prompts.shape
  depths = [arm.drafter.topology.depth for arm in arms]
  depth = max(depths)
  arms_of_memories = owners(arms, resolve_memories(arms, memories))
  # Dynamic updates clamp silently at the end of a buffer, so the widest write
  # of a round must fit behind the longest row.
  size = max_length + depth + 1
  cache = target.init_cache(params.target, batch, size)
  zeros = jnp.zeros(batch, jnp.int32)
  by_depth = jnp.zeros((batch, depth), jnp.int32)
  return DecodeState(
    tokens=jnp.pad(prompts, ((0, 0), (0, size - width))),
    lengths=lengths,
    limits=limits,
    done=lengths >= limits,
    keys=keys,
    stop_tokens=stop_tokens,
    target=target.prefill(params.target, cache, prompts, lengths - 1),
    drafters=tuple(
      arms[i].drafter.init(params.drafters[i], prompts, lengths, max_length)
      for i in arms_of_memories
    ),
    history=evidence.no_history(batch, len(arms_of_memories)),
    bandit=bandit_state,
    bandit_key=bandit_key,
    num_rounds=jnp.int32(0),
    counters=Counters(
      rounds=zeros,
      draft_calls=zeros,
      caught_up=zeros,
      emitted=zeros,
      accepted=by_depth,
      drafted=by_depth,
      pulls=jnp.zeros((batch, len(arms)), jnp.int32),
    ),
    flags=Flags(*[jnp.zeros(batch, bool)] * len(Flags._fields)),
  )


def resolve_memories(
  arms: Sequence[base.Arm], given: Sequence[int] | None = None
) -> tuple[int, ...]:
  """Returns which of the drafters' states each arm uses; checks `given`."""
  if given is None:
    return tuple(range(len(arms)))
  given = tuple(int(memory) for memory in given)
  if len(given) != len(arms) or set(given) != set(range(max(given) + 1)):
    raise ValueError(
      f'memories must name a state for each of {len(arms)} arms, numbered from '
      f'0 without gaps, got {given}.'
    )
  return given


def owners(
  arms: Sequence[base.Arm], memories: tuple[int, ...]
) -> tuple[int, ...]:
  """Returns for each memory the arm that speaks for all that share it.

  It drafts the most levels, and so can commit what the others have drafted.
  """
  return tuple(
    max(
      (i for i, memory in enumerate(memories) if memory == slot),
      key=lambda i: arms[i].drafter.num_calls,
    )
    for slot in range(max(memories) + 1)
  )
