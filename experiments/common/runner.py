"""Runs methods on prompts in batches, and resumes where a run stopped.

Every experiment that decodes names its runs and gets a record for each
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
from specjax import checks
from specjax import decoding
from specjax import meshes
from specjax.decoding import timing

# Rounds between two looks at whether all rows are done, where they are traced.
_STRIDE = 16

# Prompts that wait on the device, where rows are refilled.
_QUEUE = 64

# What is recorded of a prompt, as JSON; see `_record`.
Record = dict[str, Any]


class Run(NamedTuple):
  """One method on one set of prompts, with one seed."""

  settings: dict[str, Any]  # all that its records depend on, as JSON
  build_method: Callable[[], methods_lib.CompiledMethod]
  jobs: Sequence[prompts_lib.Job]
  max_new_tokens: int
  batch_size: int = 1
  seed: int = 0
  carry_over: bool = False  # what a bandit has learnt, from batch to batch
  starts: Sequence[Any] | None = None  # what each row's bandit begins with


class Batch(NamedTuple):
  """A decoded batch, for `Options.observe`."""

  run: Run
  jobs: Sequence[prompts_lib.Job]
  compiled_method: methods_lib.CompiledMethod
  results: Sequence[decoding.Result]
  state: decoding.DecodeState
  infos: Any  # a `RoundInfo` of arrays `[R, B]`, of the fields that are traced


class Options(NamedTuple):
  """What to record beside what every record has."""

  # How often each batch is timed, in turns with the same one by `reference`.
  repeats: int = 0
  reference: Callable[[], methods_lib.CompiledMethod] | None = None
  fields: tuple[str, ...] = ()  # of the `RoundInfo` of each live round
  # Gives records of its own, one for each job.
  observe: Callable[[Batch], Sequence[Record]] | None = None
  tokens: bool = False  # that were emitted
  # Whether records may be missing that there was no time for.
  in_time: bool = False


def decode(
  workdir: workdirs.Workdir,
  runs: Sequence[Run],
  options: Options = Options(),
) -> list[list[Record]]:
  """Returns for each run a record of each job; logs batch by batch.

  Clocks are of the device: those of another one in the log are not read.
  """
  if options.repeats and (options.fields or options.reference is None):
    raise ValueError('Clocks need a reference, and no fields of rounds.')
  if options._replace(in_time=False) != Options() and any(
    job.conversation for run in runs for job in run.jobs
  ):
    raise ValueError(
      'A conversation takes no clocks (repeats), and records no tokens or '
      'rounds: there are only counts.'
    )
  here = {'measured_on': measure.device()} if options.repeats else {}
  units, places = [], []
  for index, run in enumerate(runs):
    checks.check_range('batch_size', run.batch_size, 1)
    for first in range(0, len(run.jobs), run.batch_size):
      own = {'first': first, 'seed': run.seed}
      units.append(run.settings | own | here)
      places.append((index, first))
  session = _Session(options)
  learnt: dict[int, Any] = {}

  def compute(place):
    index, first = place
    before = learnt.get(index) if first else None
    return session.play(runs[index], first, before)

  records: list[list[Record]] = [[] for _ in runs]
  outcomes = log.resume(workdir, units, compute, 'batches', places)
  if options.in_time:
    outcomes = limits.in_time(workdir, outcomes)
  for (index, _), outcome in zip(places, outcomes):
    records[index] += outcome['records']
    learnt[index] = outcome.get('bandit_state')
  return records


def decode_queue(
  workdir: workdirs.Workdir, runs: Sequence[Run]
) -> Iterator[Record]:
  """Yields a record of each job, with its tokens, of rows that are refilled.

  Each job is one prompt; the runs are decoded one after another. The log,
  prompt by prompt, goes on where it stopped.
  """
  places = [
    (index, place)
    for index, run in enumerate(runs)
    for place in range(len(run.jobs))
  ]
  units = [
    run.settings
    | {'job': _number(job, place), 'prompt': job.turns[0], 'seed': run.seed}
    for run in runs
    for place, job in enumerate(run.jobs)
  ]

  def decoded(places):
    for index, own in itertools.groupby(places, lambda place: place[0]):
      yield from _decode_all(runs[index], [place for _, place in own])

  return log.resume_all(workdir, units, decoded, 'prompts', places)


def _decode_all(run, places):
  """Yields the records of some jobs of a run."""
  jobs = [run.jobs[place] for place in places]
  numbers = [_number(job, place) for job, place in zip(jobs, places)]
  results = run.build_method().decoder.decode_many(
    (job.turns[0] for job in jobs),
    run.max_new_tokens,
    batch_size=run.batch_size,
    seed=run.seed,
    request_ids=iter(numbers),
    queue_size=max(_QUEUE, run.batch_size),
  )
  for job, number, result in zip(jobs, numbers, results):
    record = {'label': job.label, 'job': number}
    yield record | _record(result) | {'tokens': list(result.tokens)}


def _number(job, place):
  return place if job.number is None else job.number


class _Session:
  """Plays batches; holds the program in use and the reference's."""

  def __init__(self, options: Options):
    self._options = options
    self._warm: set[Any] = set()
    self._build = functools.lru_cache(maxsize=2)(lambda build: build())
    self._program = None

  def play(self, run: Run, first: int, learnt: Any) -> dict[str, Any]:
    """Decodes the batch that begins with a job; returns what is logged."""
    compiled_method = self._compiled_method(run.build_method)
    num = min(run.batch_size, len(run.jobs) - first)
    # The last batch repeats a job rather than compiling a new shape.
    places = np.minimum(np.arange(run.batch_size), num - 1) + first
    jobs = [run.jobs[i] for i in places]
    ids = np.array(
      [i if j.number is None else j.number for i, j in zip(places, jobs)]
    )
    bandit_state = None
    if run.starts is not None:
      bandit_state = np.array([run.starts[i] for i in places])
    if learnt is not None:
      bandit_state = _restored(compiled_method.bandit_state, learnt)
    records: list[Record] = [
      {'label': job.label, 'job': int(id_)} for job, id_ in zip(jobs, ids)
    ]
    request = {
      'max_new_tokens': run.max_new_tokens,
      'seed': run.seed,
      # No two prompts of a run share their randomness.
      'request_ids': ids * len(jobs[0].turns),
      'bandit_state': bandit_state,
    }
    turns = self._conversation if jobs[0].conversation else self._session
    for after, found in turns(run, jobs, compiled_method, request):
      bandit_state = after
      for record, each in zip(records, found):
        _add(record, each)
    outcome = {'records': records[:num]}
    if run.carry_over:
      leaves = jax.tree.leaves(meshes.fetch(bandit_state))
      outcome['bandit_state'] = [leaf.tolist() for leaf in leaves]
    return outcome

  def _session(self, run, jobs, compiled_method, request):
    """Yields the bandit's state and the records of each turn, read alone."""
    for turn, prompts in enumerate(zip(*(job.turns for job in jobs))):
      own = {'prompts': prompts, 'request_ids': request['request_ids'] + turn}
      batch, clocks = self._decode(run, jobs, compiled_method, request | own)
      request = request | {'bandit_state': batch.state.bandit}
      yield batch.state.bandit, self._records(batch, clocks)

  def _conversation(self, run, jobs, compiled_method, request):
    """Yields the last state of the bandit, and the records of all turns."""
    first, *others = zip(*(job.turns for job in jobs))
    state = compiled_method.decoder.init(**request | {'prompts': first})
    emitted = -_lengths(state)
    state = compiled_method.decode(state)
    for texts in others:
      ends = meshes.fetch(state.tokens)[
        np.arange(len(jobs)), _lengths(state) - 1
      ]
      # An answer that was not cut short has said its end itself.
      behind = [text[int(text[0] == end) :] for text, end in zip(texts, ends)]
      emitted += _lengths(state)
      state = compiled_method.decoder.append(state, behind, run.max_new_tokens)
      emitted -= _lengths(state)
      state = compiled_method.decode(state)
    emitted += _lengths(state)
    results = compiled_method.decoder.results(first, state)
    yield (
      state.bandit,
      [
        _record(result) | {'emitted': int(num)}
        for result, num in zip(results, emitted)
      ],
    )

  def _compiled_method(self, build):
    """A compiled method; now and then, programs of earlier ones are dropped."""
    compiled_method = self._build(build)
    if compiled_method.program != self._program:
      self._program = compiled_method.program
      if programs.drop():
        self._warm.clear()
    return compiled_method

  def _decode(self, run, jobs, compiled_method, request):
    """A batch, and what clocks have shown of each of its rows."""
    infos, clocks = None, [{}] * len(jobs)
    if self._options.repeats:
      state, clocks = self._in_turns(compiled_method, request)
    else:
      state = compiled_method.decoder.init(**request)
      state, infos = _finish(compiled_method, state, self._options.fields)
    results = compiled_method.decoder.results(request['prompts'], state)
    return Batch(run, jobs, compiled_method, results, state, infos), clocks

  def _in_turns(self, compiled_method, request):
    """Plays method and reference in turns, and times both."""
    plain = self._build(self._options.reference)
    sides = (
      (compiled_method, request),
      (plain, request | {'bandit_state': None}),
    )

    def read(side):
      compiled_method, request = sides[side]
      return functools.partial(compiled_method.decoder.init, **request)

    starts = [jax.block_until_ready(read(side)()) for side in range(2)]
    ends: list[Any] = [None, None]

    def play(side):
      # Every run has a state of its own: turns may come in any order.
      state = jax.tree.map(jnp.copy, starts[side])

      def run():
        ends[side] = sides[side][0].decode(state)
        return ends[side]

      return run

    runs = [
      functools.partial(prepare, side)
      for side in range(2)
      for prepare in (read, play)
    ]
    prompts = request['prompts']
    shape = compiled_method.program, len(prompts)
    if shape not in self._warm:
      self._warm.add(shape)
      # Twice: arms are first played, and a used bandit is another program.
      for prepare in 2 * runs:
        timing.timed(prepare())
    seconds = measure.in_turns(runs, self._options.repeats, warm_up=False)
    # The batch's own, in equal parts.
    reading, own, plain_reading, reference = (
      np.median(seconds, axis=0) / len(prompts)
    ).tolist()
    share = {
      'seconds': own,
      'reference_seconds': reference,
      'reading': reading,
      'reference_reading': plain_reading,
    }
    results = [
      side.decoder.results(prompts, state)
      for (side, _), state in zip(sides, ends)
    ]
    return ends[0], [
      {
        **share,
        'reference_emitted': len(other.tokens),
        'differ': int(result.tokens != other.tokens),
      }
      for result, other in zip(*results)
    ]

  def _records(self, batch, clocks):
    """What is recorded of each row."""
    observe = self._options.observe
    observed = observe(batch) if observe else [{}] * len(batch.jobs)
    rows = zip(batch.results, clocks, observed)
    for row, (result, clock, more) in enumerate(rows):
      record = _record(result) | clock | more
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

  def __call__(self, info):
    kept = {name: getattr(info, name) for name in ('live', *self.names)}
    nothing = dict.fromkeys(info._fields)
    return info._replace(**nothing | kept)


def _finish(compiled_method, state, fields):
  """Plays to the end; returns the infos of all rounds, if any are asked for."""
  if not fields:
    return compiled_method.decode(state), None
  infos = []
  while not state.done.all():
    state, info = compiled_method.trace(state, _STRIDE, _Fields(fields))
    infos.append(meshes.fetch(info))
  return state, jax.tree.map(lambda *each: np.concatenate(each), *infos)


def _lengths(state):
  """`[B]`, of which the state may be donated."""
  return np.array(meshes.fetch(state.lengths))


def _record(result):
  """Of one prompt; of a session, the sums over its turns."""
  return {
    'emitted': len(result.tokens),
    'rounds': result.rounds,
    'draft_calls': result.draft_calls,
    'num_catch_up_tokens': result.num_catch_up_tokens,
    'accepted': result.accepted.tolist(),
    'drafted': result.drafted.tolist(),
    'pulls': result.pulls.tolist(),
  }


def _add(record, other):
  """Adds what came later: numbers are summed, and lists of rounds go on."""
  summed = 'accepted', 'drafted', 'pulls'
  for name, value in other.items():
    if name not in record:
      record[name] = value
    elif name in summed:
      record[name] = [a + b for a, b in zip(record[name], value)]
    else:
      record[name] = record[name] + value


def _restored(fresh, leaves):
  """A bandit's state that was logged; `fresh` is one of the same structure."""
  like, structure = jax.tree.flatten(fresh)
  dtypes = [np.asarray(leaf).dtype for leaf in like]
  return jax.tree.unflatten(structure, list(map(np.asarray, leaves, dtypes)))
