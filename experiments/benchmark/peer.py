"""The same weights in other implementations, which take turns prompt by prompt.

Of each way to decode there is a row for specjax, and one for every other
implementation that has the same.
"""

from collections.abc import Callable
import functools
import importlib.util
from typing import Any
from typing import NamedTuple

import numpy as np

from experiments.benchmark import llama_cpp_peer
from experiments.benchmark import transformers_peer
from experiments.common import compare
from experiments.common import costs as costs_lib
from experiments.common import log
from experiments.common import measure
from experiments.common import ways as ways_lib
from specjax import checks
from specjax import metrics
from specjax import registry

_OURS = 'specjax'


class _Package(NamedTuple):
  """Another implementation."""

  module: str
  extra: str  # of setup.py
  peer: Callable[..., Any]


_PEERS = {
  'transformers': _Package('transformers', 'oracles', transformers_peer.Peer),
  'llama.cpp': _Package('llama_cpp', 'llama_cpp', llama_cpp_peer.Peer),
}


class _Player(NamedTuple):
  """An implementation that decodes in some way."""

  implementation: str
  way: ways_lib.Way
  generate: Callable[..., tuple[list[int], int]]


def prepare(config):
  """Returns the ways and prompts; plain decoding must be one of the ways."""
  checks.check_range('batch_size', config.batch_size, 1, 1)
  checks.check_range('repeats', config.repeats, 1)
  prepared = compare.plan(config)
  compare.check_labels(prepared, compare.REFERENCE)
  return prepared


def run(config, workdir):
  """Returns a row for each implementation and way, over all prompts.

  `block_efficiency` is tokens per target call, and `tokens_per_second` counts
  the reading of prompts; `speed_up` is over plain decoding of the same
  implementation, and `specjax_ratio` is what specjax has of them, in the same
  way, over what the row has. Of greedy ways, `same_outputs` counts the prompts
  whose tokens are those of specjax's plain decoding.

  Raises:
    ValueError: the config is wrong, or a peer is not installed.
  """
  peers = [_installed(name) for name in config.peers]
  made = prepare(config)
  places = [(each, job) for each in made.sets for job in each.jobs]
  texts = [job.turns[0] for _, job in places]
  costs = costs_lib.of(config, workdir, made.family, texts)
  session = _Session(config, made, peers, costs)
  shared = {name: config[name] for name in ('max_length', 'repeats')}
  units = [
    {
      'job': job.number,
      'prompts': prompts.settings,
      'ways': [way.settings for way in made.ways],
      'peers': list(config.peers),
      **shared,
    }
    for prompts, job in places
  ]
  jobs = [job for _, job in places]
  outcomes = log.resume(workdir, units, session.play, 'prompts', jobs)
  records = zip(*(outcome['records'] for outcome in outcomes))
  return _rows(list(records))


def _installed(name):
  """A peer of `_PEERS` that can be imported."""
  package = registry.lookup(_PEERS, 'peer', name)
  if not importlib.util.find_spec(package.module):
    raise ValueError(
      f'The comparison with {name} needs {package.module}: pip install -e '
      f"'.[{package.extra}]', or set peers."
    )
  return package.peer


class _Session:
  """Lets all implementations decode a prompt, in all ways, in turns."""

  def __init__(self, config, made, peers, costs):
    self._config, self._made = config, made
    self._peers, self._costs = peers, costs
    self._warm: set[int] = set()

  def play(self, job):
    """Decodes a prompt; returns what is logged: a record of each player."""
    (prompt,) = job.turns
    answers = {}

    def decode(place, generate):
      answers[place] = generate(prompt, job.number)

    calls = [
      functools.partial(decode, place, player.generate)
      for place, player in enumerate(self._players)
    ]
    # Programs that read prompts are of one width.
    width = (len(prompt) - 1).bit_length()
    new = width not in self._warm
    self._warm.add(width)
    seconds = measure.medians(calls, self._config.repeats, warm_up=new)
    records = [
      {
        'implementation': player.implementation,
        'way': player.way.label,
        'emitted': len(answers[place][0]),
        'calls': answers[place][1],
        'seconds': float(seconds[place]),
      }
      for place, player in enumerate(self._players)
    ]
    return {'records': self._compared(records, answers)}

  def _compared(self, records, answers):
    """Records of greedy ways, with whether tokens are those of plain ones."""
    labels = [way.label for way in self._made.ways]
    plain, _ = answers[labels.index(compare.REFERENCE)]
    for place, player in enumerate(self._players):
      if player.way.sampling.temperature == 0:
        records[place]['same'] = answers[place][0] == plain
    return records

  @functools.cached_property
  def _players(self):
    """Everyone who plays, specjax first; models are loaded here."""
    config, (family, ways, _) = self._config, self._made
    peers = [make(config, family) for make in self._peers]
    players = [_Player(_OURS, way, self._generator(way)) for way in ways]
    for peer in peers:
      found = [_Player(peer.label, way, peer.generator(way)) for way in ways]
      players += [player for player in found if player.generate is not None]
    return players

  def _generator(self, way):
    """What decodes a prompt here."""
    config, family = self._config, self._made.family
    player = ways_lib.build(way, family, config.max_length, self._costs)

    def generate(prompt, number):
      options = {'seed': config.seed, 'request_ids': [number]}
      (result,) = player.decoder.decode(
        [prompt], config.max_new_tokens, **options
      )
      return result.tokens, result.rounds

    return generate


def _rows(players):
  """A row for each player, of whose records there is one for each prompt."""
  sums = {}
  for records in players:
    name = records[0]['implementation'], records[0]['way']
    numbers = 'emitted', 'calls', 'seconds'
    sums[name] = [np.array([r[each] for r in records]) for each in numbers]
  rates = {name: (each[0], each[2]) for name, each in sums.items()}
  rows = []
  for (implementation, way), records in zip(sums, players):
    own = rates[implementation, way]
    plain = rates[implementation, compare.REFERENCE]
    emitted, calls, _ = sums[implementation, way]
    row = {'implementation': implementation, 'way': way}
    row |= {'decoded': len(records), 'tokens': int(emitted.sum())}
    row |= _with_error('block_efficiency', metrics.ratio(emitted, calls))
    row |= _with_error('tokens_per_second', metrics.ratio(*own))
    row |= _with_error('speed_up', metrics.ratio_of_ratios(own, plain))
    if implementation != _OURS:
      ratio = metrics.ratio_of_ratios(rates[_OURS, way], own)
      row |= _with_error('specjax_ratio', ratio)
    if 'same' in records[0]:
      row['same_outputs'] = sum(record['same'] for record in records)
    rows.append(row)
  return rows


def _with_error(name, measured):
  value, error = measured
  return {name: value, f'{name}_error': error}
