"""A KV cache with a length per row, and entries that are not committed yet.

Only lengths matter: entries at or past a row's length are undefined and never
cleared. A forward pass only *reads* the cache; the keys and values that it
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

# Keys and values of one layer, `[B, H, S, D]` each.
KeysAndValues = tuple[jax.Array, jax.Array]

# The shortest window of a KV cache, in slots; the others double it.
_SHORTEST = 256
# Windows are at most this fraction of a KV cache, or all of it. XLA copies a
# window before a layer reads it; copies around whole calls cost more.
_HALF, _THIRD = 2, 3


class KVCache(struct.PyTreeNode):
  """Keys and values of the committed tokens.

  Attributes:
    layers: keys and values of each layer.
    lengths: `[B]` int32, number of valid entries of each row.
    window: `[]` int32, index of the window in `windows_of_layers(size)` that
      layers read. None if they read the whole cache.
  """

  layers: tuple[KeysAndValues, ...]
  lengths: jax.Array
  window: jax.Array | None = None

  @property
  def size(self) -> int:
    """`S`, the number of slots of a row."""
    return self.layers[0][0].shape[2]

  def within_window(self, read: Callable[['KVCache'], Any]) -> Any:
    """Returns `read(cache)` within a window (length-bucketed attention).

    The window is the shortest that holds the longest row, so that the cost of a
    call grows with the text, in steps. On CPUs, each layer chooses among
    windows of 256 slots times powers of two, since a conditional is cheap
    there, and compiling the model several times is not. On accelerators, the
    whole call has a branch for each of at most three windows, since a
    conditional may make a GPU wait for its host.

    Args:
      read: calls a model; its result must not depend on `cache.size`.
    """
    if len(windows_of_layers(self.size)) == 1:
      return read(self)
    return jax.lax.platform_dependent(
      cpu=lambda: self._by_layer(read), default=lambda: self._by_call(read)
    )

  def _by_layer(self, read: Callable[['KVCache'], Any]) -> Any:
    """Calls `read` once; its layers choose the window."""
    widths = windows_of_layers(self.size)
    return read(self.replace(window=self._shortest(widths)))

  def _by_call(self, read: Callable[['KVCache'], Any]) -> Any:
    """Compiles `read` for each window, and runs one of them."""
    first = lambda width: self.replace(
      layers=jax.tree.map(lambda x: x[:, :, :width], self.layers)
    )
    widths = windows_of_calls(self.size)
    branches = [lambda width=width: read(first(width)) for width in widths]
    return jax.lax.switch(self._shortest(widths), branches)

  def _shortest(self, widths: list[int]) -> jax.Array:
    """Returns the index of the first window that holds the longest row."""
    shorter = np.array(widths[:-1], np.int32)
    return (self.lengths.max() > shorter).sum(dtype=jnp.int32)


def windows_of_layers(size: int) -> list[int]:
  """Returns the windows among which layers choose, in slots, ascending.

  Args:
    size: number of slots of the KV cache.
  """
  return [*_doubled(size // _HALF), size]


def windows_of_calls(size: int) -> list[int]:
  """Returns the windows among which whole calls choose, in slots, ascending.

  There are at most three, since the whole call is compiled for each.

  Args:
    size: number of slots of the KV cache.
  """
  shorter = _doubled(size // _THIRD)
  return [*(shorter if len(shorter) < 3 else shorter[-3::2]), size]


def _doubled(largest: int) -> list[int]:
  """Returns windows of up to `largest` slots, each twice the one before."""
  widths = [_SHORTEST]
  while widths[-1] <= largest:
    widths.append(2 * widths[-1])
  return widths[:-1]


class PendingKV(NamedTuple):
  """Keys and values of tokens that were scored but not committed.

  Attributes:
    layers: keys and values of each layer, `[B, H, M, D]`.
    positions: `[B, M]` int32; negative where there is no token.
  """

  layers: tuple[KeysAndValues, ...]
  positions: jax.Array


def init(
  num_layers: int,
  shape: tuple[int, int, int, int],
  dtype: jax.typing.DTypeLike = jnp.float32,
) -> KVCache:
  """Returns an empty KV cache.

  Args:
    num_layers: number of layers.
    shape: `(B, H, S, D)`.
    dtype: type of keys and values.
  """
  layers = tuple(
    (jnp.zeros(shape, dtype), jnp.zeros(shape, dtype))
    for _ in range(num_layers)
  )
  return KVCache(layers=layers, lengths=jnp.zeros(shape[0], jnp.int32))


def append(pending_kv: PendingKV | None, new: PendingKV) -> PendingKV:
  """Concatenates pending entries along their tokens; None stands for none."""
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
  """Commits the pending entries on a path and drops the others.

  Args:
    cache: the KV cache on which they were computed.
    pending_kv: `M` entries for each row.
    path: `[B, P]` index of each entry to commit, in order.
    num: `[B]` how many entries of the path to commit, at most `P`. It must
      depend on all reads of the cache, so that the write comes after them (see
      `ordering.after`).

  Returns:
    The KV cache with `num` more entries per row. The `P` slots after the old
    length are overwritten, so that the buffer needs that much slack.
  """
  starts = ordering.after(cache.lengths, num)
  layers = jax.lax.platform_dependent(
    cache.layers,
    pending_kv.layers,
    path,
    starts,
    tpu=_write_by_rows,
    default=_write_all,
  )
  return KVCache(layers=layers, lengths=starts + num)


def _write_all(
  buffers: tuple[KeysAndValues, ...],
  entries: tuple[KeysAndValues, ...],
  path: jax.Array,
  starts: jax.Array,
) -> tuple[KeysAndValues, ...]:
  """Returns the buffers with the entries of a path, from slots on.

  Args:
    buffers: arrays `[B, H, S, D]`.
    entries: arrays `[B, H, M, D]`.
    path: `[B, P]`.
    starts: `[B]` first slot that is written.
  """
  if len(starts) == 1:
    # A vmapped write of several rows would also read the overwritten slots.
    write = lambda buffer, entry: _write(buffer, entry, path[0], starts[0], 2)
  else:
    write_rows = jax.vmap(functools.partial(_write, axis=1))
    write = lambda buffer, entry: write_rows(buffer, entry, path, starts)
  return jax.tree.map(write, buffers, entries)


def _write(
  buffer: jax.Array,
  entries: jax.Array,
  index: jax.Array,
  start: jax.Array,
  axis: int,
) -> jax.Array:
  """Writes the entries at `index` `[P]` into a buffer, from `start` on."""
  selected = jnp.take(entries, index, axis, mode='clip')
  return jax.lax.dynamic_update_slice_in_dim(
    buffer, selected, start, axis, allow_negative_indices=False
  )


def _write_by_rows(
  buffers: tuple[KeysAndValues, ...],
  entries: tuple[KeysAndValues, ...],
  path: jax.Array,
  starts: jax.Array,
) -> tuple[KeysAndValues, ...]:
  """Returns the result of `_write_all`, with one loop over rows.

  XLA for TPUs would make a loop over rows for each buffer. Without the handling
  of negative indices, a round has three kernels less for each cache.
  """
  index = path[:, None, :, None]
  selected = jax.tree.map(
    lambda entry: jnp.take_along_axis(entry, index, axis=2, mode='clip'),
    entries,
  )

  def write_row(
    row: jax.Array, buffers: tuple[KeysAndValues, ...]
  ) -> tuple[KeysAndValues, ...]:
    zero = jnp.zeros_like(starts[row])  # Indices must have one type.
    slot = row.astype(zero.dtype), zero, starts[row], zero
    return jax.tree.map(
      lambda buffer, entry: jax.lax.dynamic_update_slice(
        buffer,
        jax.lax.dynamic_slice_in_dim(
          entry, row, 1, allow_negative_indices=False
        ),
        slot,
        allow_negative_indices=False,
      ),
      buffers,
      selected,
    )

  return jax.lax.fori_loop(0, len(starts), write_row, buffers)


def rollback(cache: KVCache, lengths: jax.Array) -> KVCache:
  """Removes the entries at and past `lengths` `[B]` by shortening the rows."""
  return cache.replace(lengths=jnp.minimum(cache.lengths, lengths))
