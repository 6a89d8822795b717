"""One batch through the decode loop, with a clock and a bandit's lessons."""

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
  """Compiles, with lessons and without, and plays until all arms have been.

  The first time that an arm is played takes long, compiled as it is.
  """
  _, lessons, _ = decode(decoder, prompts, max_new_tokens)
  decode(decoder, prompts, max_new_tokens, lessons)


def decode(
  decoder: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
  lessons: Any = None,
  **options,
) -> tuple[list[decoding.Result], Any, float]:
  """Decodes a batch.

  Args:
    decoder: of the prompts.
    prompts: token ids of each.
    max_new_tokens: how many tokens to emit at most.
    lessons: of earlier batches, for the bandit; none by default.
    **options: of `Decoder.init`.

  Returns:
    The results, the bandit's lessons, and the seconds of the loop, without
    those of reading the prompts.
  """
  state = decoder.init(prompts, max_new_tokens, bandit_state=lessons, **options)
  jax.block_until_ready(state)
  began = time.perf_counter()
  state = decoding.decode(decoder.round_fn, decoder.params, state)
  jax.block_until_ready(state)
  seconds = time.perf_counter() - began
  return decoder.results(prompts, state), state.bandit, seconds
