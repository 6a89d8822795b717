"""What the drafters that look up share: matches, and a vote on what follows.

All for one row. A place in a text is where a continuation starts; it matches
as many tokens as agree between what stands before it and the end of the row.
"""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import trees
from specjax.data import datastore as datastore_lib

# Before the row's beginning; it is below all that a corpus holds, and so agrees
# with nothing.
_NOTHING = datastore_lib.SEPARATOR - 1
# Entries are compared by so many at a time: on CPU the steps of a search cost
# more than what they compare.
_WAYS = 32


class Found(NamedTuple):
  """The longest match of a row's end in a corpus."""

  length: jax.Array  # [] int32 tokens that agree
  first: jax.Array  # [] int32, the first entry of the index that matches
  end: jax.Array  # [] int32, behind the last one


def own(tokens: jax.Array, length: jax.Array, max_match: int) -> jax.Array:
  """Returns `[S]` how many tokens each place of the row's own text matches.

  Args:
    tokens: `[S]`, junk from `length` on, where nothing matches.
    length: `[]` tokens of the row.
    max_match: where counting stops.
  """
  size = tokens.shape[0]
  last = _tail(tokens, length, max_match)
  padded = jnp.pad(
    tokens, (max_match, 0), constant_values=datastore_lib.SEPARATOR
  )
  agrees = jnp.arange(size) < length
  count = jnp.zeros(size, jnp.int32)
  for i in range(max_match):
    # At place `e` this is `tokens[e - 1 - i]`.
    agrees &= padded[max_match - 1 - i :][:size] == last[i]
    count += agrees.astype(jnp.int32)
  return count


def own_continuation(
  tokens: jax.Array, length: jax.Array, place: jax.Array, depth: int
) -> jax.Array:
  """Returns `[depth]` tokens from a place of the row's own text on.

  Where the text ends, they go on with what they began with: if the row repeats
  what followed `place`, then the end of the text is repeated next, and so on
  (the overlapping copies of Lempel-Ziv). A row that loops is drafted in full,
  although its last loop is shorter than the draft.
  """
  period = jnp.maximum(length - place, 1)
  return tokens[place + np.arange(depth) % period]


def in_corpus(
  store: datastore_lib.Datastore,
  tokens: jax.Array,
  length: jax.Array,
  max_match: int,
) -> Found:
  """Finds where most tokens, up to `max_match`, agree with the row's end.

  Args:
    store: the corpus.
    tokens: `[S]`, junk from `length` on.
    length: `[]` tokens of the row.
    max_match: at most `datastore.DEPTH`.
  """
  last = _tail(tokens, length, max_match)
  num_entries = store.suffixes.shape[0]
  index = np.arange(max_match)[None]

  def before(entries):
    """`[..., max_match]` tokens before the places of some entries."""
    places = store.suffixes[jnp.clip(entries, 0, num_entries - 1), None]
    return store.tokens[jnp.maximum(places - 1 - index, 0)]

  def search(num_tokens, or_equal):
    """Entries whose last `num_tokens` come before the row's, or are those."""

    def precedes(entries):
      text = before(entries)
      differs = (text != last[None]) & (index < num_tokens)
      at = jnp.argmax(differs, axis=-1)[:, None]
      smaller = jnp.take_along_axis(text < last[None], at, axis=-1)[:, 0]
      return jnp.where(differs.any(-1), smaller, or_equal)

    return _count(precedes, num_entries)

  here = search(max_match, False)
  # The text that agrees most is next to where the row's own would stand.
  agrees = before(here + np.array([-1, 0])) == last[None]
  num_tokens = jnp.cumprod(agrees, axis=-1).sum(-1).max()
  return Found(num_tokens, search(num_tokens, False), search(num_tokens, True))


def corpus_continuations(
  store: datastore_lib.Datastore, found: Found, num_samples: int, depth: int
) -> tuple[jax.Array, jax.Array]:
  """Returns `[M, depth]` what follows matches, and `[M]` which are there.

  All matches if they are at most `num_samples`, else so many evenly spaced ones
  of the sorted index. Where a document ends, so does what `vote` reads.
  """
  index = np.arange(num_samples)
  size = found.end - found.first
  count = jnp.clip(size, 1, num_samples)
  # `index * size / count`, without overflow.
  steps = index * (size // count) + index * (size % count) // count
  entries = jnp.minimum(found.first + steps, store.suffixes.shape[0] - 1)
  at = store.suffixes[entries, None] + np.arange(depth)[None]
  tokens = store.tokens[jnp.minimum(at, store.tokens.shape[0] - 1)]
  return tokens, jnp.minimum(size, num_samples) > index


def vote(
  continuations: jax.Array, weights: jax.Array, topology: trees.Topology
) -> tuple[jax.Array, jax.Array]:
  """Returns tokens and validity of the tree of most frequent continuations.

  The children of a node are the distinct tokens that follow it, by falling
  weight of the continuations that go there; of equals, the one that comes first
  among the continuations. Where fewer follow than there is room for, the last
  children are invalid, and so is all below them.

  Args:
    continuations: `[M, D]` int32; each ends before its first negative token.
    weights: `[M]`, 0 for continuations that are not there.
    topology: the tree, of depth `D`.

  Returns:
    `(tokens[N], valid[N])`; invalid tokens are 0.
  """
  num = len(weights)
  weights = jnp.asarray(weights, jnp.float32)
  earlier = ~np.tri(num, dtype=bool)
  through = (weights > 0)[None]  # [parents, M] who agrees with the path
  tokens, valid = [], []
  for depth, level in enumerate(topology.levels):
    here = continuations[:, depth]
    through &= (here >= 0)[None]
    same = here[:, None] == here[None]
    # Of whoever is through: those with its token, and the earlier ones of them.
    weight = _product(jnp.where(through, weights[None], 0.0), same)
    first = through & (_product(through, same & earlier) == 0)
    parent, rank = _places(topology, level)
    score, chosen = jax.lax.top_k(
      jnp.where(first, weight, 0.0), min(num, max(rank) + 1)
    )
    room = ((0, 0), (0, max(rank) + 1 - score.shape[1]))
    score, chosen = jnp.pad(score, room), jnp.pad(chosen, room)
    found, chosen = score[parent, rank] > 0, chosen[parent, rank]
    token = jnp.where(found, here[chosen], 0)
    through = through[parent] & found[:, None]
    through &= here[None] == token[:, None]
    tokens.append(token)
    valid.append(found)
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


def _tail(tokens, length, size):
  """`[size]` the last tokens of a row, last one first."""
  at = length - 1 - np.arange(size)
  return jnp.where(at >= 0, tokens[jnp.maximum(at, 0)], _NOTHING)


def _product(left, right):
  """A product of matrices, exact for counts on any device."""
  return jnp.matmul(
    left.astype(jnp.float32), right.astype(jnp.float32), precision='highest'
  )


def _count(holds, num_entries):
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


def _places(topology, level):
  """Whose child each node of a level is, in the level above, and which one."""
  parents = np.array(topology.parents)[level]
  rank = [np.count_nonzero(parents[:i] == p) for i, p in enumerate(parents)]
  depth = topology.depths[level[0]]
  above = topology.levels[depth - 2][0] if depth > 1 else -1
  return parents - above, np.array(rank)
