"""One batch through the decode loop, with a clock and a bandit's state."""

from collections.abc import Sequence
import time
from typing import Any

import jax

from specjax import decoding


def warm_up(
  decoder: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
) -> None:
  """Compiles, for a new bandit and a used one, and plays all arms.

  The first time that an arm is played takes long, compiled as it is.
  """
  _, bandit_state, _ = decode(decoder, prompts, max_new_tokens)
  decode(decoder, prompts, max_new_tokens, bandit_state)


def decode(
  decoder: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
  bandit_state: Any = None,
  **options,
) -> tuple[list[decoding.Result], Any, float]:
  """Decodes a batch.

  Args:
    decoder: of the prompts.
    prompts: token ids of each.
    max_new_tokens: how many tokens to emit at most.
    bandit_state: what it learnt from earlier batches; new by default.
    **options: of `Decoder.init`.

  Returns:
    The results, the bandit's state, and the seconds of the loop, without
    those of reading the prompts.
  """
  state = decoder.init(
    prompts, max_new_tokens, bandit_state=bandit_state, **options
  )
  jax.block_until_ready(state)
  began = time.perf_counter()
  state = decoding.decode(decoder.round_fn, decoder.params, state)
  jax.block_until_ready(state)
  seconds = time.perf_counter() - began
  return decoder.results(prompts, state), state.bandit, seconds
