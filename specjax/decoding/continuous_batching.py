"""A queue of prompts in one loop: who is done makes room for who waits.

The rows of a batch end at different times. Here a row that is done writes its
result out, and the next prompt of the queue is read in its place, alone,
between two rounds. A row of a state is a value like any other: what is read is
a state of one row, which is written over what was there. Where nobody waits any
more, the rows that are left go on in narrower batches.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import buckets
from specjax import row_slices
from specjax.decoding import reading
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib

# Batches are each so many times narrower: few, since each is compiled.
_STEP = 4


class Finished(NamedTuple):
  """What rows had when they were done, in the place of each prompt."""

  tokens: jax.Array  # [R, S] int32
  lengths: jax.Array  # [R] int32
  counters: state_lib.Counters  # [R, ...]
  flags: base.Flags  # [R]


class Batch(NamedTuple):
  """Rows at work, and whose they are."""

  state: state_lib.DecodeState
  places: jax.Array  # [B] int32, of its prompt in `Finished`; -1 for none


class _Carry(NamedTuple):
  """What goes from round to round."""

  batch: Batch
  next: jax.Array  # [] int32, the next prompt of the queue
  finished: Finished


@functools.partial(jax.jit, static_argnames='setup')
def begin(
  setup: reading.Setup,
  params: state_lib.Params,
  ids: jax.Array,
  seed: jax.Array,
  stop_tokens: jax.Array,
  bandit_state: base.BanditState,
) -> Batch:
  """Returns rows that have nothing to do.

  Args:
    setup: of the decoder.
    params: of all models.
    ids: `[B]` uint32, of which the first is what a bandit of the batch goes by.
    seed: as of `reading.read`.
    stop_tokens: likewise.
    bandit_state: likewise.
  """
  nothing = jnp.zeros((len(ids), 1), jnp.int32)
  one = jnp.ones(len(ids), jnp.int32)
  state = reading.read(
    setup._replace(warm_start=None),  # There is nothing to learn from.
    params,
    reading.Prompts(nothing, one, one, ids),
    seed,
    stop_tokens,
    bandit_state,
  )
  return Batch(state, jnp.full(len(ids), -1, jnp.int32))


@functools.partial(jax.jit, static_argnames='setup', donate_argnames='batch')
def play(
  setup: reading.Setup,
  params: state_lib.Params,
  batch: Batch,
  queue: reading.Prompts,
  num: jax.Array,
  enough: jax.Array,
  seed: jax.Array,
  bandit_state: base.BanditState | None = None,
) -> tuple[Batch, Finished]:
  """Plays rounds until a queue is empty and rows are, in one `lax.while_loop`.

  Args:
    setup: of the decoder.
    params: of all models.
    batch: from `begin`, or from here with the queue before; donated.
    queue: prompts `[Q, T]`.
    num: `[]` int32 how many there are; those behind them are junk.
    enough: `[]` int32, of how many rows with nothing to do: 1 where another
      queue comes.
    seed: as of `reading.read`.
    bandit_state: what the bandit of each prompt begins with, with an axis of
      one row in front; None for a bandit of the batch, which goes on.

  Returns:
    The rows, and what was finished: of the queue's prompt `i` in place `i`, and
    of one that row `b` had before in place `Q + b`. `Batch.places` says which
    of them are not finished yet.
  """
  size, num_rows = len(queue.lengths), len(batch.places)
  rows = size + np.arange(num_rows, dtype=np.int32)
  batch = batch._replace(places=jnp.where(batch.places < 0, -1, rows))
  start = _Carry(batch, jnp.int32(0), _nothing(batch.state, size + num_rows))
  read = functools.partial(_read_one, setup, params, queue, seed, bandit_state)
  fill = functools.partial(_fill, setup.plan, read, num)
  goes_on = lambda carry: (carry.next < num) | _works(carry.batch, enough)

  def step(carry):
    carry = fill(_write_out(carry))
    return carry._replace(batch=_step(setup.plan, params, carry.batch))

  end = _write_out(jax.lax.while_loop(goes_on, step, start))
  return end.batch, end.finished


@functools.partial(jax.jit, static_argnames='plan', donate_argnames='batch')
def finish(
  plan: round_lib.Round,
  params: state_lib.Params,
  batch: Batch,
  enough: jax.Array,
) -> tuple[Batch, Finished]:
  """Plays rounds without a queue, until so many rows have nothing to do.

  Args:
    plan: the round.
    params: of all models.
    batch: from `narrow`; donated.
    enough: as of `play`.

  Returns:
    As `play`, for rows alone: of row `b` in place `b`.
  """
  rows = np.arange(len(batch.places), dtype=np.int32)
  batch = jax.lax.while_loop(
    lambda batch: _works(batch, enough),
    lambda batch: _step(plan, params, batch),
    batch,
  )
  places = jnp.where(batch.state.done, -1, rows)
  return batch._replace(places=places), of_rows(batch.state)


@functools.partial(jax.jit, static_argnames='plan')
def narrow(plan: round_lib.Round, batch: Batch, rows: jax.Array) -> Batch:
  """Returns a batch of some rows, `[N]` of them."""
  shared = _shared(plan, batch.state)
  own = batch._replace(state=batch.state.replace(**dict.fromkeys(shared)))
  own = jax.tree.map(lambda leaf: leaf[rows], own)
  return own._replace(state=own.state.replace(**shared))


def widths(num_rows: int, multiple: int) -> list[int]:
  """Returns the sizes of batches, the widest first.

  Args:
    num_rows: of the widest.
    multiple: of which each is one, as the others are divided among devices.
  """
  found = [num_rows]
  while (width := found[-1] // _STEP // multiple * multiple) > 0:
    found.append(width)
  return found


def _works(batch, enough):
  """Whether not so many rows have nothing to do."""
  return batch.state.done.sum() < enough


def _step(plan: round_lib.Round, params, batch):
  state, _ = plan(params, batch.state)
  return batch._replace(state=state)


def of_rows(state: state_lib.DecodeState) -> Finished:
  """Returns what is kept of rows."""
  return Finished(state.tokens, state.lengths, state.counters, state.flags)


def _nothing(state, num):
  """Room for the results of so many prompts."""
  return jax.tree.map(
    lambda leaf: jnp.zeros((num, *leaf.shape[1:]), leaf.dtype), of_rows(state)
  )


def _write_out(carry):
  """Rows that are done write their results in their places, and have none."""
  batch = carry.batch
  done = batch.state.done
  # Behind the last place, nothing is written.
  at = jnp.where(
    done & (batch.places >= 0), batch.places, jnp.iinfo('int32').max
  )
  finished = jax.tree.map(
    lambda whole, rows: whole.at[at].set(rows, mode='drop'),
    carry.finished,
    of_rows(batch.state),
  )
  places = jnp.where(done, -1, batch.places)
  return carry._replace(batch=batch._replace(places=places), finished=finished)


def _fill(plan: round_lib.Round, read, num, carry):
  """Rows without a prompt read the next ones, one after the other."""

  def waits(carry):
    return (carry.batch.places < 0).any() & (carry.next < num)

  def fill_one(carry):
    state, places = carry.batch
    row = jnp.argmax(places < 0).astype(jnp.int32)
    state = _put(plan, state, read(carry.next, state), row)
    batch = Batch(state, places.at[row].set(carry.next))
    return carry._replace(batch=batch, next=carry.next + 1)

  return jax.lax.while_loop(waits, fill_one, carry)


def _read_one(
  setup: reading.Setup, params, queue, seed, bandit_state, index, state
):
  """The state of one prompt of the queue, by the narrowest program it fits."""
  prompt = row_slices.take_row(queue, index)
  bandit = bandit_state if setup.plan.per_row else state.bandit

  def read(width):
    own = prompt._replace(tokens=prompt.tokens[:, :width])
    return reading.read(setup, params, own, seed, state.stop_tokens, bandit)

  widths = buckets.bucket_widths(prompt.tokens.shape[1])
  return buckets.switch_bucket(widths, prompt.lengths[0], read)


def _put(plan: round_lib.Round, state, one, row):
  """Writes the state of one row over a row."""
  shared = _shared(plan, state)
  if not plan.per_row:
    # What the bandit has learnt from the prompt is every row's.
    shared |= {'bandit': one.bandit}
  nothing = dict.fromkeys(shared)
  rows = row_slices.replace_row(
    state.replace(**nothing), one.replace(**nothing), row
  )
  return rows.replace(**shared)


def _shared(plan: round_lib.Round, state):
  """The fields of a state that have no axis of rows."""
  names = ['stop_tokens', 'num_rounds']
  if not plan.per_row:
    names += ['bandit', 'bandit_key']
  return {name: getattr(state, name) for name in names}
