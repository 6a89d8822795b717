"""Three drivers of one round: a loop, a recorded scan and a generator."""

from collections.abc import Callable
from collections.abc import Iterator
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp

from specjax import base
from specjax.decoding import learning
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
    round_fn: from `make_round`.
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
  static_argnames=('round_fn', 'num_rounds', 'record'),
  donate_argnames='state',
)
def trace(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  num_rounds: int,
  record: Callable[[base.RoundInfo], Any] = lambda info: info,
) -> tuple[state_lib.DecodeState, Any]:
  """Plays exactly `num_rounds` rounds and records each of them.

  Rounds after the last row is done count nothing.

  Args:
    round_fn: from `make_round`.
    params: of all models.
    state: donated, and updated in place.
    num_rounds: how many.
    record: what to keep of a round, all by default. What nobody keeps, and no
      bandit asks for, is not computed.

  Returns:
    The final state, and the records stacked along a new first axis.
  """

  def step(state, _):
    state, info = round_fn(params, state)
    return state, record(info)

  return jax.lax.scan(step, state, length=num_rounds)


def stream(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
  learn: Callable[..., Any] | None = None,
) -> Iterator[tuple[state_lib.DecodeState, base.RoundInfo]]:
  """Yields `(state, info)` after every round, until every row is done.

  `state` is donated to the next round: read from it before asking for more.

  Args:
    round_fn: from `make_round`.
    params: of all models.
    state: donated.
    learn: `(bandit_state, info, seconds) -> bandit_state`, to learn from the
      time that a round took: see `throughput_learner`. A first round on a copy
      of the state compiles, outside of the clock.
  """
  if learn is not None:
    jax.block_until_ready(
      _step(round_fn, params, jax.tree.map(jnp.copy, state))
    )
  while not state.done.all():
    began = time.perf_counter()
    state, info = _step(round_fn, params, state)
    if learn is not None:
      jax.block_until_ready(info)
      seconds = time.perf_counter() - began
      state = state.replace(bandit=learn(state.bandit, info, seconds))
    yield state, info


def throughput_learner(
  bandit: base.Bandit, max_rate: float, per_row: bool = False
) -> Callable[..., Any]:
  """Builds the `learn` of `stream` that rewards measured tokens per second.

  For rounds of `make_round(..., reward=None)`.

  Args:
    bandit: the round's own.
    max_rate: tokens per second and row that earn a reward of 1, > 0; higher
      rates earn no more.
    per_row: as in `make_round`.
  """
  if not max_rate > 0:
    raise ValueError(f'max_rate must be > 0, got {max_rate}.')

  @jax.jit
  def learn(state, info, seconds):
    rate = info.num_emitted.astype(jnp.float32) / seconds
    info = info._replace(reward=jnp.clip(rate / max_rate, 0, 1))
    return learning.update(bandit, per_row, state, info)

  return learn


@functools.partial(jax.jit, static_argnames='round_fn', donate_argnames='state')
def _step(round_fn, params, state):
  return round_fn(params, state)
