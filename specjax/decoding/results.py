"""What a decode returns to users, and the errors that its flags become."""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from specjax import base
from specjax import meshes
from specjax.decoding import state as state_lib


class Result(NamedTuple):
  """What was decoded for one prompt."""

  tokens: list[int]  # emitted, a stop token included
  rounds: int  # target calls
  draft_calls: int  # sequential drafter calls, if no draft ends early
  num_catch_up_tokens: int  # tokens read by drafters that lagged
  accepted: np.ndarray  # [D] accepted draft tokens of each depth
  drafted: np.ndarray  # [D] rounds whose tree reached each depth
  # [D] of these, those that accepted all tokens above, in a row that had not
  # ended with them
  tested: np.ndarray
  pulls: np.ndarray  # [A] rounds of each arm


class Piece(NamedTuple):
  """One streamed token and its origin."""

  token: int
  origin: str  # 'accepted', 'corrected', 'bonus', or 'sampled' without a draft


class FinishedRows(NamedTuple):
  """The part of a state from which results are built, for `R` rows."""

  tokens: jax.Array  # [R, S] int32
  lengths: jax.Array  # [R] int32
  counters: state_lib.Counters  # [R, ...]
  flags: base.Flags  # [R]


def finished_rows(state: state_lib.DecodeState) -> FinishedRows:
  """Returns the part of a state from which results are built."""
  return FinishedRows(state.tokens, state.lengths, state.counters, state.flags)


def row_result(
  arms: Sequence[base.Arm], rows: FinishedRows, row: int, prompt_length: int
) -> Result:
  """Returns the result of one row, which begins with its prompt.

  Args:
    arms: of the decoder.
    rows: on the host.
    row: index of the row.
    prompt_length: in tokens.
  """
  counters = jax.tree.map(lambda leaf: leaf[row], rows.counters)
  num_calls = np.array([arm.drafter.num_calls for arm in arms])
  return Result(
    tokens=rows.tokens[row, prompt_length : rows.lengths[row]].tolist(),
    rounds=int(counters.pulls.sum()),
    draft_calls=int(counters.pulls @ num_calls),
    num_catch_up_tokens=int(counters.catch_up_tokens),
    accepted=counters.accepted,
    drafted=counters.drafted,
    tested=counters.tested,
    pulls=counters.pulls,
  )


def pieces(info: base.RoundInfo) -> list[Piece]:
  """Returns the tokens that a round has emitted in the first row."""
  info = meshes.fetch(info)
  num_emitted, num_accepted = (
    int(info.num_emitted[0]),
    int(info.num_accepted[0]),
  )
  depth = int(info.depth[0])
  last = 'bonus' if num_accepted == depth else 'corrected'
  origins = ['accepted'] * num_accepted + [last if depth else 'sampled']
  return [
    Piece(int(token), origin)
    for token, origin in zip(info.tokens[0, :num_emitted], origins)
  ]


def check_flags(
  rows: state_lib.DecodeState | FinishedRows,
  prompt_numbers: Sequence[int | None] | None = None,
) -> None:
  """Raises the errors that cannot be raised inside the compiled loop.

  Args:
    rows: a state, or finished rows.
    prompt_numbers: number of each row's prompt, for the message; by default, it
      names rows.

  Raises:
    FloatingPointError: target, drafter or goal gave NaN or infinity.
    ValueError: a tree, an arm index or a reward is out of range.
  """
  flags = meshes.fetch(rows.flags)
  for flagged, error, problem in (
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
      f'arm must lie in [0, {rows.counters.pulls.shape[1] - 1}], but the '
      'bandit (or its bandit_state) picked another',
    ),
    (
      flags.reward,
      ValueError,
      'Rewards must lie in [0, 1], got another, or NaN,',
    ),
  ):
    indices = np.flatnonzero(flagged).tolist()
    if indices and prompt_numbers is not None:
      numbers = [prompt_numbers[i] for i in indices]
      raise error(f'{problem} in prompts {numbers}.')
    if indices:
      raise error(f'{problem} in rows {indices}.')
