"""Three drivers of one round: a loop, a recorded scan and a generator."""

from collections.abc import Iterator
import functools

import jax

from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib


@functools.partial(jax.jit, static_argnames='round_fn', donate_argnames='state')
def decode(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
) -> state_lib.DecodeState:
  """Plays rounds until every row is done, in one `lax.while_loop`.

  Args:
    round_fn: from `make_round`; build it once, since another one is compiled
      anew.
    params: of all models.
    state: donated, and updated in place.

  Returns:
    The final state.
  """
  return jax.lax.while_loop(
    lambda state: ~state.done.all(),
    lambda state: round_fn(params, state)[0],
    state,
  )


@functools.partial(
  jax.jit,
  static_argnames=('round_fn', 'num_rounds'),
  donate_argnames='state',
)
def trace(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  num_rounds: int,
) -> tuple[state_lib.DecodeState, state_lib.RoundInfo]:
  """Plays exactly `num_rounds` rounds and records each of them.

  Rounds after the last row is done count nothing.

  Returns:
    The final state, and the infos stacked along a new first axis.
  """
  return jax.lax.scan(
    lambda state, _: round_fn(params, state), state, length=num_rounds
  )


def stream(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
) -> Iterator[tuple[state_lib.DecodeState, state_lib.RoundInfo]]:
  """Yields `(state, info)` after every round, until every row is done.

  `state` is donated to the next round: read from it before asking for more.
  """
  while not state.done.all():
    state, info = _step(round_fn, params, state)
    yield state, info


@functools.partial(jax.jit, static_argnames='round_fn', donate_argnames='state')
def _step(round_fn, params, state):
  return round_fn(params, state)
