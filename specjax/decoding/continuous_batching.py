"""Continuous batching: waiting prompts replace finished rows inside the loop.

Rows of a batch finish at different times. Between two rounds, a finished row
writes its result out, and the next prompt of a queue on the device is prefilled
in its place. It is prefilled as a state of one row, which then overwrites the
finished row: each prompt gets the tokens that it would get alone. After the
last queue, the remaining rows continue in narrower batches.

      row 0  | prompt 0 ........ | prompt 3 ..... | prompt 4 ...
      row 1  | prompt 1 ... | prompt 2 ................. | idle
                            ^ rounds -->
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from collections.abc import Sized
import dataclasses
import functools
import itertools
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import buckets
from specjax import meshes
from specjax import row_slices
from specjax.decoding import prefill as prefill_lib
from specjax.decoding import results as results_lib
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib

_T = TypeVar('_T')
# How many times narrower the next batch is: few widths, since each is compiled.
_NARROWING = 4


# On the device.


class Batch(NamedTuple):
  """Rows, and the prompt that each of them decodes."""

  state: state_lib.DecodeState
  prompt_index: (
    jax.Array
  )  # [B] int32, row in `FinishedRows`; -1 for an idle row


class _Carry(NamedTuple):
  """The carry of the loop over a queue."""

  batch: Batch
  next: jax.Array  # [] int32, index of the next prompt in the queue
  finished: results_lib.FinishedRows


@jax.jit
def idle_batch(
  setup: prefill_lib.Setup,
  params: state_lib.Params,
  ids: jax.Array,
  seed: jax.Array,
  stop_tokens: jax.Array,
  bandit_state: base.BanditState,
) -> Batch:
  """Returns a batch whose rows are all idle.

  Args:
    setup: of the decoder.
    params: of all models.
    ids: `[B]` uint32; the key of a batch's bandit comes from the first.
    seed: `[]` uint32; all randomness comes from it and from request ids.
    stop_tokens: `[E]` tokens that end a row.
    bandit_state: initial state of the batch's bandit, or with a leading axis of
      rows.
  """
  tokens = jnp.zeros((len(ids), 1), jnp.int32)
  lengths = jnp.ones(len(ids), jnp.int32)
  state = prefill_lib.prefill(
    dataclasses.replace(setup, warm_start=0),  # There is nothing to learn from.
    params,
    prefill_lib.PromptBatch(tokens, lengths, limits=lengths, ids=ids),
    seed,
    stop_tokens,
    bandit_state,
  )
  return Batch(state, jnp.full(len(ids), -1, jnp.int32))


@functools.partial(jax.jit, donate_argnames='batch')
def decode_queue(
  setup: prefill_lib.Setup,
  params: state_lib.Params,
  batch: Batch,
  queue: prefill_lib.PromptBatch,
  num_prompts: jax.Array,
  max_idle: jax.Array,
  seed: jax.Array,
  bandit_state: base.BanditState | None = None,
) -> tuple[Batch, results_lib.FinishedRows]:
  """Plays rounds until a queue is empty and rows are idle.

  Args:
    setup: of the decoder.
    params: of all models.
    batch: from `idle_batch`, or from here with the queue before; donated.
    queue: prompts `[Q, T]`.
    num_prompts: `[]` int32 number of prompts; rows past them are undefined.
    max_idle: `[]` int32 number of idle rows that ends the loop: 1 if another
      queue follows.
    seed: `[]` uint32; all randomness comes from it and from request ids.
    bandit_state: initial state of each prompt's bandit, with an axis of one
      row; None for a bandit of the batch, which continues.

  Returns:
    The batch, and its finished rows: of the queue's prompt `i` in row `i`, and
    of the prompt that row `b` had before in row `Q + b`. Those that
    `Batch.prompt_index` names are not finished yet.
  """
  size, num_rows = len(queue.lengths), len(batch.prompt_index)
  rows = size + np.arange(num_rows, dtype=np.int32)
  batch = batch._replace(
    prompt_index=jnp.where(batch.prompt_index < 0, -1, rows)
  )
  start = _Carry(batch, jnp.int32(0), _empty_rows(batch.state, size + num_rows))
  prefill_one = functools.partial(
    _prefill_one, setup, params, queue, seed, bandit_state
  )

  def step(carry: _Carry) -> _Carry:
    carry = _write_finished(carry)
    carry = _fill_idle_rows(setup.round_fn, prefill_one, num_prompts, carry)
    return carry._replace(batch=_step(setup.round_fn, params, carry.batch))

  end = jax.lax.while_loop(
    lambda carry: (
      (carry.next < num_prompts) | _has_fewer_idle(carry.batch, max_idle)
    ),
    step,
    start,
  )
  end = _write_finished(end)
  return end.batch, end.finished


@functools.partial(jax.jit, donate_argnames='batch')
def drain(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  batch: Batch,
  max_idle: jax.Array,
) -> tuple[Batch, results_lib.FinishedRows]:
  """Plays rounds without a queue, until enough rows are idle.

  Args:
    round_fn: the round.
    params: of all models.
    batch: from `narrow`; donated.
    max_idle: `[]` int32 number of idle rows that ends the loop.

  Returns:
    The batch, and its finished rows: of row `b` in row `b`. Those that
    `Batch.prompt_index` names are not finished yet.
  """
  rows = np.arange(len(batch.prompt_index), dtype=np.int32)
  batch = jax.lax.while_loop(
    lambda batch: _has_fewer_idle(batch, max_idle),
    lambda batch: _step(round_fn, params, batch),
    batch,
  )
  prompt_index = jnp.where(batch.state.done, -1, rows)
  finished = results_lib.finished_rows(batch.state)
  return batch._replace(prompt_index=prompt_index), finished


@jax.jit
def narrow(round_fn: round_lib.Round, batch: Batch, rows: jax.Array) -> Batch:
  """Returns a batch of the rows `[N]` only."""
  shared = _shared_fields(round_fn, batch.state)
  by_row = batch._replace(state=batch.state.replace(**dict.fromkeys(shared)))
  by_row = jax.tree.map(lambda leaf: leaf[rows], by_row)
  return by_row._replace(state=by_row.state.replace(**shared))


def batch_widths(num_rows: int, multiple: int) -> list[int]:
  """Returns the numbers of rows that batches may have, the largest first.

  Args:
    num_rows: the largest.
    multiple: all others are multiples of it, since rows are divided among as
      many devices.
  """
  widths = [num_rows]
  while (width := widths[-1] // _NARROWING // multiple * multiple) > 0:
    widths.append(width)
  return widths


def _has_fewer_idle(batch: Batch, max_idle: jax.Array) -> jax.Array:
  """Returns whether fewer than `max_idle` rows are idle, `[]` bool."""
  return batch.state.done.sum() < max_idle


def _step(
  round_fn: round_lib.Round, params: state_lib.Params, batch: Batch
) -> Batch:
  """Plays one round."""
  state, _ = round_fn(params, batch.state)
  return batch._replace(state=state)


def _empty_rows(
  state: state_lib.DecodeState, num: int
) -> results_lib.FinishedRows:
  """Returns room for as many finished rows."""
  return jax.tree.map(
    lambda leaf: jnp.zeros((num, *leaf.shape[1:]), leaf.dtype),
    results_lib.finished_rows(state),
  )


def _write_finished(carry: _Carry) -> _Carry:
  """Writes results of rows that have finished, which are idle from then on."""
  state, prompt_index = carry.batch
  finishes = state.done & (prompt_index >= 0)
  # Nothing is written past the last row.
  row = jnp.where(finishes, prompt_index, jnp.iinfo('int32').max)
  finished = jax.tree.map(
    lambda buffer, rows: buffer.at[row].set(rows, mode='drop'),
    carry.finished,
    results_lib.finished_rows(state),
  )
  batch = Batch(state, jnp.where(state.done, -1, prompt_index))
  return carry._replace(batch=batch, finished=finished)


def _fill_idle_rows(
  round_fn: round_lib.Round,
  prefill_one: Callable[
    [jax.Array, state_lib.DecodeState], state_lib.DecodeState
  ],
  num_prompts: jax.Array,
  carry: _Carry,
) -> _Carry:
  """Prefills the next prompts in idle rows, one after the other."""

  def can_fill(carry: _Carry) -> jax.Array:
    return (carry.batch.prompt_index < 0).any() & (carry.next < num_prompts)

  def fill(carry: _Carry) -> _Carry:
    state, prompt_index = carry.batch
    row = jnp.argmax(prompt_index < 0).astype(jnp.int32)
    state = _put_row(round_fn, state, prefill_one(carry.next, state), row)
    batch = Batch(state, prompt_index.at[row].set(carry.next))
    return carry._replace(batch=batch, next=carry.next + 1)

  return jax.lax.while_loop(can_fill, fill, carry)


def _prefill_one(
  setup: prefill_lib.Setup,
  params: state_lib.Params,
  queue: prefill_lib.PromptBatch,
  seed: jax.Array,
  bandit_state: base.BanditState | None,
  index: jax.Array,
  state: state_lib.DecodeState,
) -> state_lib.DecodeState:
  """Returns the state of one prompt, by the narrowest program that holds it."""
  prompt = row_slices.take_row(queue, index)
  bandit = bandit_state if setup.round_fn.per_row else state.bandit

  def prefill(width: int) -> state_lib.DecodeState:
    cut = prompt._replace(tokens=prompt.tokens[:, :width])
    return prefill_lib.prefill(
      setup, params, cut, seed, state.stop_tokens, bandit
    )

  widths = buckets.bucket_widths(prompt.tokens.shape[1])
  return buckets.switch_bucket(widths, prompt.lengths[0], prefill)


def _put_row(
  round_fn: round_lib.Round,
  state: state_lib.DecodeState,
  row_state: state_lib.DecodeState,
  row: jax.Array,
) -> state_lib.DecodeState:
  """Overwrites a row with the state of one row."""
  shared = _shared_fields(round_fn, state)
  if not round_fn.per_row:
    # A warm start has updated the bandit of the batch.
    shared |= {'bandit': row_state.bandit}
  omitted = dict.fromkeys(shared)
  rows = row_slices.replace_row(
    state.replace(**omitted), row_state.replace(**omitted), row
  )
  return rows.replace(**shared)


def _shared_fields(
  round_fn: round_lib.Round, state: state_lib.DecodeState
) -> dict[str, Any]:
  """Returns the fields of a state that have no axis of rows."""
  names = ['stop_tokens', 'num_rounds']
  if not round_fn.per_row:
    names += ['bandit', 'bandit_key']
  return {name: getattr(state, name) for name in names}


# On the host.


def request_queues(
  target: base.LanguageModel,
  max_length: int,
  prompts: Iterable[Sequence[int]],
  max_new_tokens: int | Iterable[int],
  request_ids: Iterable[int] | None,
  queue_size: int,
) -> Iterator[prefill_lib.Requests]:
  """Yields prompts, queue by queue; each is checked when its queue is taken.

  Args:
    target: the model to sample from.
    max_length: longest row in tokens, prompt included.
    prompts: token ids of each prompt.
    max_new_tokens: how many tokens to emit at most: one number, or one for
      each prompt.
    request_ids: a number for each prompt; 0, 1, ... if None.
    queue_size: prompts of a queue; the last one may have fewer.

  Raises:
    ValueError: an argument has the wrong type or shape, or is out of range; or
      there is no prompt at all.
  """
  check = functools.partial(prefill_lib.check_prompts, target, max_length)
  prefill_lib.check_is_encoded('prompts', prompts)
  waiting = _iterator(prompts, ())
  num_new = _iterator(max_new_tokens, itertools.repeat(max_new_tokens))
  prefill_lib.check_request_ids(request_ids)
  ids = _iterator(request_ids, itertools.count())
  num_taken = 0
  while queue := list(itertools.islice(waiting, queue_size)):
    num = len(queue)
    yield check(
      queue,
      list(itertools.islice(num_new, num)),
      list(itertools.islice(ids, num)),
      first_number=num_taken,
    )
    num_taken += num
  if not num_taken:
    raise ValueError('prompts must hold at least one prompt, got none.')
  _check_no_more('max_new_tokens', max_new_tokens, num_taken)
  _check_no_more('request_ids', request_ids, num_taken)


def _iterator(values: Any, default: Iterable[Any]) -> Iterator[Any]:
  """Returns an iterator of some values, or of a default if there are none."""
  return iter(values if prefill_lib.is_several(values) else default)


def _check_no_more(name: str, values: Any, num: int) -> None:
  """Raises `ValueError` for a sequence with more values than prompts."""
  if (
    prefill_lib.is_several(values)
    and isinstance(values, Sized)
    and len(values) > num
  ):
    raise ValueError(
      f'{name} must be one for each of {num} prompts, got {len(values)}.'
    )


class _Prompt(NamedTuple):
  """A prompt that is being decoded."""

  number: int
  length: int


@dataclasses.dataclass
class _Progress:
  """Prompts that rows are decoding, and results that wait for earlier ones."""

  prompt_of_row: list[_Prompt | None]
  waiting: dict[int, results_lib.Result] = dataclasses.field(
    default_factory=dict
  )
  num_yielded: int = 0


def decode_queues(
  setup: prefill_lib.Setup,
  params: state_lib.Params,
  batch: Batch,
  queues: Iterable[prefill_lib.Requests],
  *,
  queue_size: int,
  seed: np.uint32,
  bandit_state: base.BanditState | None,
) -> Iterator[results_lib.Result]:
  """Yields the results of all prompts, in their order.

  Args:
    setup: of the decoder.
    params: of all models.
    batch: from `idle_batch`; donated.
    queues: at least one.
    queue_size: prompts of a queue, at most.
    seed: all randomness comes from it and from request ids.
    bandit_state: initial state of each prompt's bandit, with an axis of one
      row; None for a bandit of the batch, which continues.
  """
  width, num_rows, num_taken = buckets.MIN_WIDTH, len(batch.prompt_index), 0
  widths = batch_widths(num_rows, meshes.num_parts(params))
  progress = _Progress([None] * num_rows)
  for requests, is_last in _with_last(queues):
    lengths = [len(prompt) for prompt in requests.prompts]
    new = [_Prompt(num_taken + i, length) for i, length in enumerate(lengths)]
    num_taken += len(new)
    width = max(width, prefill_lib.bucket_width(max(lengths), setup.max_length))
    max_idle = num_rows - _next_width(widths, num_rows) if is_last else 1
    batch, finished = decode_queue(
      setup,
      params,
      batch,
      prefill_lib.pad(requests, width, queue_size),
      np.int32(len(new)),
      np.int32(max_idle),
      seed,
      bandit_state,
    )
    padded = new + [None] * (queue_size - len(new))
    prompts = padded + progress.prompt_of_row
    yield from _take_results(setup, progress, batch, finished, prompts)
  yield from _drain_all(setup, params, progress, batch, widths)


def _drain_all(
  setup: prefill_lib.Setup,
  params: state_lib.Params,
  progress: _Progress,
  batch: Batch,
  widths: Sequence[int],
) -> Iterator[results_lib.Result]:
  """Yields the results of the remaining rows, in ever narrower batches."""
  while any(progress.prompt_of_row):
    is_live = [prompt is not None for prompt in progress.prompt_of_row]
    num_rows = min(width for width in widths if width >= sum(is_live))
    rows = np.argsort(np.logical_not(is_live), kind='stable')[:num_rows]
    batch = narrow(setup.round_fn, batch, rows)
    prompts = [progress.prompt_of_row[row] for row in rows]
    max_idle = np.int32(num_rows - _next_width(widths, num_rows))
    batch, finished = drain(setup.round_fn, params, batch, max_idle)
    yield from _take_results(setup, progress, batch, finished, prompts)


def _take_results(
  setup: prefill_lib.Setup,
  progress: _Progress,
  batch: Batch,
  finished: results_lib.FinishedRows,
  prompts: Sequence[_Prompt | None],
) -> Iterator[results_lib.Result]:
  """Yields the results that no earlier prompt holds up.

  Args:
    setup: of the decoder.
    progress: updated.
    batch: rows that are still decoding.
    finished: rows on the device.
    prompts: the prompt of each row of `finished`.
  """
  rows, prompt_index = meshes.fetch((finished, batch.prompt_index))
  results_lib.check_flags(
    rows, [prompt and prompt.number for prompt in prompts]
  )
  progress.prompt_of_row = [
    prompts[i] if i >= 0 else None for i in prompt_index
  ]
  for i, prompt in enumerate(prompts):
    if prompt is not None and prompt not in progress.prompt_of_row:
      progress.waiting[prompt.number] = results_lib.row_result(
        setup.round_fn.arms, rows, i, prompt.length
      )
  while progress.num_yielded in progress.waiting:
    yield progress.waiting.pop(progress.num_yielded)
    progress.num_yielded += 1


def _next_width(widths: Sequence[int], num_rows: int) -> int:
  """Returns the next smaller number of rows, or 0."""
  return max((width for width in widths if width < num_rows), default=0)


def _with_last(iterable: Iterable[_T]) -> Iterator[tuple[_T, bool]]:
  """Yields each item, and whether it is the last."""
  iterator = iter(iterable)
  for item in iterator:
    for following in iterator:
      yield item, False
      item = following
    yield item, True
