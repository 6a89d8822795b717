"""Bits per byte of held-out texts."""

from collections.abc import Iterator
from collections.abc import Sequence
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.contrib import example_pairs
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.data import tokenizer as tokenizer_lib
from specjax.training import losses


def bits_per_byte(
  forced: losses.Forced,
  params: base.Params,
  tokenizer: tokenizer_lib.Tokenizer,
  examples: Sequence[examples_lib.Example],
  row_length: int,
  batch_size: int = 8,
  target_length: int | None = None,
) -> dict[str, float]:
  """Returns bits per UTF-8 byte of the responses, for each domain.

  Args:
    forced: the language model, from `adapters.teacher_forced`.
    params: its parameters.
    tokenizer: the tokenizer.
    examples: prompts with responses. Only responses, including their end
      markers, are predicted. Tokens past `row_length` are left out, and a
      proportional number of bytes.
    row_length: tokens per row.
    batch_size: rows per model call.
    target_length: tokens per row of the decoder of an encoder-decoder, in which
      case `row_length` is that of its encoder.

  Returns:
    Bits per byte, by domain.

  Raises:
    ValueError: no response of a domain fits into a row.
  """
  by_domain: dict[str, list[examples_lib.Example]] = {}
  for example in examples:
    by_domain.setdefault(example.domain, []).append(example)
  bits = {}
  for domain in sorted(by_domain):
    sequences = [
      tokenizer.encode_example(example.prompt, example.response)
      for example in by_domain[domain]
    ]
    # A row has `room` tokens, of which the first `num_read` are not predicted.
    room = row_length if target_length is None else target_length
    num_bytes = 0.0
    for example, (tokens, start) in zip(by_domain[domain], sequences):
      num_read = start if target_length is None else 1
      num_predicted = len(tokens) - start
      share = max(0, min(room - num_read, num_predicted)) / num_predicted
      num_bytes += share * len(example.response.encode())
    if not num_bytes:
      raise ValueError(
        f'row_length={row_length} leaves no byte of a response in {domain!r}.'
      )
    rows: packing.Batch | example_pairs.PairBatch
    if target_length is None:
      rows = packing.pack(sequences, row_length, seed=0)
    else:
      rows = example_pairs.pack(sequences, row_length, target_length, seed=0)
    nats = sum(
      float(_total_loss(forced, params, batch))
      for batch in _batches(rows, batch_size)
    )
    bits[domain] = nats / np.log(2) / num_bytes
  return bits


def _batches(rows: Any, batch_size: int) -> Iterator[Any]:
  """Yields batches of one shape; the last is padded with rows of weight 0."""
  for start in range(0, len(rows.tokens), batch_size):
    batch = [field[start : start + batch_size] for field in rows]
    padding = (0, batch_size - len(batch[0])), (0, 0)
    yield type(rows)(*(np.pad(field, padding) for field in batch))


@functools.partial(jax.jit, static_argnames='forced')
def _total_loss(
  forced: losses.Forced, params: base.Params, rows: Any
) -> jax.Array:
  """Returns the weighted sum of the losses of a batch, in nats."""
  rows = jax.tree.map(jnp.asarray, rows)
  logits = forced(params, rows)
  return (losses.token_losses(logits, rows.tokens) * rows.weights).sum()
