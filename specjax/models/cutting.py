"""Builds smaller models from parts of a larger one, for drafting."""

from collections.abc import Sequence
import dataclasses

import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax.models import config as config_lib

Config = config_lib.TransformerConfig


def keep_layers(
  config: Config, params: base.Params, layers: Sequence[int]
) -> tuple[Config, base.Params]:
  """Returns a transformer with some layers of another, in the given order.

  Arrays are shared, not copied.

  Args:
    config: config of the other model.
    params: parameters of the other model.
    layers: indices of its layers.

  Raises:
    ValueError: `layers` is empty, or the model has no such layer.
  """
  valid = range(config.num_layers)
  if not layers or any(layer not in valid for layer in layers):
    raise ValueError(
      f'layers must be some of {valid.start} to {valid.stop - 1}, got '
      f'{tuple(layers)}.'
    )
  kept = {
    str(i): params['layers'][str(layer)] for i, layer in enumerate(layers)
  }
  return (
    dataclasses.replace(
      config,
      num_layers=len(layers),
      local_layers=tuple(config.is_local(layer) for layer in layers),
    ),
    {**params, 'layers': kept},
  )


def narrow_head(
  config: Config, params: base.Params, tokens: Sequence[int]
) -> tuple[Config, base.Params]:
  """Returns a transformer with a reduced vocabulary: it emits some tokens only.

  Args:
    config: config of a model that emits all tokens.
    params: parameters of that model; all but the output head are shared, not
      copied.
    tokens: `[H]` ids that it can emit, without repetition.

  Raises:
    ValueError: `tokens` is empty, or has ids outside of the vocabulary or
      repeated ids; or the model's vocabulary is already reduced.
  """
  if config.head_size is not None:
    raise ValueError(
      'config must be of a model that emits all tokens, got one with a '
      f'head_size of {config.head_size}.'
    )
  ids = np.asarray(tokens, np.int32)
  if not ids.size or not 0 <= ids.min() <= ids.max() < config.vocab_size:
    raise ValueError(
      f'tokens must lie in [0, {config.vocab_size}), the vocabulary, got '
      f'{ids.size} of them'
      + (f' from {ids.min()} to {ids.max()}.' if ids.size else '.')
    )
  if len(np.unique(ids)) < len(ids):
    raise ValueError('tokens must be different, got one of them twice.')
  rows = head_rows(ids, config.vocab_size)
  return (
    dataclasses.replace(config, tie_embeddings=False, head_size=len(ids)),
    {
      **params,
      'head': output_head(params, rows),
      'head_rows': jnp.asarray(rows),
    },
  )


def output_head(params: base.Params, rows: np.ndarray | None) -> base.Params:
  """Returns the parameters of a model's output head, or of a part of it.

  Args:
    params: parameters of the model. If they have no head, it is tied to the
      embedding.
    rows: `[V]` row of each token in the new head, -1 for none; None for the
      whole head.
  """
  table = params.get('head', {}).get('kernel')
  if table is None:
    table = params['embedding']['embedding'].T
  if rows is None:
    return {'kernel': table}
  return {'kernel': jnp.take(table, head_tokens(rows), axis=1)}


def head_rows(
  tokens: Sequence[int] | np.ndarray, vocab_size: int
) -> np.ndarray:
  """Returns `[V]` the row of each token in a reduced head; -1 for none.

  Args:
    tokens: `[H]` the tokens of the head, in the order of its rows.
    vocab_size: `V`.
  """
  rows = np.full(vocab_size, -1, np.int32)
  rows[np.asarray(tokens)] = np.arange(len(tokens))
  return rows


def head_tokens(rows: np.ndarray) -> np.ndarray:
  """Returns the tokens of a reduced head `[H]`, in the order of its rows.

  Args:
    rows: `[V]`, from `head_rows`.
  """
  ids = np.flatnonzero(np.asarray(rows) >= 0)
  return ids[np.argsort(np.asarray(rows)[ids])]
