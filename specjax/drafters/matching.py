"""N-gram lookup: matches of a row's end, and a vote on what followed them.

Everything is written for one row. A position in a text, at which a continuation
starts, matches as many tokens as agree between the text before it and the end
of the row.
"""

from collections.abc import Callable
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import trees
from specjax.data import datastore as datastore_lib

# Stands before the row's beginning; it is below all tokens of a corpus, and so
# agrees with none.
_NO_TOKEN = datastore_lib.SEPARATOR - 1
# Number of entries that are compared at a time: on CPU the steps of a search
# cost more than the comparisons.
_WAYS = 32


class Match(NamedTuple):
  """The longest match of a row's end in a corpus."""

  length: jax.Array  # [] int32 tokens that agree
  first: jax.Array  # [] int32, the first entry of the index that matches
  end: jax.Array  # [] int32, after the last one


def match_row(
  tokens: jax.Array, length: jax.Array, max_match: int
) -> jax.Array:
  """Returns `[S]` how many tokens each position of the row matches.

  Args:
    tokens: `[S]`, undefined from `length` on, where nothing matches.
    length: `[]` tokens of the row.
    max_match: at which counting stops.
  """
  size = tokens.shape[0]
  last = _tail(tokens, length, max_match)
  padded = jnp.pad(
    tokens, (max_match, 0), constant_values=datastore_lib.SEPARATOR
  )
  agrees = jnp.arange(size) < length
  count = jnp.zeros(size, jnp.int32)
  for i in range(max_match):
    # At position `e` this is `tokens[e - 1 - i]`.
    agrees &= padded[max_match - 1 - i :][:size] == last[i]
    count += agrees.astype(jnp.int32)
  return count


def row_continuation(
  tokens: jax.Array, length: jax.Array, start: jax.Array, depth: int
) -> jax.Array:
  """Returns `[depth]` tokens from a position of the row on.

  Where the text ends, they continue from `start` again: if the row repeats the
  text after `start`, then the end of the text is repeated next, and so on
  (the overlapping copies of Lempel-Ziv). A row that loops is drafted in full,
  although its last loop is shorter than the draft.
  """
  period = jnp.maximum(length - start, 1)
  return tokens[start + np.arange(depth) % period]


def match_corpus(
  store: datastore_lib.Datastore,
  tokens: jax.Array,
  length: jax.Array,
  max_match: int,
) -> Match:
  """Finds where the most tokens, up to `max_match`, agree with the row's end.

  Args:
    store: the corpus.
    tokens: `[S]`, undefined from `length` on.
    length: `[]` tokens of the row.
    max_match: at most `datastore.DEPTH`.
  """
  last = _tail(tokens, length, max_match)
  num_entries = store.suffixes.shape[0]
  index = np.arange(max_match)[None]

  def tokens_before(entries):
    """Returns `[..., max_match]` tokens before the positions of entries."""
    positions = store.suffixes[jnp.clip(entries, 0, num_entries - 1), None]
    return store.tokens[jnp.maximum(positions - 1 - index, 0)]

  def search(num_tokens, or_equal):
    """Counts entries whose last tokens sort before the row's, or equal them."""

    def precedes(entries):
      text = tokens_before(entries)
      differs = (text != last[None]) & (index < num_tokens)
      at = jnp.argmax(differs, axis=-1)[:, None]
      smaller = jnp.take_along_axis(text < last[None], at, axis=-1)[:, 0]
      return jnp.where(differs.any(-1), smaller, or_equal)

    return _count(precedes, num_entries)

  insertion = search(max_match, False)
  # The text that agrees most is next to where the row's would be inserted.
  agrees = tokens_before(insertion + np.array([-1, 0])) == last[None]
  num_tokens = jnp.cumprod(agrees, axis=-1).sum(-1).max()
  return Match(num_tokens, search(num_tokens, False), search(num_tokens, True))


def corpus_continuations(
  store: datastore_lib.Datastore, match: Match, num_samples: int, depth: int
) -> tuple[jax.Array, jax.Array]:
  """Returns `[M, depth]` continuations of matches, and `[M]` which exist.

  All matches if they are at most `num_samples`, else as many, evenly spaced in
  the sorted index. `vote` reads no further than the end of a document.
  """
  index = np.arange(num_samples)
  size = match.end - match.first
  count = jnp.clip(size, 1, num_samples)
  # `index * size / count`, without overflow.
  steps = index * (size // count) + index * (size % count) // count
  entries = jnp.minimum(match.first + steps, store.suffixes.shape[0] - 1)
  at = store.suffixes[entries, None] + np.arange(depth)[None]
  tokens = store.tokens[jnp.minimum(at, store.tokens.shape[0] - 1)]
  return tokens, jnp.minimum(size, num_samples) > index


def vote(
  continuations: jax.Array, weights: jax.Array, topology: trees.Topology
) -> tuple[jax.Array, jax.Array]:
  """Returns tokens and validity of the tree of most frequent continuations.

  The children of a node are the distinct tokens that follow it, by falling
  weight of the continuations that contain them; of equals, the one that comes
  first among the continuations. Where fewer follow than there is room for, the
  last children are invalid, and so is all below them.

  Args:
    continuations: `[M, D]` int32; each ends before its first negative token.
    weights: `[M]`, 0 for continuations that do not exist.
    topology: the tree, of depth `D`.

  Returns:
    `(tokens[N], valid[N])`; invalid tokens are 0.
  """
  num = len(weights)
  weights = jnp.asarray(weights, jnp.float32)
  earlier = ~np.tri(num, dtype=bool)
  through = (weights > 0)[None]  # [parents, M] which contain the path
  tokens, valid = [], []
  for depth, level in enumerate(topology.levels):
    candidates = continuations[:, depth]
    through &= (candidates >= 0)[None]
    same = candidates[:, None] == candidates[None]
    # Among those that contain the path: those with the same token, and the
    # earlier ones of these.
    weight = _product(jnp.where(through, weights[None], 0.0), same)
    first = through & (_product(through, same & earlier) == 0)
    parent, rank = _parents_and_ranks(topology, level)
    score, chosen = jax.lax.top_k(
      jnp.where(first, weight, 0.0), min(num, max(rank) + 1)
    )
    room = ((0, 0), (0, max(rank) + 1 - score.shape[1]))
    score, chosen = jnp.pad(score, room), jnp.pad(chosen, room)
    exists, chosen = score[parent, rank] > 0, chosen[parent, rank]
    token = jnp.where(exists, candidates[chosen], 0)
    through = through[parent] & exists[:, None]
    through &= candidates[None] == token[:, None]
    tokens.append(token)
    valid.append(exists)
  return jnp.concatenate(tokens), jnp.concatenate(valid)


def check_store(store: Any, name: str) -> None:
  """Raises a `ValueError` unless `store` is a datastore with entries."""
  if not isinstance(store, datastore_lib.Datastore):
    raise ValueError(
      f'The parameters of {name} must be a Datastore, got '
      f'{type(store).__name__}.'
    )
  if not store.suffixes.shape[0]:
    raise ValueError(f'The Datastore of {name} must not be empty.')


def _tail(tokens: jax.Array, length: jax.Array, size: int) -> jax.Array:
  """Returns `[size]` the last tokens of a row, last one first."""
  at = length - 1 - np.arange(size)
  return jnp.where(at >= 0, tokens[jnp.maximum(at, 0)], _NO_TOKEN)


def _product(lhs: jax.Array, rhs: jax.Array) -> jax.Array:
  """Returns a product of matrices, exact for counts on any device."""
  return jnp.matmul(
    lhs.astype(jnp.float32), rhs.astype(jnp.float32), precision='highest'
  )


def _count(
  holds: Callable[[jax.Array], jax.Array], num_entries: int
) -> jax.Array:
  """Counts the entries, all at the beginning, for which `holds(entries)`."""
  stride = 1
  while stride * _WAYS <= num_entries:
    stride *= _WAYS
  count = jnp.int32(0)
  while stride:  # The digits of the count, the most significant one first.
    entries = count + stride * np.arange(1, _WAYS, dtype=np.int32) - 1
    count += stride * ((entries < num_entries) & holds(entries)).sum()
    stride //= _WAYS
  return count


def _parents_and_ranks(
  topology: trees.Topology, level: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
  """Returns each node's parent in the level above, and its rank as a child."""
  parents = np.array(topology.parents)[level]
  rank = [np.count_nonzero(parents[:i] == p) for i, p in enumerate(parents)]
  depth = topology.depths[level[0]]
  above = topology.levels[depth - 2][0] if depth > 1 else -1
  return parents - above, np.array(rank)
