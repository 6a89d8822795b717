"""Log-likelihoods and regrets of responses, given their prompts."""

from collections.abc import Sequence
import functools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import sampling as sampling_lib

# Narrower batches save less time than their compilation takes.
_MIN_WIDTH = 8


class Likelihood(NamedTuple):
  """Log-likelihoods of `N` responses, given their prompts.

  Attributes:
    nats: `[N]` float64, at most 0; minus infinity for impossible responses.
    num_tokens: `[N]` int64, lengths of the responses.
    regrets: for each response, `[R]` float32, how far the logit of each token
      is below the largest one; 0 for a token of greedy decoding.
  """

  nats: np.ndarray
  num_tokens: np.ndarray
  regrets: list[np.ndarray]


class _Rows(NamedTuple):
  """A batch of sequences, in two parts: prompts and scored tokens.

  Attributes:
    prompts: `[B, P]` int32, prompts without their last token.
    lengths: `[B]` int32, their lengths.
    tokens: `[B, R + 1]` int32, the last token of the prompt and the response.
    positions: `[B, R]` int32, positions of all but the last of these tokens; -1
      for padding.
  """

  prompts: np.ndarray
  lengths: np.ndarray
  tokens: np.ndarray
  positions: np.ndarray


def likelihood(
  model: base.LanguageModel,
  params: base.Params,
  sequences: Sequence[tuple[Sequence[int], int]],
  *,
  batch_size: int = 8,
  sampling: sampling_lib.Sampling | None = None,
) -> Likelihood:
  """Returns the log-likelihoods of responses, given their prompts.

  A sequence-level cascade keeps a draft model's answer if it is likely under
  the draft model. The likelihood under the target model measures quality
  without a reference.

  Args:
    model: the language model, which prefills prompts as in decoding.
    params: its parameters.
    sequences: pairs `(tokens, start)`; the response is the tokens from index
      `start` on, at least 1. It may be empty.
    batch_size: rows per model call. Prompts and responses are padded to powers
      of two, and a program is compiled for each pair of widths.
    sampling: temperature, top-k, top-p and min-p, after which the processed
      probabilities are taken; None for the raw ones.

  Raises:
    ValueError: there are no sequences, or a token or `start` is out of range.
  """
  _check(model, sequences, batch_size)
  groups: dict[tuple[int, int], list[int]] = {}
  for index, (tokens, start) in enumerate(sequences):
    widths = _width(start - 1), _width(len(tokens) - start)
    groups.setdefault(widths, []).append(index)
  num_tokens = np.array([len(tokens) - start for tokens, start in sequences])
  nats = np.zeros(len(sequences))
  regrets = [np.zeros(0, np.float32)] * len(sequences)
  for widths, members in groups.items():
    for first in range(0, len(members), batch_size):
      indices = members[first : first + batch_size]
      rows = _lay_out([sequences[i] for i in indices], widths, batch_size)
      batch_nats, gaps = map(np.asarray, _score(model, sampling, params, rows))
      nats[indices] = batch_nats[: len(indices)]
      for index, row in zip(indices, gaps):
        regrets[index] = row[: num_tokens[index]]
  return Likelihood(nats, num_tokens, regrets)


def _check(
  model: base.LanguageModel,
  sequences: Sequence[tuple[Sequence[int], int]],
  batch_size: int,
) -> None:
  """Raises `ValueError` for arguments of `likelihood` that are out of range."""
  checks.check_integers('batch_size', batch_size, 1)
  if not len(sequences):
    raise ValueError(f'sequences must not be empty, got {sequences!r}.')
  for index, (tokens, start) in enumerate(sequences):
    name = f'sequences[{index}]'
    checks.check_range(f'start of {name}', start, 1, len(tokens))
    checks.check_range(f'tokens of {name}', tokens, 0, model.vocab_size - 1)


def _width(num_tokens: int) -> int:
  """Returns the padded width, a power of two."""
  return max(_MIN_WIDTH, 1 << max(num_tokens - 1, 0).bit_length())


def _lay_out(
  sequences: Sequence[tuple[Sequence[int], int]],
  widths: tuple[int, int],
  batch_size: int,
) -> _Rows:
  """Returns sequences padded to widths, and with empty rows to a batch.

  Args:
    sequences: pairs `(tokens, start)`.
    widths: `P` and `R`.
    batch_size: `B`.
  """
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
def _score(
  model: base.LanguageModel,
  sampling: sampling_lib.Sampling | None,
  params: base.Params,
  rows: Any,
) -> tuple[jax.Array, jax.Array]:
  """Returns the log-likelihoods `[B]` and regrets `[B, R]` of `_Rows`."""
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
  of_token = functools.partial(
    jnp.take_along_axis, indices=rows.tokens[:, 1:, None], axis=-1
  )
  is_padding = rows.positions < 0
  scores = jnp.where(is_padding, 0.0, of_token(log_probs)[..., 0])
  logits = logits.astype(jnp.float32)
  regrets = logits.max(axis=-1) - of_token(logits)[..., 0]
  return scores.sum(axis=-1), regrets
