"""How prompts become the state before their first round."""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import buckets
from specjax import sampling as sampling_lib
from specjax.decoding import requests
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib
from specjax.decoding import warm_start as warm_start_lib


class Setup(NamedTuple):
  """What a program that reads prompts is compiled for."""

  plan: round_lib.Round
  max_length: int
  warm_start: warm_start_lib.WarmStart | None


class Prompts(NamedTuple):
  """Prompts of a batch, or of a queue: arrays, or their shapes."""

  tokens: Any  # [B, T] int32, row by row padded at the end
  lengths: Any  # [B] int32
  limits: Any  # [B] int32, lengths at which rows are done
  ids: Any  # [B] uint32, of which, and the seed, rows' keys are made


def width(longest: int, max_length: int) -> int:
  """Returns the width of prompts: a power of two, so that programs are shared.

  Args:
    longest: tokens of the longest prompt.
    max_length: more than which it need not be.
  """
  enough = 1 << (longest - 1).bit_length()
  return min(max_length, max(buckets.MIN_WIDTH, enough))


def padded(asked: requests.Requests, size: int, num_rows: int = 0) -> Prompts:
  """Returns prompts as arrays, `size` tokens wide, of at least `num_rows`."""
  num = len(asked.prompts)
  tokens = np.zeros((max(num, num_rows), size), np.int32)
  for row, prompt in zip(tokens, asked.prompts):
    row[: len(prompt)] = prompt
  lengths = np.array([len(prompt) for prompt in asked.prompts], np.int32)
  each = lengths, asked.limits, asked.ids
  missing = (0, len(tokens) - num)
  return Prompts(tokens, *(np.pad(leaf, missing) for leaf in each))


def read(
  setup: Setup,
  params: state_lib.Params,
  prompts: Prompts,
  seed: jax.Array,
  stop_tokens: jax.Array,
  bandit_state: base.BanditState,
) -> state_lib.DecodeState:
  """Draws the keys and reads the prompts, the last tokens for the bandit.

  Args:
    setup: of the decoder.
    params: of all models.
    prompts: to read.
    seed: `[]` uint32, of everything random.
    stop_tokens: `[E]` tokens that end a row.
    bandit_state: to begin with: of the batch, or with a first axis of rows.

  Returns:
    The state before the first round.
  """
  plan, starts = setup.plan, setup.warm_start
  row_key, bandit_key = keys(seed)
  # A bandit of the batch goes by the first row's number.
  bandit_keys = sampling_lib.row_keys(bandit_key, prompts.ids)
  later = jnp.minimum(starts.num_tokens if starts else 0, prompts.lengths - 1)
  state = state_lib.init(
    plan.target,
    plan.arms,
    bandit_state,
    params,
    prompts.tokens,
    prompts.lengths - later,
    prompts.limits,
    sampling_lib.row_keys(row_key, prompts.ids),
    bandit_keys if plan.per_row else bandit_keys[0],
    stop_tokens,
    setup.max_length,
    slots=plan.slots.of_arms,
  )
  return starts(params, state, prompts.lengths) if starts else state


def keys(seed: jax.Array) -> tuple[jax.Array, jax.Array]:
  """Returns the keys that rows' and bandits' are made of."""
  # Of this generator, a key's numbers are the same in and out of `vmap`.
  row_key, bandit_key = jax.random.split(
    jax.random.key(seed, impl='threefry2x32')
  )
  return row_key, bandit_key
