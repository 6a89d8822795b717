"""Held-out bits per byte."""

from collections.abc import Sequence
import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.data import tokenizer as tokenizer_lib
from specjax.training import losses


def bits_per_byte(
  model: base.LanguageModel,
  params: base.Params,
  tokenizer: tokenizer_lib.Tokenizer,
  examples: Sequence[examples_lib.Example],
  row_length: int,
  batch_size: int = 8,
) -> dict[str, float]:
  """Returns bits per UTF-8 byte of the responses, for each domain.

  Args:
    model: the language model.
    params: its parameters.
    tokenizer: text to tokens.
    examples: prompts with responses. Only the response, its end marker
      included, is predicted; what exceeds `row_length` is left out, and its
      bytes are left out in proportion to the tokens.
    row_length: tokens a row.
    batch_size: rows a model call.

  Returns:
    Domain to bits per byte.
  """
  by_domain = {}
  for example in examples:
    by_domain.setdefault(example.domain, []).append(example)
  bits = {}
  for domain in sorted(by_domain):
    sequences = [
      tokenizer.encode_example(example.prompt, example.response)
      for example in by_domain[domain]
    ]
    num_bytes = sum(
      max(0, min(row_length, len(tokens)) - start)
      / (len(tokens) - start)
      * len(example.response.encode())
      for example, (tokens, start) in zip(by_domain[domain], sequences)
    )
    if not num_bytes:
      raise ValueError(
        f'row_length={row_length} leaves no byte of a response in {domain!r}.'
      )
    rows = packing.pack(sequences, row_length, seed=0)
    nats = sum(
      float(_total_loss(model, params, batch))
      for batch in _batches(rows, batch_size)
    )
    bits[domain] = nats / np.log(2) / num_bytes
  return bits


def _batches(rows, batch_size):
  """Splits rows into batches of one shape; rows that fill up weigh nothing."""
  for start in range(0, len(rows.tokens), batch_size):
    batch = packing.Batch(
      *(field[start : start + batch_size] for field in rows)
    )
    short = batch_size - len(batch.tokens)
    yield packing.Batch(
      *(np.pad(field, ((0, short), (0, 0))) for field in batch)
    )


@functools.partial(jax.jit, static_argnames='model')
def _total_loss(model, params, rows):
  rows = jax.tree.map(jnp.asarray, rows)
  logits = losses.logits_of(model, params, rows)
  return (losses.token_losses(logits, rows.tokens) * rows.weights).sum()
