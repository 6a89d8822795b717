"""Drafters whose KV cache lacks the last committed tokens.

A reader reads entries into its KV cache: a language model reads tokens, a head
on the target's hidden states reads pairs (see `head_reader`), or only the
hidden states (see `block_reader`). The last entries
of a row are always missing from the cache. A draft reads them first, up to
`tail` of them, and leaves them uncommitted; while the drafter is idle, more of
them accumulate, which `catch_up` reads in chunks. A row through one round:

    entries    0 1 2 3 4 5 6 7 8 9     10 entries
    cache      0 1 2                   lengths = 3, lag = 7
    catch_up         3 4 5 6 7         committed in chunks, until lag <= tail
    draft                      8 9     the tail, read but uncommitted
                                   a b c d    nodes that were read
    commit                     8 9 b d        the tail, and the accepted nodes

A reader whose nodes are read again once they are accepted commits only the
tail.
"""

from collections.abc import Callable
from collections.abc import Iterable
import functools
from typing import Any
from typing import ClassVar
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import allocation
from specjax import base
from specjax import buckets
from specjax import components
from specjax import ordering
from specjax import sampling as sampling_lib
from specjax.drafters import acceptance_estimate
from specjax.drafters import tree_drafting

# Entries of the shortest tail of a reader whose nodes are read again.
_MIN_TAIL = 8


def tail_of_draft(depth: int) -> int:
  """Returns the tail of a reader that reads accepted nodes again.

  After a round, the cache lacks up to `depth + 1` entries. No tail is shorter
  than eight, so that drafters of up to seven levels share a cache.
  """
  return max(depth + 1, _MIN_TAIL)


def read_missing(
  widths: Iterable[int], num_missing: jax.Array, read: Callable[[int], Any]
) -> Any:
  """Returns `read(num)`, where `num` entries are enough for all rows.

  On CPUs, it is the smallest sufficient width. Elsewhere it is the largest: a
  few entries take as long as one does, and a choice in the program would take
  longer.

  Args:
    widths: numbers of entries; the largest is a reader's tail.
    num_missing: `[]` entries that the row with the longest lag is missing.
    read: reads up to a number of entries; returns a pytree.
  """
  ascending = sorted({*widths})
  tail = ascending[-1]
  return jax.lax.platform_dependent(
    cpu=lambda: buckets.switch_bucket(
      ascending, jnp.minimum(num_missing, tail), read
    ),
    default=lambda: read(tail),
  )


class ReadEntries(NamedTuple):
  """What a reader has computed for `T` entries."""

  outputs: Any  # [B, T, ...], the argument of `Reader.predict`
  pending: base.PendingKV  # uncommitted KV
  # [B, T, ...] any values that depend on every read of the KV cache, so that
  # its write can be ordered after them.
  barrier: jax.Array


class Tail(NamedTuple):
  """The last committed entries, with which a draft begins."""

  outputs: Any  # [B, 1, ...] of the last entry
  pending: base.PendingKV
  exists: jax.Array  # [B, tail] bool, which uncommitted entries there are
  valid: jax.Array | None = None  # [B] bool, rows with an entry; None for all


class Reader:
  """Reads committed entries into a KV cache; a component.

  Attributes:
    model: the language model or head.
    tail: number of entries that a draft reads at most.
    num_left: number of entries, at most `tail`, that a prefill and `catch_up`
      leave to the draft; at least 1, since an estimate at the first committed
      position needs the output of the last entry before it.
    ahead: entry `i` contains token `i + ahead`: 0 for a language model, 1 for
      the pairs of a head.
  """

  model: base.LanguageModel | base.FeatureHead | base.BlockHead
  tail: int
  num_left: ClassVar[int]
  ahead: ClassVar[int]

  def num_entries(self, context: base.Context) -> jax.Array:
    """Returns `[B]` how many entries the committed text has."""
    raise NotImplementedError

  def prefill(
    self, params: base.Params, context: base.Context, size: int
  ) -> base.Cache:
    """Reads the prompts, all but the last `num_left` entries.

    Args:
      params: of the model or head.
      context: the prompts.
      size: number of slots of the KV cache.
    """
    raise NotImplementedError

  def read(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    num: int,
  ) -> ReadEntries:
    """Reads the next `num` entries after the cache.

    Where there are fewer, the results are undefined.
    """
    raise NotImplementedError

  def read_tail(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    depth: int,
    may_stop_early: bool,
  ) -> Tail:
    """Reads the entries that the cache lacks, at most `tail`.

    Args:
      params: of the model or head.
      cache: lacks `tail` entries at most in rows that draft.
      context: the committed text.
      depth: of the drafter's trees. After its own rounds, the cache lacks
        `depth + 1` entries at most.
      may_stop_early: whether a draft may end after the tail, so that a shorter
        tail saves time.
    """
    raise NotImplementedError

  def tail_path(self, lags: jax.Array, index: np.ndarray) -> jax.Array:
    """Returns where in `Tail.pending` the entries of the tail are.

    Args:
      lags: `[B, 1]` number of entries of the tail.
      index: `[1, P]` counts them; undefined from `lags` on.
    """
    raise NotImplementedError

  def read_nodes(
    self,
    params: base.Params,
    cache: base.Cache,
    tokens: jax.Array,
    parents: tree_drafting.Prediction,
    pending: base.PendingKV,
    positions: jax.Array,
    mask: jax.Array,
  ) -> tuple[Any, base.PendingKV]:
    """Reads nodes of a tree.

    Args:
      params: of the model or head.
      cache: of the committed entries.
      tokens: `[B, W]`.
      parents: the predictions that they were drawn from, `[B, W, ...]`.
      pending: uncommitted KV of what was read before them.
      positions: `[B, W]` their indices as entries.
      mask: `[B, W, M + W]` which uncommitted entries they attend to.

    Returns:
      The argument of `predict`, and the uncommitted KV.
    """
    raise NotImplementedError

  def predict(
    self,
    params: base.Params,
    outputs: Any,
    sampling: sampling_lib.Sampling,
  ) -> tree_drafting.Prediction:
    """Returns the predictions after entries or nodes `[B, W, ...]`."""
    raise NotImplementedError


class LaggingDrafter(base.Drafter):
  """Catches up, commits and estimates with a reader; its state is the KV cache.

  A subclass implements `reader` and `draft`, whose proposal is the uncommitted
  KV of the tail, followed by that of the first `num_levels` levels of the tree.

  Attributes:
    chunk: number of entries per call when the drafter catches up.
    sampling: how tokens are drawn.
  """

  chunk: ClassVar[int] = 16
  sampling: sampling_lib.Sampling

  can_catch_up = True
  can_estimate = True
  can_roll_back = True

  @functools.cached_property
  def reader(self) -> Reader:
    """Reads the committed text."""
    raise NotImplementedError

  @functools.cached_property
  def estimating_reader(self) -> Reader:
    """Reads what is compared with the target, with the cache of `reader`."""
    return self.reader

  @functools.cached_property
  def num_levels(self) -> int:
    """Number of levels whose accepted nodes are committed as they were read."""
    return 0

  @functools.cached_property
  def num_chosen(self) -> int:
    """Number of likeliest tokens drafted after the root; 0 if it is drawn."""
    return 0

  @functools.cached_property
  def slot(self) -> base.StateSlot:
    """One state per reader, which trees of several shapes can share."""
    sampling = components.identity(self.sampling)
    estimate = sampling, self.num_chosen, self.estimating_reader
    return base.StateSlot(self.reader, self.num_levels, estimate)

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """The head's; a language model has none."""
    model = self.reader.model
    return () if isinstance(model, base.LanguageModel) else model.taps

  @functools.cached_property
  def feature_size(self) -> int | None:
    """The head's; None with a language model."""
    model = self.reader.model
    return None if isinstance(model, base.LanguageModel) else model.feature_size

  @functools.cached_property
  def vocab_size(self) -> int:
    """That of the model or head."""
    return self.reader.model.vocab_size

  @functools.cached_property
  def max_length(self) -> int | None:
    """That of the model or head."""
    return self.reader.model.max_length

  def init(
    self, params: base.Params, context: base.Context, max_length: int
  ) -> base.Cache:
    """Prefills the KV cache; see `Drafter.init`."""
    # Room for the widest write past the longest row.
    widest = max(self.chunk, self.reader.tail + self.topology.depth)
    size = allocation.round_up_slots(max_length + widest)
    return self.reader.prefill(params, context, size)

  def commit(
    self,
    state: base.Cache,
    proposal: base.PendingKV,
    context: base.Context,
    outcome: base.Outcome,
    rows: jax.Array,
  ) -> base.Cache:
    """Commits the tail, and the accepted nodes of the first `num_levels`."""
    reader, num_levels = self.reader, self.num_levels
    lag = jnp.minimum(self._lag(state, context), reader.tail)[:, None]
    index = np.arange(reader.tail + num_levels)[None]
    path = reader.tail_path(lag, index)
    if num_levels:
      nodes = jnp.pad(outcome.path, ((0, 0), (0, reader.tail)))
      node = jnp.take_along_axis(nodes, jnp.maximum(index - lag, 0), axis=1)
      path = jnp.where(index < lag, path, node + reader.tail)
    num = lag[:, 0] + jnp.minimum(outcome.num_accepted, num_levels)
    num = jnp.where(rows, num, 0)
    if not num_levels:
      # The length of the tail is known before the KV cache is read.
      num = ordering.after(num, outcome.num_accepted)
    return reader.model.commit(state, proposal, path, num)

  def catch_up(
    self,
    params: base.Params,
    state: base.Cache,
    context: base.Context,
    rows: jax.Array,
  ) -> tuple[base.Cache, jax.Array]:
    """Reads what a draft would not; see `Drafter.catch_up`."""
    num_entries = self.reader.num_entries(context)
    is_behind = lambda cache: (
      rows & (self._lag(cache, context) > self.reader.tail)
    )

    def read_chunk(cache):
      end = jnp.where(is_behind(cache), num_entries - self.reader.num_left, 0)
      current, _ = _read_chunk(
        self.reader, params, cache, context, end, self.chunk
      )
      return current

    current = jax.lax.while_loop(
      lambda cache: is_behind(cache).any(), read_chunk, state
    )
    return current, current.lengths - state.lengths

  def estimate(
    self,
    params: base.Params,
    state: base.Cache,
    context: base.Context,
    rows: jax.Array,
    target: base.TargetProbs,
  ) -> tuple[base.Cache, jax.Array, base.Probs]:
    """Reads all but the last entry, and compares with the target."""
    reader = self.estimating_reader
    end = jnp.where(rows, reader.num_entries(context) - 1, 0)
    # No more than the committed positions and the one before are compared.
    chunk = min(self.chunk, target.probs.processed.shape[1] + 1)

    def compare_chunk(carry):
      cache, acceptance = carry
      current, outputs = _read_chunk(
        reader, params, cache, context, end, chunk, uses_outputs=True
      )
      prediction = reader.predict(params, outputs, self.sampling)
      probs = acceptance_estimate.draft_probs(
        prediction.logits, self.sampling, self.num_chosen
      )
      start = cache.lengths + reader.ahead
      return current, acceptance_estimate.fill_in(
        acceptance, probs, start, target
      )

    current, acceptance = jax.lax.while_loop(
      lambda carry: (end > carry[0].lengths).any(),
      compare_chunk,
      (state, acceptance_estimate.zeros(target)),
    )
    return current, current.lengths - state.lengths, acceptance

  def rollback(self, state: base.Cache, lengths: jax.Array) -> base.Cache:
    """Forgets entries past `lengths`; see `Drafter.rollback`."""
    return self.reader.model.rollback(state, lengths)

  def _lag(self, cache: base.Cache, context: base.Context) -> jax.Array:
    """Returns `[B]` how many committed entries the cache lacks."""
    return self.reader.num_entries(context) - cache.lengths


def _read_chunk(
  reader: Reader,
  params: base.Params,
  cache: base.Cache,
  context: base.Context,
  end: jax.Array,
  chunk: int,
  uses_outputs: bool = False,
) -> tuple[base.Cache, Any]:
  """Reads entries after the cache; commits those before `end` `[B]`."""
  entries = reader.read(params, cache, context, chunk)
  num = jnp.clip(end - cache.lengths, 0, chunk)
  num = ordering.after(num, entries.barrier)
  if uses_outputs:  # They may read the KV cache where the entries do not.
    num = ordering.after(num, jax.tree.leaves(entries.outputs)[0])
  path = jnp.broadcast_to(np.arange(chunk), (len(end), chunk))
  cache = reader.model.commit(cache, entries.pending, path, num)
  return cache, entries.outputs
