"""Drivers that repeat a round: a loop, a recorded scan and a generator."""

from collections.abc import Callable
from collections.abc import Iterator
import functools
import time
from typing import Any

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax.decoding import feedback as feedback_lib
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib


@functools.partial(jax.jit, donate_argnames='state')
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
  static_argnames=('num_rounds', 'record'),
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

  Rounds after the last row is done change no counter.

  Args:
    round_fn: from `make_round`.
    params: of all models.
    state: donated, and updated in place.
    num_rounds: number of rounds.
    record: returns what to record of a round, all of it by default. What is
      neither recorded nor used by the bandit is not computed.

  Returns:
    The final state, and the records stacked along a new first axis.
  """

  def step(
    state: state_lib.DecodeState, _: None
  ) -> tuple[state_lib.DecodeState, Any]:
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

  `state` is donated to the next round: read from it before the next item.

  Args:
    round_fn: from `make_round`.
    params: of all models.
    state: donated.
    learn: `(bandit_state, info, seconds) -> bandit_state`, learns from the
      measured time of a round: see `throughput_learner`. A first round on a
      copy of the state compiles, which is not timed.
  """
  if learn is not None:
    jax.block_until_ready(
      _step(round_fn, params, jax.tree.map(jnp.copy, state))
    )
  while not state.done.all():
    start = time.perf_counter()
    state, info = _step(round_fn, params, state)
    if learn is not None:
      jax.block_until_ready(info)
      seconds = time.perf_counter() - start
      state = state.replace(bandit=learn(state.bandit, info, seconds))
    yield state, info


def throughput_learner(
  bandit: base.Bandit, max_rate: float, per_row: bool = False
) -> Callable[..., Any]:
  """Builds the `learn` of `stream` that rewards measured tokens per second.

  It belongs to rounds of `make_round(..., reward=None)`.

  Args:
    bandit: the bandit of the round.
    max_rate: tokens per second and row that have a reward of 1, > 0; higher
      rates have no larger one.
    per_row: whether each row has a bandit.

  Raises:
    ValueError: `max_rate` is not positive and finite.
  """
  checks.check_positive('max_rate', max_rate)

  @jax.jit
  def learn(
    state: base.BanditState, info: base.RoundInfo, seconds: float
  ) -> base.BanditState:
    rate = info.num_emitted.astype(jnp.float32) / seconds
    info = info._replace(reward=jnp.clip(rate / max_rate, 0, 1))
    return feedback_lib.update_bandit(bandit, per_row, state, info)

  return learn


@functools.partial(jax.jit, donate_argnames='state')
def _step(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
) -> tuple[state_lib.DecodeState, base.RoundInfo]:
  """Plays one round."""
  return round_fn(params, state)
