"""Runs methods on prompts in batches, and resumes where a run stopped.

Every experiment that decodes describes its runs and receives one record per
prompt; tables and plots are made of records.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
import itertools
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.common import limits
from experiments.common import log
from experiments.common import measure
from experiments.common import methods as methods_lib
from experiments.common import programs
from experiments.common import prompts as prompts_lib
from experiments.common import workdirs
from specjax import base
from specjax import checks
from specjax import decoding
from specjax import meshes
from specjax.decoding import timing

# Rounds between two checks whether all rows are done, where rounds are traced.
_STRIDE = 16

# What is recorded of a prompt, as JSON; see `counts`.
Record = dict[str, Any]


class Run(NamedTuple):
  """One method on one prompt set, with one seed."""

  settings: dict[str, Any]  # everything its records depend on, as JSON
  build_method: Callable[[], methods_lib.CompiledMethod]
  jobs: Sequence[prompts_lib.Job]
  max_new_tokens: int
  batch_size: int = 1
  seed: int = 0
  carry_over: bool = False  # whether batches pass on the bandit's state
  bandit_states: Sequence[Any] | None = None  # each row's initial state


class Batch(NamedTuple):
  """A decoded batch, for `Options.observe`."""

  run: Run
  jobs: Sequence[prompts_lib.Job]
  compiled_method: methods_lib.CompiledMethod
  results: Sequence[decoding.Result]
  state: decoding.DecodeState
  infos: Any  # a `RoundInfo` of `[R, B]` arrays, with the traced fields only


class Options(NamedTuple):
  """What to record in addition to the fields of every record.

  Attributes:
    repeats: how often each batch is timed, interleaved with the same batch
      decoded by `reference`.
    reference: builds the method that others are timed against.
    fields: fields of the `RoundInfo` of each live round.
    observe: from a batch, returns further fields for each of its jobs.
    tokens: whether emitted tokens are recorded.
    stop_at_deadline: whether records may be missing for lack of time.
  """

  repeats: int = 0
  reference: Callable[[], methods_lib.CompiledMethod] | None = None
  fields: tuple[str, ...] = ()
  observe: Callable[[Batch], Sequence[Record]] | None = None
  tokens: bool = False
  stop_at_deadline: bool = False


def decode(
  workdir: workdirs.Workdir,
  runs: Sequence[Run],
  options: Options = Options(),
) -> list[list[Record]]:
  """Returns one record per job, for each run; logs batch by batch.

  Timings belong to a device: those of another device in the log are ignored.
  """
  if options.repeats and (options.fields or options.reference is None):
    raise ValueError('repeats requires a reference and no fields of rounds.')
  if options._replace(stop_at_deadline=False) != Options() and any(
    job.conversation for run in runs for job in run.jobs
  ):
    raise ValueError(
      'A conversation cannot be timed (repeats) or record tokens or rounds: '
      'it records only counts.'
    )
  as_unit = measure.unit if options.repeats else dict
  units, batches = [], []
  for index, run in enumerate(runs):
    checks.check_range('batch_size', run.batch_size, 1)
    for first in range(0, len(run.jobs), run.batch_size):
      jobs = run.jobs[first : first + run.batch_size]
      texts = [[*job.turns, job.reference] for job in jobs]
      # An edited file of prompts is another unit of work.
      batch = {'first': first, 'seed': run.seed, 'texts': log.digest(texts)}
      units.append(as_unit(run.settings | batch))
      batches.append((index, first))
  session = _Session(options)
  bandit_leaves: dict[int, Any] = {}

  def compute(batch: tuple[int, int]) -> dict[str, Any]:
    index, first = batch
    leaves = bandit_leaves.get(index) if first else None
    return session.decode(runs[index], first, leaves)

  records: list[list[Record]] = [[] for _ in runs]
  outcomes = log.resume(workdir, units, compute, 'batches', batches)
  if options.stop_at_deadline:
    outcomes = limits.until_deadline(workdir, outcomes)
  for (index, _), outcome in zip(batches, outcomes):
    records[index] += outcome['records']
    bandit_leaves[index] = outcome.get('bandit_state')
  return records


def decode_queue(
  workdir: workdirs.Workdir, runs: Sequence[Run]
) -> Iterator[Record]:
  """Yields one record per job, with its tokens, by continuous batching.

  Each job is one prompt; the runs are decoded one after another. The log has
  one entry per prompt, and decoding resumes from it.
  """
  positions = [
    (index, position)
    for index, run in enumerate(runs)
    for position in range(len(run.jobs))
  ]
  units = [
    run.settings
    | {
      'job': _number(job, position),
      'prompt': job.turns[0],
      'seed': run.seed,
    }
    for run in runs
    for position, job in enumerate(run.jobs)
  ]

  def compute_all(
    positions: Sequence[tuple[int, int]],
  ) -> Iterator[Record]:
    for index, group in itertools.groupby(positions, lambda pair: pair[0]):
      yield from _decode_all(runs[index], [position for _, position in group])

  return log.resume_all(workdir, units, compute_all, 'prompts', positions)


def _decode_all(run: Run, positions: Sequence[int]) -> Iterator[Record]:
  """Yields the records of a run's jobs at some positions."""
  jobs = [run.jobs[position] for position in positions]
  numbers = [_number(job, position) for job, position in zip(jobs, positions)]
  results = run.build_method().decoder.decode_many(
    (job.turns[0] for job in jobs),
    run.max_new_tokens,
    batch_size=run.batch_size,
    seed=run.seed,
    request_ids=iter(numbers),
  )
  for job, number, result in zip(jobs, numbers, results):
    record = {'label': job.label, 'job': number}
    yield record | counts(result) | {'tokens': list(result.tokens)}


def _number(job: prompts_lib.Job, position: int) -> int:
  return position if job.number is None else job.number


class _Session:
  """Decodes batches; holds the current program and that of the reference."""

  def __init__(self, options: Options):
    self._options = options
    self._warm: set[Any] = set()
    self._num_timed = 0
    self._build = functools.lru_cache(maxsize=2)(lambda build: build())
    self._program: Any = None

  def decode(self, run: Run, first: int, bandit_leaves: Any) -> dict[str, Any]:
    """Decodes the batch that begins with a job; returns what is logged.

    Args:
      run: the run that the batch belongs to.
      first: the position of the batch's first job.
      bandit_leaves: leaves of the bandit's state, as logged; None to begin
        with the initial state.
    """
    compiled_method = self._compiled_method(run.build_method)
    num = min(run.batch_size, len(run.jobs) - first)
    # The last batch repeats a job rather than compiling a new shape.
    positions = np.minimum(np.arange(run.batch_size), num - 1) + first
    jobs = [run.jobs[i] for i in positions]
    ids = np.array([_number(job, i) for i, job in zip(positions, jobs)])
    bandit_state = None
    if run.bandit_states is not None:
      bandit_state = np.array([run.bandit_states[i] for i in positions])
    if bandit_leaves is not None:
      bandit_state = _restore(compiled_method.bandit_state, bandit_leaves)
    records: list[Record] = [
      {'label': job.label, 'job': int(id_), 'batch': first}
      for job, id_ in zip(jobs, ids)
    ]
    request = {
      'max_new_tokens': run.max_new_tokens,
      'seed': run.seed,
      # No two prompts of a run share their randomness.
      'request_ids': ids * len(jobs[0].turns),
      'bandit_state': bandit_state,
    }
    is_conversation = jobs[0].conversation
    decode_turns = self._conversation if is_conversation else self._session
    turns = decode_turns(run, jobs, compiled_method, request)
    for next_bandit_state, turn_records in turns:
      bandit_state = next_bandit_state
      for record, turn_record in zip(records, turn_records):
        _add(record, turn_record)
    outcome: dict[str, Any] = {'records': records[:num]}
    if run.carry_over:
      leaves = jax.tree.leaves(meshes.fetch(bandit_state))
      outcome['bandit_state'] = [leaf.tolist() for leaf in leaves]
    return outcome

  def _session(
    self,
    run: Run,
    jobs: Sequence[prompts_lib.Job],
    compiled_method: methods_lib.CompiledMethod,
    request: dict[str, Any],
  ) -> Iterator[tuple[Any, Sequence[Record]]]:
    """Decodes turns as separate prompts.

    Yields:
      The bandit's state after each turn, and the turn's records.
    """
    for turn, prompts in enumerate(zip(*(job.turns for job in jobs))):
      ids = request['request_ids'] + turn
      batch, timings = self._decode(
        run,
        jobs,
        compiled_method,
        request | {'prompts': prompts, 'request_ids': ids},
      )
      request = request | {'bandit_state': batch.state.bandit}
      yield batch.state.bandit, list(self._records(batch, timings))

  def _conversation(
    self,
    run: Run,
    jobs: Sequence[prompts_lib.Job],
    compiled_method: methods_lib.CompiledMethod,
    request: dict[str, Any],
  ) -> Iterator[tuple[Any, Sequence[Record]]]:
    """Decodes turns as one text per row.

    Yields:
      The bandit's last state, and the records of all turns together.
    """
    decoder = compiled_method.decoder
    first, *later_turns = zip(*(job.turns for job in jobs))
    state = decoder.init(**request | {'prompts': first})
    emitted = -_lengths(state)
    state = compiled_method.decode(state)
    for texts in later_turns:
      last_tokens = meshes.fetch(state.tokens)[
        np.arange(len(jobs)), _lengths(state) - 1
      ]
      # An answer that was not cut short ends with the stop token already.
      suffixes = [
        text[int(text[0] == last_token) :]
        for text, last_token in zip(texts, last_tokens)
      ]
      emitted += _lengths(state)
      state = decoder.append(state, suffixes, run.max_new_tokens)
      emitted -= _lengths(state)
      state = compiled_method.decode(state)
    emitted += _lengths(state)
    results = decoder.results(first, state)
    records = [
      counts(result) | {'emitted': int(num)}
      for result, num in zip(results, emitted)
    ]
    yield state.bandit, records

  def _compiled_method(
    self, build: Callable[[], methods_lib.CompiledMethod]
  ) -> methods_lib.CompiledMethod:
    """Builds a method; drops earlier programs if memory runs short."""
    compiled_method = self._build(build)
    if compiled_method.program != self._program:
      self._program = compiled_method.program
      if programs.drop():
        self._warm.clear()
    return compiled_method

  def _decode(
    self,
    run: Run,
    jobs: Sequence[prompts_lib.Job],
    compiled_method: methods_lib.CompiledMethod,
    request: dict[str, Any],
  ) -> tuple[Batch, Sequence[Record]]:
    """Decodes a batch; returns it with the timings of each row."""
    infos: Any = None
    timings: Sequence[Record] = [{}] * len(jobs)
    if self._options.repeats:
      state, timings = self._interleave(compiled_method, request)
    else:
      state = compiled_method.decoder.init(**request)
      state, infos = _finish(compiled_method, state, self._options.fields)
    results = compiled_method.decoder.results(request['prompts'], state)
    return Batch(run, jobs, compiled_method, results, state, infos), timings

  def _interleave(
    self, compiled_method: methods_lib.CompiledMethod, request: dict[str, Any]
  ) -> tuple[decoding.DecodeState, list[Record]]:
    """Times a method and the reference, interleaved.

    Returns:
      The method's last state, and the timings of each row.
    """
    assert self._options.reference is not None
    reference = self._build(self._options.reference)
    sides = [(compiled_method, request)]
    # The reference is timed once, so that it is exactly as fast as itself.
    if compiled_method.method.settings != reference.method.settings:
      sides.append((reference, request | {'bandit_state': None}))

    def prefill(side: int) -> Callable[[], decoding.DecodeState]:
      method, arguments = sides[side]
      return functools.partial(method.decoder.init, **arguments)

    indices = range(len(sides))
    starts = [jax.block_until_ready(prefill(side)()) for side in indices]
    ends: list[Any] = [None] * len(sides)

    def loop(side: int) -> Callable[[], decoding.DecodeState]:
      # The decode loop donates its state, so each call gets a copy.
      state = jax.tree.map(jnp.copy, starts[side])

      def call() -> decoding.DecodeState:
        ends[side] = sides[side][0].decode(state)
        return ends[side]

      return call

    prepared_calls = [
      functools.partial(prepare, side)
      for side in indices
      for prepare in (prefill, loop)
    ]
    prompts = request['prompts']
    shape = compiled_method.program, len(prompts)
    if shape not in self._warm:
      self._warm.add(shape)
      # Twice: a bandit's state that a loop returns is another program's input.
      for prepare in 2 * prepared_calls:
        timing.timed(prepare())
    # The method comes first in every other batch, also if `repeats` is 1.
    order = 1 if self._num_timed % 2 else -1
    self._num_timed += 1
    seconds = measure.interleave(
      prepared_calls[::order], self._options.repeats, warm_up=False
    )[:, ::order]
    # The time of the batch is divided equally among its rows.
    times = (np.median(seconds, axis=0) / len(prompts)).tolist()
    timings = {
      'seconds': times[1],
      'reference_seconds': times[-1],
      'prefill': times[0],
      'reference_prefill': times[-2],
    }
    results = [
      method.decoder.results(prompts, state)
      for (method, _), state in zip(sides, ends)
    ]
    return ends[0], [
      {
        **timings,
        'reference_emitted': len(reference_result.tokens),
        'differ': int(result.tokens != reference_result.tokens),
      }
      for result, reference_result in zip(results[0], results[-1])
    ]

  def _records(
    self, batch: Batch, timings: Sequence[Record]
  ) -> Iterator[Record]:
    """Yields the record of each row."""
    observe = self._options.observe
    observed = observe(batch) if observe else [{}] * len(batch.jobs)
    rows = zip(batch.results, timings, observed)
    for row, (result, row_timings, observation) in enumerate(rows):
      record = counts(result) | row_timings | observation
      if self._options.tokens:
        record['tokens'] = list(result.tokens)
      for name in self._options.fields:
        live = batch.infos.live[:, row]
        values = getattr(batch.infos, name)[live, row]
        record[name] = np.round(values.astype(float), 6).tolist()
      yield record


class _Fields(NamedTuple):
  """Keeps some fields of a round's info; equal for equal names."""

  names: tuple[str, ...]

  def __call__(self, info: base.RoundInfo) -> base.RoundInfo:
    selected = {name: getattr(info, name) for name in ('live', *self.names)}
    empty = dict.fromkeys(info._fields)
    return info._replace(**empty | selected)


def _finish(
  compiled_method: methods_lib.CompiledMethod,
  state: decoding.DecodeState,
  fields: tuple[str, ...],
) -> tuple[decoding.DecodeState, Any]:
  """Decodes to the end; returns all rounds' infos, or None without fields."""
  if not fields:
    return compiled_method.decode(state), None
  infos = []
  while not state.done.all():
    state, info = compiled_method.trace(state, _STRIDE, _Fields(fields))
    infos.append(meshes.fetch(info))
  concatenate = lambda *arrays: np.concatenate(arrays)
  return state, jax.tree.map(concatenate, *infos)


def _lengths(state: decoding.DecodeState) -> np.ndarray:
  """Copies `[B]` lengths to the host, as the state may be donated."""
  return np.array(meshes.fetch(state.lengths))


def counts(result: decoding.Result) -> Record:
  """Returns the counts of one prompt, or of one turn of a session."""
  return {
    'emitted': len(result.tokens),
    'rounds': result.rounds,
    'draft_calls': result.draft_calls,
    'num_catch_up_tokens': result.num_catch_up_tokens,
    'accepted': result.accepted.tolist(),
    'drafted': result.drafted.tolist(),
    'tested': result.tested.tolist(),
    'pulls': result.pulls.tolist(),
  }


def _add(record: Record, turn_record: Record) -> None:
  """Adds a later turn: counts are summed, and lists of rounds are extended."""
  summed = 'accepted', 'drafted', 'tested', 'pulls'
  for name, value in turn_record.items():
    if name not in record:
      record[name] = value
    elif name in summed:
      record[name] = [a + b for a, b in zip(record[name], value)]
    else:
      record[name] = record[name] + value


def _restore(initial_state: Any, leaves: Sequence[Any]) -> Any:
  """Returns a logged bandit state in the structure of its initial state."""
  initial_leaves, structure = jax.tree.flatten(initial_state)
  dtypes = [np.asarray(leaf).dtype for leaf in initial_leaves]
  return jax.tree.unflatten(structure, list(map(np.asarray, leaves, dtypes)))
