"""More text behind what rows have said: the next turn of a conversation."""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib


@functools.partial(jax.jit, static_argnames='plan', donate_argnames='state')
def append(
  plan: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  tokens: jax.Array,
  num: jax.Array,
  limits: jax.Array,
) -> state_lib.DecodeState:
  """Lets all models read more tokens; of what they have read, nothing again.

  Args:
    plan: the round that the state is of.
    params: of all models.
    state: donated.
    tokens: `[B, T]` int32, row by row padded at the end. `T` slots must be left
      behind the longest row.
    num: `[B]` how many there are in each row.
    limits: `[B]` lengths at which rows are done.

  Returns:
    The state, whose rows go on unless they have reached their limits.
  """
  written = round_lib.write(state.tokens, tokens, state.lengths)
  state, _ = read_on(
    plan,
    params,
    state.replace(tokens=written, limits=limits),
    state.lengths + num,
    tokens.shape[1],
  )
  drafters = list(state.drafters)
  for slot, owner in enumerate(plan.slots.owners):
    drafter = plan.arms[owner].drafter
    if drafter.catch_up is not None:
      drafters[slot], _ = drafter.catch_up.read(
        params.drafters[owner],
        drafters[slot],
        state_lib.context(plan.target, drafter, state),
        num > 0,
      )
  return state.replace(drafters=tuple(drafters))


def read_on(
  plan: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  lengths: jax.Array,
  num_tokens: int,
) -> tuple[state_lib.DecodeState, jax.Array]:
  """Lets the target read what stands in the buffer behind its rows.

  Args:
    plan: the round that the state is of.
    params: of all models.
    state: whose target has read all committed tokens but the last.
    lengths: `[B]` of the rows afterwards.
    num_tokens: `P`, by which no row grows more.

  Returns:
    The state, and `[B, P, V]` logits at the new positions, then junk.
  """
  start, index = state.lengths, np.arange(num_tokens)
  at = start[:, None] - 1 + index[None]
  tokens = jnp.take_along_axis(state.tokens, at, axis=1, mode='clip')
  extension = plan.target.extend(params.target, state.target, tokens)
  path = jnp.broadcast_to(index, tokens.shape)
  state = state.replace(
    lengths=lengths,
    done=lengths >= state.limits,
    target=plan.target.commit(
      state.target, extension.pending_kv, path, lengths - start
    ),
    features={
      tap: round_lib.write(buffer, extension.features[tap], start - 1)
      for tap, buffer in state.features.items()
    },
  )
  return state, extension.logits
