"""How likely a model finds responses to prompts."""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import sampling as sampling_lib

# Narrower batches save less time than it takes to compile them.
_NARROWEST = 8


class Likelihood(NamedTuple):
  """Log-likelihoods of `N` responses, each given its prompt."""

  nats: np.ndarray  # [N] float64, <= 0; minus infinity if one is impossible
  num_tokens: np.ndarray  # [N] int64, of the responses


class _Rows(NamedTuple):
  """Sequences in two parts: what is read at once, and what is scored."""

  prompts: np.ndarray  # [B, P] int32, without their last token
  lengths: np.ndarray  # [B] int32
  tokens: np.ndarray  # [B, R + 1] int32 from the last token of the prompt on
  positions: np.ndarray  # [B, R] int32 of all but the last; -1 is padding


def likelihood(
  model: base.LanguageModel,
  params: base.Params,
  sequences: Sequence[tuple[Sequence[int], int]],
  *,
  batch_size: int = 8,
  sampling: sampling_lib.Sampling | None = None,
) -> Likelihood:
  """Returns the log-likelihoods of responses, each given its prompt.

  A sequence-level cascade keeps a draft model's answer if the draft model finds
  it likely; a target's likelihood is a quality that needs no reference.

  Args:
    model: the language model, with or without an encoder: it reads a prompt as
      it does when decoding.
    params: its parameters.
    sequences: `(tokens, start)`; the response are the tokens from index `start`
      on, at least 1. It may be empty.
    batch_size: rows a model call. There is one compiled program for each pair
      of widths that prompts and responses are padded to, powers of two.
    sampling: how the tokens of the responses are drawn; None asks for the
      raw probabilities.
  """
  _check(model, sequences, batch_size)
  groups: dict[tuple[int, int], list[int]] = {}
  for index, (tokens, start) in enumerate(sequences):
    widths = _width(start - 1), _width(len(tokens) - start)
    groups.setdefault(widths, []).append(index)
  nats = np.zeros(len(sequences))
  for widths, members in groups.items():
    for at in range(0, len(members), batch_size):
      chosen = members[at : at + batch_size]
      rows = _lay_out([sequences[i] for i in chosen], widths, batch_size)
      scored = _nats(model, sampling, params, rows)
      nats[chosen] = np.asarray(scored)[: len(chosen)]
  num_tokens = [len(tokens) - start for tokens, start in sequences]
  return Likelihood(nats, np.array(num_tokens))


def _check(model: base.LanguageModel, sequences, batch_size):
  checks.check_range('batch_size', batch_size, 1)
  if not len(sequences):
    raise ValueError(f'sequences must not be empty, got {sequences!r}.')
  for index, (tokens, start) in enumerate(sequences):
    name = f'sequences[{index}]'
    checks.check_range(f'start of {name}', start, 1, len(tokens))
    checks.check_range(f'tokens of {name}', tokens, 0, model.vocab_size - 1)


def _width(num_tokens):
  return max(_NARROWEST, 1 << max(num_tokens - 1, 0).bit_length())


def _lay_out(sequences, widths, batch_size):
  """Pads sequences to widths, and with rows that hold nothing."""
  prompt_width, width = widths
  rows = _Rows(
    np.zeros((batch_size, prompt_width), np.int32),
    np.zeros(batch_size, np.int32),
    np.zeros((batch_size, width + 1), np.int32),
    np.full((batch_size, width), -1, np.int32),
  )
  for row, (tokens, start) in enumerate(sequences):
    last, num = start - 1, len(tokens) - start
    rows.prompts[row, :last] = tokens[:last]
    rows.lengths[row] = last
    rows.tokens[row, : num + 1] = tokens[last:]
    rows.positions[row, :num] = np.arange(last, last + num)
  return rows


@functools.partial(jax.jit, static_argnames=('model', 'sampling'))
def _nats(model: base.LanguageModel, sampling, params, rows):
  rows = jax.tree.map(jnp.asarray, rows)
  cache = model.init_cache(params, *rows.prompts.shape)
  cache, _ = model.prefill(params, cache, rows.prompts, rows.lengths)
  logits = model.extend(
    params, cache, rows.tokens[:, :-1], positions=rows.positions
  ).logits
  if sampling is None:
    log_probs = jax.nn.log_softmax(logits)
  else:
    log_probs = jnp.log(sampling_lib.both_probs(logits, sampling).processed)
  scores = jnp.take_along_axis(log_probs, rows.tokens[:, 1:, None], axis=-1)
  return jnp.where(rows.positions < 0, 0.0, scores[..., 0]).sum(axis=-1)
