"""Measures the cost of each arm on this device, at one batch size.

The reward `Throughput` and the bandit `Goodput` are computed from such a table:

    costs = specjax.measure_costs(decoder, prompts)
    goodput = specjax.bandits.Goodput(
      len(arms),
      costs.round_seconds,
      costs.depths,
      costs.kinds,
      prefill_costs=costs.prefill_seconds_per_token(64),
    )
    decoder = specjax.Decoder(target, params, arms, bandit=goodput)
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import dataclasses
import functools
import itertools
import time
from typing import Any
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import trees
from specjax.decoding import decoder as decoder_lib
from specjax.decoding import drivers
from specjax.decoding import prefill as prefill_lib
from specjax.decoding import round as round_lib
from specjax.decoding import state as state_lib

_T = TypeVar('_T')
# Prepares a call, which is not timed, and returns the call to be timed.
Prepare = Callable[[], Callable[[], Any]]
# Prefills that are timed together: one takes as little as the host's overhead.
_NUM_PREFILLS = 8


# Cost tables.


@dataclasses.dataclass(frozen=True)
class CostTable:
  """Measured costs of `A` arms at one batch size.

  Attributes:
    batch_size: number of rows.
    round_seconds: `[A]` seconds of a round of all rows, in a program that has
      all arms.
    catch_up_seconds: `[A]` seconds for each token that an arm's drafter reads
      when it catches up, in all rows at once; 0 if it reads none.
    prefill_seconds: `[A]` seconds in which an arm's drafter prefills one prompt
      of median length, without the target's prefill; 0 if it reads none.
    depths: `[A]` depth of each arm's trees.
    kinds: `[A]` numbers from 0, equal for arms that share how likely each level
      of a tree is accepted. See `level_kinds`.
  """

  batch_size: int
  round_seconds: tuple[float, ...]
  catch_up_seconds: tuple[float, ...]
  prefill_seconds: tuple[float, ...]
  depths: tuple[int, ...]
  kinds: tuple[int, ...]

  def prefill_seconds_per_token(self, num_tokens: float) -> tuple[float, ...]:
    """Returns `[A]` seconds of prefill for each token that a row emits.

    In continuous batching, each row needs the prefill of a prompt for every
    answer.

    Args:
      num_tokens: mean number of tokens of an answer.
    """
    share = self.batch_size / num_tokens
    return tuple(seconds * share for seconds in self.prefill_seconds)


def measure_costs(
  decoder: decoder_lib.Decoder,
  prompts: Sequence[Sequence[int]],
  *,
  batch_size: int | None = None,
  num_rounds: int = 32,
  repeats: int = 5,
  progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> CostTable:
  """Measures what each arm of a decoder costs on this device.

  Arms are timed in one program and interleaved, so that a drift of the
  machine's speed affects all alike; medians are taken over repeats. Stop tokens
  end no row, but a row that reaches the decoder's `max_length` becomes idle.

  Args:
    decoder: its bandit does not matter.
    prompts: token ids of typical prompts, at least one.
    batch_size: number of rows; by default, of prompts. Prompts are repeated to
      fill a batch.
    num_rounds: rounds that are timed together, after prefill.
    repeats: how often everything is timed.
    progress: wraps the repeats, such as `tqdm.tqdm`.

  Raises:
    ValueError: a number is out of range, there is no prompt, or a prompt does
      not fit.
  """
  if not len(prompts):
    raise ValueError('prompts must hold at least one prompt, got none.')
  longest = max(map(len, prompts))
  if longest >= decoder.max_length:
    raise ValueError(
      f'prompts must be shorter than max_length={decoder.max_length}, got one '
      f'of {longest} tokens.'
    )
  batch_size = len(prompts) if batch_size is None else batch_size
  checks.check_integers('batch_size', batch_size, 1)
  checks.check_integers('num_rounds', num_rounds, 1)
  checks.check_integers('repeats', repeats, 1)
  decoder = _with_fixed_arm(decoder)
  round_fn = decoder.round_fn
  batch = list(itertools.islice(itertools.cycle(prompts), batch_size))
  room = decoder.max_length - max(map(len, batch))
  # The target prefills the prompts once, not for each arm and repeat.
  start = _without_stop_tokens(decoder.init(batch, room))
  rounds = [
    functools.partial(_prepare_rounds_of_arm, decoder, start, i, num_rounds)
    for i in range(len(round_fn.drafters))
  ]
  # Arms that share a state take the same time to read.
  owners = [slot.owner for slot in round_fn.slots]
  catch_ups, num_read = zip(
    *(_prepare_catch_up(decoder, start, owner) for owner in owners)
  )
  median_prompt = sorted(prompts, key=len)[len(prompts) // 2]
  prefills = [
    _prepare_prefills(decoder, median_prompt, owner) for owner in owners
  ]
  seconds = np.median(
    interleaved([*rounds, *catch_ups, *prefills], repeats, progress=progress),
    axis=0,
  )
  by_round, by_catch_up, by_prefill = np.split(
    seconds, [len(rounds), len(rounds) + len(owners)]
  )
  reads = np.array(num_read) > 0
  slots = list(round_fn.slot_of_arm)
  by_token = np.where(reads, by_catch_up / np.maximum(num_read, 1), 0.0)
  can_catch_up = [round_fn.drafters[owner].can_catch_up for owner in owners]
  by_prompt = np.where(can_catch_up, by_prefill / _NUM_PREFILLS, 0.0)
  return CostTable(
    batch_size=batch_size,
    round_seconds=tuple((by_round / num_rounds).tolist()),
    catch_up_seconds=tuple(by_token[slots].tolist()),
    prefill_seconds=tuple(by_prompt[slots].tolist()),
    depths=tuple(drafter.topology.depth for drafter in round_fn.drafters),
    kinds=level_kinds(list(zip(round_fn.arms, decoder.params.drafters))),
  )


def level_kinds(
  arms: Sequence[tuple[base.Arm, base.Params]],
) -> tuple[int, ...]:
  """Returns `[A]` kinds of arms, numbered from 0.

  Arms of one kind share how likely each level of a tree is accepted. They have
  drafters that differ in a static tree only, where one tree is the first levels
  of the other, and one verifier that judges level by level. Drafters that are
  made of several with trees of their own, such as `LookupOr`, share levels only
  if they are equal.

  Args:
    arms: each arm, with its drafter's parameters; only the same object counts
      as the same parameters.
  """
  members: list[list[tuple[base.Arm, base.Params]]] = []
  kinds: list[int] = []
  for arm, params in arms:
    shared = (
      kind
      for kind, others in enumerate(members)
      if all(
        params is other_params and _share_levels(other, arm)
        for other, other_params in others
      )
    )
    kinds.append(next(shared, len(members)))
    if kinds[-1] == len(members):
      members.append([])
    members[kinds[-1]].append((arm, params))
  return tuple(kinds)


def _share_levels(one: base.Arm, other: base.Arm) -> bool:
  """Returns whether a level's acceptance in one arm holds for another arm."""
  if not one.verifier.judges_by_level:
    return False
  if _without_trees(one) != _without_trees(other):
    return False
  if one.drafter.siblings is not other.drafter.siblings:
    return False  # One tree is chosen, the other is drawn.
  if any(_trees(arm) != [arm.drafter.topology] for arm in (one, other)):
    return _trees(one) == _trees(other)
  shallow, deep = one.drafter.topology, other.drafter.topology
  if not (
    isinstance(shallow, trees.Topology) and isinstance(deep, trees.Topology)
  ):
    return False
  if shallow.num_nodes > deep.num_nodes:
    shallow, deep = deep, shallow
  return shallow.is_top_of(deep)


def _trees(part: Any) -> list[trees.Topology]:
  """Returns the static trees in the fields of a component."""
  if isinstance(part, trees.Topology):
    return [part]
  if isinstance(part, tuple):
    return [tree for field in part for tree in _trees(field)]
  if dataclasses.is_dataclass(part):
    fields = [getattr(part, field.name) for field in dataclasses.fields(part)]
    return _trees(tuple(fields))
  return []


def _without_trees(part: Any) -> Any:
  """Returns a component as nested tuples, in which trees are left out."""
  if isinstance(part, trees.Topology):
    return None
  if isinstance(part, tuple):
    return tuple(map(_without_trees, part))
  if dataclasses.is_dataclass(part):
    fields = [getattr(part, field.name) for field in dataclasses.fields(part)]
    return type(part), *map(_without_trees, fields)
  return part


def _with_fixed_arm(decoder: decoder_lib.Decoder) -> decoder_lib.Decoder:
  """Returns a decoder of the same arms, whose bandit's state is the arm."""
  round_fn, params = decoder.round_fn, decoder.params
  return decoder_lib.Decoder(
    round_fn.target,
    params.target,
    list(zip(round_fn.arms, params.drafters)),
    sampling=round_fn.sampling,
    max_length=decoder.max_length,
  )


def _prepare_rounds_of_arm(
  decoder: decoder_lib.Decoder,
  start: state_lib.DecodeState,
  arm: int,
  num_rounds: int,
) -> Callable[[], Any]:
  """Prepares rounds in which the bandit `fixed` selects an arm."""
  state = _caught_up(decoder, _with_arm(start, arm))
  return _trace(decoder, state, num_rounds)


def _with_arm(start: state_lib.DecodeState, arm: int) -> state_lib.DecodeState:
  """Returns a copy of a state in which the bandit `fixed` selects an arm."""
  return jax.tree.map(jnp.copy, start).replace(bandit=jnp.int32(arm))


def _prepare_catch_up(
  decoder: decoder_lib.Decoder, start: state_lib.DecodeState, arm: int
) -> tuple[Prepare, int]:
  """Prepares a drafter's catch-up; returns the number of tokens per row."""
  round_fn = decoder.round_fn
  drafter = round_fn.drafters[arm]
  if not drafter.can_catch_up:
    return _prepare_nothing, 0
  state = _caught_up(decoder, _with_arm(start, arm))
  args = (
    decoder.params.drafters[arm],
    state.drafters[round_fn.slot_of_arm[arm]],
    state_lib.drafter_context(
      state.replace(lengths=state.limits), round_fn.taps[arm]
    ),
    jnp.ones(len(state.lengths), bool),
  )
  catch_up = jax.jit(drafter.catch_up)
  _, num_read = catch_up(*args)
  return lambda: lambda: catch_up(*args), int(num_read.max())


def _prepare_prefills(
  decoder: decoder_lib.Decoder, prompt: Sequence[int], arm: int
) -> Prepare:
  """Prepares a drafter's prefill of one prompt, `_NUM_PREFILLS` times."""
  round_fn, max_length = decoder.round_fn, decoder.max_length
  drafter = round_fn.drafters[arm]
  if not drafter.can_catch_up:
    return _prepare_nothing
  params = decoder.params.drafters[arm]
  context = state_lib.drafter_context(
    decoder.init([prompt], 1), round_fn.taps[arm]
  )
  width = prefill_lib.bucket_width(len(prompt), max_length)

  @jax.jit
  def prefill(params: base.Params, context: base.Context) -> Any:
    state = drafter.init(params, context.first(width), max_length)
    # A drafter that defers its prefill reads the prompt now.
    return drafter.catch_up(params, state, context, jnp.ones(1, bool))

  return lambda: (
    lambda: [prefill(params, context) for _ in range(_NUM_PREFILLS)]
  )


def _prepare_nothing() -> Callable[[], None]:
  return lambda: None


# Rounds to be timed.


def prepare_rounds(
  decoder: decoder_lib.Decoder,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
  num_rounds: int,
) -> Prepare:
  """Returns what prepares rounds of a decoder to be timed, after prefill.

  Args:
    decoder: the decoder.
    prompts: of a batch.
    max_new_tokens: emitted tokens after which a row is idle.
    num_rounds: rounds of each run.
  """
  return lambda: _trace(
    decoder, begin(decoder, prompts, max_new_tokens), num_rounds
  )


def begin(
  decoder: decoder_lib.Decoder,
  prompts: Sequence[Sequence[int]],
  max_new_tokens: int,
) -> state_lib.DecodeState:
  """Returns a state whose rounds are complete: no stop token ends a row.

  A drafter that defers its prefill until it is first selected has done it, if
  the first round selects it.

  Args:
    decoder: the decoder.
    prompts: of a batch.
    max_new_tokens: emitted tokens after which a row is idle.
  """
  state = decoder.init(prompts, max_new_tokens)
  return _caught_up(decoder, _without_stop_tokens(state))


def _trace(
  decoder: decoder_lib.Decoder, state: state_lib.DecodeState, num_rounds: int
) -> Callable[[], Any]:
  """Returns the call of some rounds, which records nothing of them."""
  return functools.partial(
    drivers.trace,
    decoder.round_fn,
    decoder.params,
    state,
    num_rounds,
    _record_nothing,
  )


def _record_nothing(info: base.RoundInfo) -> None:
  del info


def _without_stop_tokens(
  state: state_lib.DecodeState,
) -> state_lib.DecodeState:
  return state.replace(stop_tokens=jnp.array([-1]))


def _caught_up(
  decoder: decoder_lib.Decoder, state: state_lib.DecodeState
) -> state_lib.DecodeState:
  """Returns a state in which the selected drafters have read; donates it."""
  caught_up = _select_and_catch_up(decoder.round_fn, decoder.params, state)
  return jax.block_until_ready(caught_up)


@functools.partial(jax.jit, donate_argnames='state')
def _select_and_catch_up(
  round_fn: round_lib.Round,
  params: state_lib.Params,
  state: state_lib.DecodeState,
) -> state_lib.DecodeState:
  """Runs the steps of a round before it drafts."""
  state, choice = round_lib.select(round_fn, state)
  return round_lib.catch_up(round_fn, params, state, choice)[0]


# Clocks.


def interleaved(
  runs: Sequence[Prepare],
  repeats: int,
  *,
  warm_up: bool = True,
  progress: Callable[[Iterable[Any]], Iterable[Any]] = iter,
) -> np.ndarray:
  """Returns `[repeats, F]` seconds of `F` runs, in alternating order.

  A drift of the machine's speed thus affects all of them alike.

  Args:
    runs: each prepares a call, which alone is timed.
    repeats: how often each is timed.
    warm_up: calls each once before, so that no compilation is timed.
    progress: wraps the repeats, such as `tqdm.tqdm`.
  """
  seconds = np.zeros((repeats, len(runs)))
  if warm_up:
    for prepare in runs:
      timed(prepare())
  order = list(range(len(runs)))
  for row in progress(seconds):
    for i in order:
      row[i] = timed(runs[i]())[1]
    order.reverse()
  return seconds


def timed(function: Callable[[], _T]) -> tuple[_T, float]:
  """Returns the value of a call, and the seconds until it is computed."""
  start = time.perf_counter()
  value = jax.block_until_ready(function())
  return value, time.perf_counter() - start
