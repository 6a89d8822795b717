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
  batches = full(prompts, batch_size, first)
  total = -(-(len(prompts) - first) // batch_size)
  for batch, ids, num in tqdm.tqdm(
    batches, total=total, unit='batch', disable=not progress
  ):
    yield from decoder.decode(
      batch, max_new_tokens, seed=seed, request_ids=ids
    )[:num]


def full(
  prompts: Sequence[Sequence[int]], batch_size: int, first: int = 0
) -> Iterator[tuple[list[Sequence[int]], range, int]]:
  """Yields batches of one size, their request ids, and how many rows count.

  The last one repeats a prompt rather than compiling a new shape.
  """
  for start in range(first, len(prompts), batch_size):
    ids = range(start, start + batch_size)
    batch = [prompts[min(i, len(prompts) - 1)] for i in ids]
    yield batch, ids, min(batch_size, len(prompts) - start)
