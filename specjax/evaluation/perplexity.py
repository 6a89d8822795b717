"""Held-out bits per byte."""

from collections.abc import Sequence
import functools

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
    forced: the language model, as from `adapters.teacher_forced`.
    params: its parameters.
    tokenizer: text to tokens.
    examples: prompts with responses. Only the response, its end marker
      included, is predicted; what exceeds `row_length` is left out, and its
      bytes are left out in proportion to the tokens.
    row_length: tokens a row.
    batch_size: rows a model call.
    target_length: for an encoder-decoder, tokens a row of its decoder;
      `row_length` is its encoder's then.

  Returns:
    Domain to bits per byte.
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
    # Of a row of `room` tokens, an example's first `num_read` are read.
    room = row_length if target_length is None else target_length
    num_bytes = 0.0
    for example, (tokens, start) in zip(by_domain[domain], sequences):
      num_read = start if target_length is None else 1
      num_predicted = len(tokens) - start
      seen = max(0, min(room - num_read, num_predicted)) / num_predicted
      num_bytes += seen * len(example.response.encode())
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


def _batches(rows, batch_size):
  """Splits rows into batches of one shape; rows that fill up weigh nothing."""
  for start in range(0, len(rows.tokens), batch_size):
    batch = [field[start : start + batch_size] for field in rows]
    short = batch_size - len(batch[0])
    yield type(rows)(*(np.pad(field, ((0, short), (0, 0))) for field in batch))


@functools.partial(jax.jit, static_argnames='forced')
def _total_loss(forced, params, rows):
  rows = jax.tree.map(jnp.asarray, rows)
  logits = forced(params, rows)
  return (losses.token_losses(logits, rows.tokens) * rows.weights).sum()
