"""Many prompts through a decoder, batch by batch."""

from collections.abc import Iterator
from collections.abc import Sequence

import tqdm

from specjax import decoding


def decode(
  decoder: decoding.Decoder,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
  batch_size: int,
  *,
  seed: int = 0,
  first: int = 0,
  progress: bool = True,
) -> Iterator[decoding.Result]:
  """Yields the result of every prompt from index `first` on, in order.

  A prompt's index is its request id, so that its output does not depend on
  `first` or on the batch size.
  """
  starts = range(first, len(prompts), batch_size)
  for start in tqdm.tqdm(starts, unit='batch', disable=not progress):
    batch = list(prompts[start : start + batch_size])
    # The last batch repeats a prompt rather than compiling a new shape.
    padded = batch + batch[-1:] * (batch_size - len(batch))
    yield from decoder.decode(
      padded,
      max_new_tokens,
      seed=seed,
      request_ids=range(start, start + batch_size),
    )[: len(batch)]
