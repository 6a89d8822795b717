"""What rounds have made of rows, as users see it."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from specjax import base
from specjax import meshes
from specjax.decoding import refill
from specjax.decoding import state as state_lib


class Result(NamedTuple):
  """What one prompt got."""

  tokens: list[int]  # emitted, a stop token included
  rounds: int  # target calls
  draft_calls: int  # sequential drafter calls
  num_catch_up_tokens: int  # others' tokens that drafters have read
  accepted: np.ndarray  # [D] accepted draft tokens of each depth
  drafted: np.ndarray  # [D] rounds whose tree reached each depth
  pulls: np.ndarray  # [A] rounds of each arm


class Piece(NamedTuple):
  """One streamed token and where it came from."""

  token: int
  origin: str  # 'accepted', 'corrected', 'bonus', or 'sampled' without a draft


def of_row(
  arms: Sequence[base.Arm], rows: refill.Finished, row: int, prompt_length: int
) -> Result:
  """Returns what is reported of a row, which begins with its prompt.

  Args:
    arms: of the decoder.
    rows: on the host.
    row: which of them.
    prompt_length: in tokens.
  """
  counters = jax.tree.map(lambda leaf: leaf[row], rows.counters)
  calls = np.array([arm.drafter.num_calls for arm in arms])
  return Result(
    tokens=rows.tokens[row, prompt_length : rows.lengths[row]].tolist(),
    rounds=int(counters.pulls.sum()),
    draft_calls=int(counters.pulls @ calls),
    num_catch_up_tokens=int(counters.catch_up_tokens),
    accepted=counters.accepted,
    drafted=counters.drafted,
    pulls=counters.pulls,
  )


def pieces(info: base.RoundInfo) -> list[Piece]:
  """Returns the tokens that a round has emitted in the first row."""
  info = meshes.fetch(info)
  num, kept = int(info.num_emitted[0]), int(info.num_accepted[0])
  depth = int(info.depth[0])
  last = 'bonus' if kept == depth else 'corrected'
  origins = ['accepted'] * kept + [last if depth else 'sampled']
  return [
    Piece(int(token), origin)
    for token, origin in zip(info.tokens[0, :num], origins)
  ]


def check(
  state: state_lib.DecodeState | refill.Finished,
  numbers: Sequence[int | None] | None = None,
) -> None:
  """Raises what cannot be raised inside the loop.

  Args:
    state: of rows, or what is finished.
    numbers: of the prompts that rows are of; those of the rows, if None.

  Raises:
    FloatingPointError: target, drafter or goal gave NaN or infinity.
    ValueError: something else is not what it was said to be.
  """
  flags = meshes.fetch(state.flags)
  for rows, error, what in (
    (
      flags.target,
      FloatingPointError,
      'The target gave NaN or infinite logits or probabilities',
    ),
    (
      flags.draft,
      FloatingPointError,
      'A drafter or a goal gave NaN or infinite probabilities',
    ),
    (
      flags.tree,
      ValueError,
      'A drafter proposed a tree that contradicts its bounds',
    ),
    (
      flags.arm,
      ValueError,
      f'arm must lie in [0, {state.counters.pulls.shape[1] - 1}], but the '
      'bandit (or its bandit_state) picked another',
    ),
    (
      flags.reward,
      ValueError,
      'Rewards must lie in [0, 1], got another, or NaN,',
    ),
  ):
    if rows.any():
      which = np.flatnonzero(rows).tolist()
      if numbers is not None:
        raise error(f'{what} in prompts {[numbers[i] for i in which]}.')
      raise error(f'{what} in rows {which}.')
