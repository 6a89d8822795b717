"""The host's side of refilled rows: queues in, results out, in order."""

from collections.abc import Iterable
from collections.abc import Iterator
import dataclasses
from typing import Any
from typing import NamedTuple

import numpy as np

from specjax import buckets
from specjax import meshes
from specjax.decoding import reading
from specjax.decoding import refill
from specjax.decoding import requests
from specjax.decoding import results
from specjax.decoding import state as state_lib


class _Prompt(NamedTuple):
  """One of many."""

  number: int
  length: int


@dataclasses.dataclass
class _Work:
  """Prompts that rows are at, and results that wait for earlier ones."""

  in_rows: list[_Prompt | None]
  early: dict[int, results.Result] = dataclasses.field(default_factory=dict)
  num_yielded: int = 0


def play(
  setup: reading.Setup,
  params: state_lib.Params,
  batch: refill.Batch,
  queues: Iterable[requests.Requests],
  size: int,
  seed: np.uint32,
  bandit_state: Any,
) -> Iterator[results.Result]:
  """Yields results, queue by queue; those that are early wait for others.

  Args:
    setup: of the decoder.
    params: of all models.
    batch: from `refill.begin`; donated.
    queues: at least one.
    size: of each queue, at most.
    seed: as of `refill.play`.
    bandit_state: likewise.
  """
  max_length, width = setup.max_length, buckets.MIN_WIDTH
  num_rows, num_read = len(batch.places), 0
  widths = refill.widths(num_rows, meshes.num_parts(params))
  work = _Work([None] * num_rows)
  for asked, is_last in _with_last(queues):
    prompts = asked.prompts
    new = [_Prompt(num_read + i, len(each)) for i, each in enumerate(prompts)]
    num_read += len(prompts)
    longest = max(map(len, prompts))
    width = max(width, reading.width(longest, max_length))
    batch, finished = refill.play(
      setup,
      params,
      batch,
      reading.padded(asked, width, size),
      np.int32(len(prompts)),
      np.int32(num_rows - _next(widths, num_rows) if is_last else 1),
      seed,
      bandit_state,
    )
    yield from _take(
      setup.plan,
      work,
      batch,
      finished,
      new + [None] * (size - len(new)) + work.in_rows,
    )
  yield from _finish(setup.plan, params, work, batch, widths)


def _finish(plan, params, work, batch, widths):
  """Yields what is left, of batches that become narrower."""
  while any(work.in_rows):
    live = [bool(each) for each in work.in_rows]
    num_rows = min(each for each in widths if each >= sum(live))
    rows = np.argsort(np.logical_not(live), kind='stable')[:num_rows]
    batch = refill.narrow(plan, batch, rows)
    places = [work.in_rows[row] for row in rows]
    enough = np.int32(num_rows - _next(widths, num_rows))
    batch, finished = refill.finish(plan, params, batch, enough)
    yield from _take(plan, work, batch, finished, places)


def _take(plan, work, batch, finished, places):
  """Yields results whose turn it is; `places` has the prompt of each row."""
  rows, at = meshes.fetch((finished, batch.places))
  results.check(rows, [each and each.number for each in places])
  work.in_rows = [places[i] if i >= 0 else None for i in at]
  for i, each in enumerate(places):
    if each and each not in work.in_rows:
      work.early[each.number] = results.of_row(plan.arms, rows, i, each.length)
  while work.num_yielded in work.early:
    yield work.early.pop(work.num_yielded)
    work.num_yielded += 1


def _next(widths, num_rows):
  """The next narrower batch, or none at all."""
  return max((each for each in widths if each < num_rows), default=0)


def _with_last(iterator):
  """Yields each, and whether it is the last."""
  each = next(iterator, None)
  while each is not None:
    after = next(iterator, None)
    yield each, after is None
    each = after
