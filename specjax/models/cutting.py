"""Smaller models made of the parts of a larger one, to distil or to draft."""

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
  """Returns a transformer of some of another's layers, in the order given.

  Its arrays are the other's own, not copies.

  Args:
    config: of the other model.
    params: of the other model.
    layers: indices of its layers.

  Raises:
    ValueError: there are no layers, or one of them is not there.
  """
  known = range(config.num_layers)
  if not layers or any(layer not in known for layer in layers):
    raise ValueError(
      f'layers must be some of {known.start} to {known.stop - 1}, got '
      f'{tuple(layers)}.'
    )
  kept = {str(i): params['layers'][str(each)] for i, each in enumerate(layers)}
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
  """Returns a transformer that emits some tokens only: a draft vocabulary.

  Args:
    config: of a model with a head of all tokens.
    params: of that model; what is not the head is shared, not copied.
    tokens: ids that it can emit, without repetition.

  Raises:
    ValueError: there are no tokens, or one is not of the vocabulary or there
      twice.
  """
  ids = np.asarray(tokens, np.int32)
  if not ids.size or not 0 <= ids.min() <= ids.max() < config.vocab_size:
    raise ValueError(
      f'tokens must be some of [0, {config.vocab_size}), the vocabulary, got '
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
      'head': head_of(params, rows),
      'head_rows': jnp.asarray(rows),
    },
  )


def head_of(params: base.Params, rows: np.ndarray | None) -> base.Params:
  """Returns the parameters of a model's output head, or of a part of it.

  Args:
    params: of the model; without a head, its embedding is one.
    rows: `[V]` the place of each token in the new head, -1 for none; None for
      all tokens as they are.
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
  """Returns `[V]` the place of each token in a head of some; -1 for none."""
  rows = np.full(vocab_size, -1, np.int32)
  rows[np.asarray(tokens)] = np.arange(len(tokens))
  return rows


def head_tokens(rows: np.ndarray) -> np.ndarray:
  """Returns the tokens that a head can emit, in its order.

  Args:
    rows: as of `head_of`.
  """
  ids = np.flatnonzero(np.asarray(rows) >= 0)
  return ids[np.argsort(np.asarray(rows)[ids])]
