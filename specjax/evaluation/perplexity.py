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
  bits, sizes = {}, {}
  for start in range(0, len(examples), batch_size):
    group = examples[start : start + batch_size]
    sequences = [
      tokenizer.encode_example(example.prompt, example.response)
      for example in group
    ]
    rows = _one_a_row(sequences, row_length, batch_size)
    nats = np.asarray(_row_losses(model, params, rows))
    for i, (example, (tokens, at)) in enumerate(zip(group, sequences)):
      seen = max(0, min(row_length, len(tokens)) - at) / (len(tokens) - at)
      domain = example.domain
      bits[domain] = bits.get(domain, 0.0) + nats[i] / np.log(2)
      sizes[domain] = sizes.get(domain, 0.0) + seen * len(
        example.response.encode()
      )
  return {
    domain: float(bits[domain] / sizes[domain]) for domain in sorted(bits)
  }


def _one_a_row(sequences, row_length, batch_size):
  rows = [
    packing.pack([(tokens, min(start, row_length))], row_length, seed=0)
    for tokens, start in sequences
  ]
  rows += [rows[-1]] * (batch_size - len(rows))
  return packing.Batch(*(np.concatenate(fields) for fields in zip(*rows)))


@functools.partial(jax.jit, static_argnames='model')
def _row_losses(model, params, rows):
  rows = jax.tree.map(jnp.asarray, rows)
  logits = losses.logits_of(model, params, rows)
  return (losses.token_losses(logits, rows.tokens) * rows.weights).sum(-1)
