"""A corpus with a suffix array, for retrieval drafters (REST).

It is the suffix array of the reversed corpus: positions are sorted by the
tokens before them, beginning with the last. Positions whose contexts end in the
same tokens are adjacent, so that the longest match of a text is found by one
binary search, not by one for each length.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import os
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
from safetensors import numpy as safetensors_numpy
import tqdm

# Separates documents in the corpus; it is below all tokens.
SEPARATOR = -1
# Number of tokens by which contexts are sorted, a power of two. Contexts that
# agree in all of them keep the order of the corpus.
DEPTH = 32
# The search computes in int32, up to the next power of its base.
_MAX_TOKENS = 2**30


class Datastore(NamedTuple):
  """An indexed corpus; a pytree, which drafters take as their parameters.

  Attributes:
    tokens: `[C]` int32, with a separator before, between and after documents.
    suffixes: `[P]` int32, the sorted positions in `tokens`, without those at or
      after a separator.
  """

  tokens: jax.Array
  suffixes: jax.Array


def build(
  documents: Sequence[Sequence[int]], progress: bool = True
) -> Datastore:
  """Indexes documents by prefix doubling: `log2(DEPTH)` sorts of the corpus.

  5 million tokens take about 3 s on one core, and 40 MB: 8 bytes per token.

  Args:
    documents: token ids of each document. Matches and continuations do not
      cross documents.
    progress: whether to show a progress bar.

  Returns:
    The datastore.

  Raises:
    ValueError: no document has two tokens, or one has a negative token.
  """
  arrays = [np.asarray(document, np.int64) for document in documents]
  for i, document in enumerate(arrays):
    if document.size and document.min() < 0:
      raise ValueError(
        f'documents[{i}] must hold tokens >= 0, got {document.min()}.'
      )
  if max(map(len, arrays), default=0) < 2:
    raise ValueError(
      f'documents must hold one of at least two tokens, got {len(documents)} '
      'shorter ones.'
    )
  boundary = np.array([SEPARATOR])
  parts = [part for document in arrays for part in (boundary, document)]
  tokens = np.concatenate([*parts, boundary])
  if len(tokens) > _MAX_TOKENS:
    raise ValueError(
      f'documents must hold at most {_MAX_TOKENS} tokens, got {len(tokens)}.'
    )
  positions = _sorted_positions(tokens, progress)
  is_inside = (tokens[positions] != SEPARATOR) & (
    tokens[positions - 1] != SEPARATOR
  )
  return Datastore(
    jnp.asarray(tokens, jnp.int32), jnp.asarray(positions[is_inside], jnp.int32)
  )


def save(path: str | os.PathLike[str], store: Datastore) -> None:
  """Writes a datastore, usually to `*.safetensors`."""
  arrays = {name: np.asarray(field) for name, field in store._asdict().items()}
  metadata = {'depth': str(DEPTH), 'sha256': _digest(arrays)}
  part = f'{path}.part'
  safetensors_numpy.save_file(arrays, part, metadata=metadata)
  os.replace(part, path)


def load(path: str | os.PathLike[str]) -> Datastore:
  """Reads a file that `save` wrote.

  Raises:
    ValueError: the file is missing, truncated or corrupt, or not a datastore.
  """
  if not os.path.isfile(path):
    raise ValueError(f'There is no datastore at {path}.')
  try:
    with safetensors.safe_open(path, framework='numpy') as file:
      metadata = file.metadata() or {}
      arrays = {name: file.get_tensor(name) for name in Datastore._fields}
    if metadata['depth'] != str(DEPTH):
      raise ValueError(f'it is sorted to depth {metadata["depth"]}')
    if metadata['sha256'] != _digest(arrays):
      raise ValueError('its checksum differs')
  except (safetensors.SafetensorError, OSError, KeyError, ValueError) as error:
    raise ValueError(
      f'The datastore at {path} is truncated or corrupt: {error!r}.'
    ) from error
  return Datastore(**{name: jnp.asarray(arrays[name]) for name in arrays})


def _sorted_positions(tokens: np.ndarray, progress: bool) -> np.ndarray:
  """Returns `[C]` positions, sorted by the `DEPTH` tokens before them.

  Only tokens of the same document count.
  """
  position = np.arange(len(tokens))
  # Number of tokens of the same document before each position.
  boundary = np.maximum.accumulate(np.where(tokens == SEPARATOR, position, 0))
  before = position - np.append(0, boundary[:-1]) - 1
  before[0] = 0
  # Ranks of the contexts, by twice as many tokens in each step; 0 is the empty
  # context.
  ranks = np.append(0, tokens[:-1] - SEPARATOR)
  doublings = (DEPTH - 1).bit_length()
  disable = None if progress else True
  for doubling in tqdm.trange(doublings, desc='index', disable=disable):
    depth = 1 << doubling
    earlier = ranks[np.maximum(position - depth, 0)]
    keys = ranks * (ranks.max() + 1) + np.where(before > depth, earlier, 0)
    ranks = np.unique(keys, return_inverse=True)[1]
  return np.argsort(ranks, kind='stable')


def _digest(arrays: Mapping[str, np.ndarray]) -> str:
  """Returns the SHA-256 of a datastore's arrays."""
  digest = hashlib.sha256()
  for name in Datastore._fields:
    digest.update(arrays[name].tobytes())
  return digest.hexdigest()
