"""A KV cache with a length per row, and entries that are not committed yet.

Only lengths matter: entries at or past a row's length are junk, and nothing is
ever cleared. A forward pass only *reads* the cache; the keys and values that it
computes come back as `PendingKV`, and `commit` writes the accepted ones, once
per round. Writing inside the forward pass would make XLA copy every buffer in
the decode loop.

A row of the target model through one round. Its tokens are `a b c`; the drafter
proposes `x y z`, of which `x y` are accepted and `v` replaces `z`:

    KV cache   | a | b | . | . | . | . |    lengths = 2, `.` is undefined
    extend     reads the root c and x y z; returns them as PendingKV
    commit     | a | b | c | x | y | . |    path = 0 1 2, num = 3, lengths = 5
    next root  v, which the KV cache lacks until the next round
"""

from collections.abc import Callable
import functools
from typing import Any
from typing import NamedTuple

from flax import struct
import jax
import jax.numpy as jnp
import numpy as np

from specjax import ordering

# Of one layer, each `[B, H, S, D]`.
KeysAndValues = tuple[jax.Array, jax.Array]

# The shortest window of a cache that is read, in slots; others double it.
_SHORTEST = 256
# What a part of a cache may be of it, at most, in layers and around calls: XLA
# copies a part before it is read, on GPUs at a higher price.
_HALF, _THIRD = 2, 3


class KVCache(struct.PyTreeNode):
  """Keys and values of the committed tokens."""

  layers: tuple[KeysAndValues, ...]
  lengths: jax.Array  # [B] int32, valid entries of each row
  # Of a call whose layers choose: which of `windows_of_layers(size)` they read,
  # int32.
  window: jax.Array | None = None

  @property
  def size(self) -> int:
    """`S`, the slots of a row."""
    return self.layers[0][0].shape[2]

  def within_window(self, read: Callable[['KVCache'], Any]) -> Any:
    """Returns `read(cache)` of the shortest window that holds the longest row.

    The cost of a call thus grows with the text, in steps. On CPUs each layer
    chooses among windows of 256 slots and powers of two times that, since a
    conditional is cheap there, and compiling the model several times is not.
    On accelerators the whole call has a branch for each of at most three
    windows, since a conditional may make a GPU wait for its host.

    Args:
      read: a call of a model, whose result does not depend on `cache.size`.
    """
    if len(windows_of_layers(self.size)) == 1:
      return read(self)
    return jax.lax.platform_dependent(
      cpu=lambda: self._by_layer(read), default=lambda: self._by_call(read)
    )

  def _by_layer(self, read):
    widths = windows_of_layers(self.size)
    return read(self.replace(window=self._shortest(widths)))

  def _by_call(self, read):
    first = lambda width: self.replace(
      layers=jax.tree.map(lambda x: x[:, :, :width], self.layers)
    )
    widths = windows_of_calls(self.size)
    branches = [lambda width=width: read(first(width)) for width in widths]
    return jax.lax.switch(self._shortest(widths), branches)

  def _shortest(self, widths):
    """Which of some windows is the first that holds the longest row, int32."""
    shorter = np.array(widths[:-1], np.int32)
    return (self.lengths.max() > shorter).sum(dtype=jnp.int32)


def windows_of_layers(size: int) -> list[int]:
  """Returns the numbers of slots that a layer may read of a cache of `size`."""
  return [*_doubled(size // _HALF), size]


def windows_of_calls(size: int) -> list[int]:
  """Returns those that a call may read: three at most, each compiled whole."""
  shorter = _doubled(size // _THIRD)
  return [*(shorter if len(shorter) < 3 else shorter[-3::2]), size]


def _doubled(largest):
  """Windows, each twice the one before."""
  widths = [_SHORTEST]
  while widths[-1] <= largest:
    widths.append(2 * widths[-1])
  return widths[:-1]


class PendingKV(NamedTuple):
  """Keys and values of tokens that were scored but not committed."""

  layers: tuple[KeysAndValues, ...]  # each [B, H, M, D]
  positions: jax.Array  # [B, M] int32; negative where there is no token


def init(
  num_layers: int,
  shape: tuple[int, int, int, int],
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> KVCache:
  """Returns an empty cache of arrays `[B, H, S, D]` given as `shape`."""
  layers = tuple(
    (jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
    for _ in range(num_layers)
  )
  return KVCache(layers=layers, lengths=jnp.zeros(shape[0], jnp.int32))


def append(pending_kv: PendingKV | None, new: PendingKV) -> PendingKV:
  """Joins pending entries along their tokens; None stands for none."""
  if pending_kv is None:
    return new
  return jax.tree.map(
    lambda old, fresh: (
      jnp.concatenate([old, fresh], axis=-1)
      if old.ndim == 2
      else jnp.concatenate([old, fresh], axis=2)
    ),
    pending_kv,
    new,
  )


def commit(
  cache: KVCache, pending_kv: PendingKV, path: jax.Array, num: jax.Array
) -> KVCache:
  """Commits the pending entries that lie on a path; drops the others.

  Args:
    cache: the cache that they were computed on.
    pending_kv: `M` entries for each row.
    path: `[B, P]` index of each entry to commit, in order.
    num: `[B]` how many entries of the path to commit, at most `P`. The write
      comes after what `num` was computed from, which must be all reads of the
      cache (see `ordering.after`).

  Returns:
    The cache with `num` more entries a row. `P` slots behind the old length
    are overwritten, so the buffer needs that much slack.
  """
  at = ordering.after(cache.lengths, num)
  layers = jax.lax.platform_dependent(
    cache.layers,
    pending_kv.layers,
    path,
    at,
    tpu=_write_by_rows,
    default=_write_all,
  )
  return KVCache(layers=layers, lengths=at + num)


def _write_all(buffers, entries, path, starts):
  """Writes a path of `[B, H, M, D]` into `[B, H, S, D]`, from `[B]` on."""
  if len(starts) == 1:
    # For several, XLA also reads what may have to stay.
    write = lambda buffer, each: _written(buffer, each, path[0], starts[0], 2)
  else:
    of_rows = jax.vmap(functools.partial(_written, axis=1))
    write = lambda buffer, each: of_rows(buffer, each, path, starts)
  return jax.tree.map(write, buffers, entries)


def _written(buffer, entries, index, start, axis):
  """A buffer with some of the entries, from a slot on."""
  taken = jnp.take(entries, index, axis, mode='clip')
  return jax.lax.dynamic_update_slice_in_dim(buffer, taken, start, axis)


def _write_by_rows(buffers, entries, path, starts):
  """The same; XLA for TPUs would make a loop over rows of each buffer."""
  index = path[:, None, :, None]
  kept = jax.tree.map(
    lambda each: jnp.take_along_axis(each, index, axis=2, mode='clip'), entries
  )

  def row(i, buffers):
    zero = jnp.zeros_like(starts[i])  # All of one type.
    at = i.astype(zero.dtype), zero, starts[i], zero
    return jax.tree.map(
      lambda buffer, each: jax.lax.dynamic_update_slice(
        buffer,
        jax.lax.dynamic_slice_in_dim(each, i, 1),
        at,
      ),
      buffers,
      kept,
    )

  return jax.lax.fori_loop(0, len(starts), row, buffers)


def rollback(cache: KVCache, lengths: jax.Array) -> KVCache:
  """Forgets the entries at and past `lengths` `[B]`, without touching them."""
  return cache.replace(lengths=jnp.minimum(cache.lengths, lengths))
