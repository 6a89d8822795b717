"""A drafter that reads a row when it is first played, and not before.

Where a bandit finds that plain decoding is faster, no prompt is read in vain.
"""

import functools
from typing import NamedTuple

import flax.struct
import jax
import jax.numpy as jnp

from specjax import base
from specjax import buckets
from specjax import padding
from specjax import registry
from specjax import row_slices


@registry.component
def deferred(drafter: base.Drafter) -> base.Drafter:
  """Builds a drafter that reads a prompt once a row plays it.

  It reads by `init`, one row after the other, what a row has then; later it
  catches up as the drafter inside does. How likely its drafts are accepted it
  does not estimate: that would need to read every row.

  Args:
    drafter: what drafts; of a small model or of a head on features, by
      themselves or in a component that is made of some.

  Raises:
    ValueError: the drafter reads no prompts.
  """
  if drafter.catch_up is None:
    raise ValueError(
      'drafter must be one that reads prompts, of a model or a head on '
      'features, got one that does not.'
    )
  plan = _Plan(drafter, drafter.catch_up)
  slot = drafter.slot
  return drafter._replace(
    init=functools.partial(_init, plan),
    draft=functools.partial(_draft, plan),
    commit=functools.partial(_commit, plan),
    # A row may be new, although nobody else has played.
    catch_up=base.CatchUp(functools.partial(_catch_up, plan), every_round=True),
    estimate=None,
    slot=slot and slot._replace(name=(slot.name, 'deferred')),
  )


class _Plan(NamedTuple):
  """What reads, and how it catches up."""

  inner: base.Drafter
  catch_up: base.CatchUp


@flax.struct.dataclass
class _Reading:
  """What the drafter has read."""

  inner: base.DraftState  # of the drafter inside; of no use in rows that wait
  waiting: jax.Array  # [B] int32, length of a prompt that is not read yet, or 0
  max_length: int = flax.struct.field(pytree_node=False)  # as of `init`


def _init(plan: _Plan, params, context, max_length):
  """Reads nothing."""
  shapes = jax.eval_shape(
    lambda: plan.inner.init(params, context.first(1), max_length)
  )
  return _Reading(padding.zeros(shapes), context.lengths, max_length)


def _draft(plan: _Plan, keys, params, state, context):
  return plan.inner.draft(keys, params, state.inner, context)


def _commit(plan: _Plan, state, proposal, context, outcome, rows):
  inner = plan.inner.commit(state.inner, proposal, context, outcome, rows)
  return state.replace(inner=inner)


def _catch_up(plan: _Plan, params, state, context, rows):
  new = rows & (state.waiting > 0)
  inner = _begin(plan, params, state, context, new)
  # Of these, a drafter that had read the prompt would lack as many.
  num_read = jnp.where(new, context.lengths - state.waiting, 0)
  inner, num_more = plan.catch_up.read(params, inner, context, rows)
  waiting = jnp.where(new, 0, state.waiting)
  return state.replace(inner=inner, waiting=waiting), num_read + num_more


def _begin(plan: _Plan, params, state, context, new):
  """Reads whole rows where `new`, one after the other, each of its own width.

  Together, all rows would be read for each that is new in a queue.
  """
  widths = buckets.bucket_widths(context.tokens.shape[1])

  def read_one(carry):
    inner, left = carry
    row = jnp.argmax(left)
    own = row_slices.take_row(context, row)
    read = lambda width: plan.inner.init(
      params, own.first(width), state.max_length
    )
    one = buckets.switch_bucket(widths, own.lengths[0], read)
    return row_slices.replace_row(inner, one, row), left.at[row].set(False)

  read = lambda inner: jax.lax.while_loop(
    lambda carry: carry[1].any(), read_one, (inner, new)
  )[0]
  # What hangs on no row is computed before a loop, also before one that ends at
  # once: a branch keeps it from every round.
  return jax.lax.cond(new.any(), read, lambda inner: inner, state.inner)
