"""The one decode loop: ways on prompts, in batches, resumed where it stopped.

Every experiment that decodes names its points and gets a record for each
prompt; tables and plots are made of records.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import Any
from typing import NamedTuple

import jax
import numpy as np

from experiments.common import log
from experiments.common import measure
from experiments.common import programs
from experiments.common import prompts as prompts_lib
from experiments.common import ways as ways_lib
from experiments.common import workdirs
from specjax import checks
from specjax import decoding

# Rounds between two looks at whether all rows are done, where they are traced.
_STRIDE = 16

# What is recorded of a prompt, as JSON; see `_record`.
Record = dict[str, Any]


class Point(NamedTuple):
  """One way on one set of prompts, with one seed."""

  settings: dict[str, Any]  # all that its records depend on, as JSON
  player: Callable[[], ways_lib.Player]
  jobs: Sequence[prompts_lib.Job]
  max_new_tokens: int
  batch_size: int = 1
  seed: int = 0
  carry_over: bool = False  # what a bandit has learnt, from batch to batch
  starts: Sequence[Any] | None = None  # what each row's bandit begins with


class Batch(NamedTuple):
  """A decoded batch, for `Options.observe`."""

  point: Point
  jobs: Sequence[prompts_lib.Job]
  player: ways_lib.Player
  results: Sequence[decoding.Result]
  state: decoding.DecodeState
  infos: Any  # a `RoundInfo` of arrays `[R, B]`, of the fields that are traced


class Options(NamedTuple):
  """What to record beside tokens and rounds.

  Attributes:
    repeats: how often each batch is timed, in turns with the same batch by
      `reference`; 0 for no clock.
    reference: what a way is timed against.
    fields: of `RoundInfo`, that are recorded of each live round.
    observe: `(batch) -> record`s of its own, one for each job.
    tokens: whether to record what was emitted.
  """

  repeats: int = 0
  reference: Callable[[], ways_lib.Player] | None = None
  fields: tuple[str, ...] = ()
  observe: Callable[[Batch], Sequence[Record]] | None = None
  tokens: bool = False


def decode(
  workdir: workdirs.Workdir,
  points: Sequence[Point],
  options: Options = Options(),
) -> list[list[Record]]:
  """Decodes every point, batch by batch, and logs each as it comes.

  Returns:
    For each point, a record of each of its jobs.

  Raises:
    ValueError: two points are the same, or the options contradict.
  """
  if options.repeats and (options.fields or options.reference is None):
    raise ValueError('Clocks need a reference, and no fields of rounds.')
  units, where = [], []
  for index, point in enumerate(points):
    checks.check_range('batch_size', point.batch_size, 1)
    for first in range(0, len(point.jobs), point.batch_size):
      units.append(point.settings | {'first': first, 'seed': point.seed})
      where.append((index, first))
  session = _Session(options)
  place = {log.name(unit): each for unit, each in zip(units, where)}
  learnt: dict[int, Any] = {}

  def compute(unit):
    index, first = place[log.name(unit)]
    before = learnt.get(index) if first else None
    return session.play(points[index], first, before)

  records: list[list[Record]] = [[] for _ in points]
  outcomes = log.resume(workdir, units, compute, 'batches')
  for (index, _), outcome in zip(where, outcomes):
    records[index] += outcome['records']
    learnt[index] = outcome.get('bandit_state')
  return records


class _Session:
  """Plays batches; holds the program in use and the reference's."""

  def __init__(self, options: Options):
    self._options = options
    self._warm: set[Any] = set()
    # How prompts are read hangs on no number of a rule.
    self._readers: dict[Any, decoding.Decoder] = {}
    self._player = functools.lru_cache(maxsize=2)(lambda make: make())
    self._plan = None

  def play(self, point: Point, first: int, learnt: Any) -> dict[str, Any]:
    """Decodes the batch that begins with a job; returns what is logged."""
    player = self._built(point.player)
    num = min(point.batch_size, len(point.jobs) - first)
    # The last batch repeats a job rather than compiling a new shape.
    places = np.minimum(np.arange(point.batch_size), num - 1) + first
    jobs = [point.jobs[i] for i in places]
    ids = np.array(
      [i if j.number is None else j.number for i, j in zip(places, jobs)]
    )
    bandit_state = None
    if point.starts is not None:
      bandit_state = np.array([point.starts[i] for i in places])
    if learnt is not None:
      bandit_state = _restored(player.bandit_state, learnt)
    records: list[Record] = [
      {'label': job.label, 'job': int(id_)} for job, id_ in zip(jobs, ids)
    ]
    num_turns = len(jobs[0].turns)
    for turn in range(num_turns):
      request = _Request(
        [job.turns[turn] for job in jobs],
        point.max_new_tokens,
        # No two prompts of a point share their randomness.
        {'seed': point.seed, 'request_ids': ids * num_turns + turn},
        bandit_state,
      )
      batch, clocks = self._decode(point, jobs, player, request)
      bandit_state = batch.state.bandit
      for record, each in zip(records, self._records(batch, clocks)):
        _add(record, each)
    outcome = {'records': records[:num]}
    if point.carry_over:
      leaves = jax.tree.leaves(jax.device_get(bandit_state))
      outcome['bandit_state'] = [leaf.tolist() for leaf in leaves]
    return outcome

  def _built(self, make):
    """A player; now and then, programs of earlier ones are dropped."""
    player = self._player(make)
    if player.program != self._plan:
      self._plan = player.program
      if programs.drop():
        self._warm.clear()
        self._readers.clear()
    return player

  def _reader(self, player):
    """The decoder that reads prompts for a player."""
    key = player.program, player.reading
    return self._readers.setdefault(key, player.decoder)

  def _decode(self, point, jobs, player, request):
    """A batch, and what clocks have shown of each of its rows."""
    options = self._options
    if not options.repeats:
      state = request.read(self._reader(player))
      state, infos = _finish(player, state, options.fields)
      clocks = [{}] * len(jobs)
    else:
      infos = None
      state, clocks = self._in_turns(player, request)
    results = player.decoder.results(request.prompts, state)
    return Batch(point, jobs, player, results, state, infos), clocks

  def _in_turns(self, player, request):
    """Plays way and reference in turns, and times both."""
    other = self._player(self._options.reference)
    last: dict[str, Any] = {}
    reading: dict[str, list[float]] = {'own': [], 'reference': []}

    def prepare(name, each, asked):
      reader = self._reader(each)
      state, seconds = measure.timed(lambda: asked.read(reader))
      reading[name].append(seconds)

      def play():
        last[name] = each.decode(state)
        return last[name]

      return play

    plain = request._replace(bandit_state=None)
    runs = [
      functools.partial(prepare, 'own', player, request),
      functools.partial(prepare, 'reference', other, plain),
    ]
    shape = player.program, player.reading, len(request.prompts), request.width
    if shape not in self._warm:
      self._warm.add(shape)
      # Once more: arms are first played, and a used bandit is another program.
      measure.in_turns(runs, 1)
      reading['own'].clear()
      reading['reference'].clear()
    loops = measure.in_turns(runs, self._options.repeats, warm_up=False)
    names = 'seconds', 'reference_seconds', 'reading', 'reference_reading'
    seconds = [*np.median(loops, axis=0), *map(np.median, reading.values())]
    plain = other.decoder.results(request.prompts, last['reference'])
    # The batch's own, in equal parts.
    share = dict(zip(names, (np.array(seconds) / len(plain)).tolist()))
    return last['own'], [
      share | {'reference_emitted': len(result.tokens)} for result in plain
    ]

  def _records(self, batch, clocks):
    """What is recorded of each row."""
    observed = [{}] * len(batch.jobs)
    if self._options.observe:
      observed = self._options.observe(batch)
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


class _Request(NamedTuple):
  """What a decoder is asked for."""

  prompts: list[list[int]]
  max_new_tokens: int
  options: dict[str, Any]
  bandit_state: Any

  @property
  def width(self) -> int:
    """Of the padded prompts: programs that read them are of one width."""
    return (max(map(len, self.prompts)) - 1).bit_length()

  def read(self, decoder: decoding.Decoder) -> decoding.DecodeState:
    """Reads the prompts."""
    return decoder.init(
      self.prompts,
      self.max_new_tokens,
      bandit_state=self.bandit_state,
      **self.options,
    )


class _Fields(NamedTuple):
  """Keeps some fields of a round's info; equal for equal names."""

  names: tuple[str, ...]

  def __call__(self, info):
    kept = {name: getattr(info, name) for name in ('live', *self.names)}
    nothing = dict.fromkeys(info._fields)
    return info._replace(**nothing | kept)


def _finish(player, state, fields):
  """Plays to the end; returns the infos of all rounds, if any are asked for."""
  if not fields:
    return player.decode(state), None
  infos = []
  while not state.done.all():
    state, info = player.trace(state, _STRIDE, _Fields(fields))
    infos.append(jax.device_get(info))
  return state, jax.tree.map(lambda *each: np.concatenate(each), *infos)


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
