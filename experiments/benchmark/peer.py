"""The same weights in other implementations, which take turns prompt by prompt.

Of each method there is a row for specjax, and one for every other
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
from experiments.common import methods as methods_lib
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


class _Implementation(NamedTuple):
  """An implementation that decodes with a method."""

  name: str
  method: methods_lib.Method
  generate: Callable[..., tuple[list[int], int]]


def prepare(config):
  """Returns the methods, which must include plain decoding, and the prompts."""
  checks.check_range('batch_size', config.batch_size, 1, 1)
  checks.check_range('repeats', config.repeats, 1)
  prepared = compare.plan(config)
  compare.check_labels(prepared, compare.REFERENCE)
  return prepared


def run(config, workdir):
  """Returns a row for each implementation and method, over all prompts.

  `block_efficiency` is tokens per target call, and `tokens_per_second` counts
  the reading of prompts; `speed_up` is over plain decoding of the same
  implementation, and `specjax_ratio` is what specjax has of them, in the same
  method, over what the row has. Of greedy methods, `same_outputs` counts the
  prompts whose tokens are those of specjax's plain decoding.

  Raises:
    ValueError: the config is wrong, or a peer is not installed.
  """
  peers = [_installed(name) for name in config.peers]
  made = prepare(config)
  places = [(each, job) for each in made.prompt_sets for job in each.jobs]
  texts = [job.turns[0] for _, job in places]
  costs = costs_lib.of(config, workdir, made.family, texts)
  session = _Session(config, made, peers, costs)
  shared = {name: config[name] for name in ('max_length', 'repeats')}
  units = [
    {
      'job': job.number,
      'prompts': prompts.settings,
      'methods': [method.settings for method in made.methods],
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
  """Lets all implementations decode a prompt, with all methods, in turns."""

  def __init__(self, config, made, peers, costs):
    self._config, self._made = config, made
    self._peers, self._costs = peers, costs
    self._warm: set[int] = set()

  def play(self, job):
    """Decodes a prompt; returns a record per implementation, to be logged."""
    (prompt,) = job.turns
    answers = {}

    def decode(place, generate):
      answers[place] = generate(prompt, job.number)

    calls = [
      functools.partial(decode, place, implementation.generate)
      for place, implementation in enumerate(self._implementations)
    ]
    # Programs that read prompts are of one width.
    width = (len(prompt) - 1).bit_length()
    new = width not in self._warm
    self._warm.add(width)
    seconds = measure.medians(calls, self._config.repeats, warm_up=new)
    records = [
      {
        'implementation': implementation.name,
        'method': implementation.method.label,
        'emitted': len(answers[place][0]),
        'calls': answers[place][1],
        'seconds': float(seconds[place]),
      }
      for place, implementation in enumerate(self._implementations)
    ]
    return {'records': self._compared(records, answers)}

  def _compared(self, records, answers):
    """Adds to greedy methods' records whether tokens equal plain decoding's."""
    labels = [method.label for method in self._made.methods]
    plain, _ = answers[labels.index(compare.REFERENCE)]
    for place, implementation in enumerate(self._implementations):
      if implementation.method.sampling.temperature == 0:
        records[place]['same'] = answers[place][0] == plain
    return records

  @functools.cached_property
  def _implementations(self):
    """Everyone who plays, specjax first; models are loaded here."""
    config, (family, methods, _) = self._config, self._made
    peers = [make(config, family) for make in self._peers]
    implementations = [
      _Implementation(_OURS, method, self._generator(method))
      for method in methods
    ]
    for peer in peers:
      found = [
        _Implementation(peer.label, method, peer.generator(method))
        for method in methods
      ]
      implementations += [
        implementation
        for implementation in found
        if implementation.generate is not None
      ]
    return implementations

  def _generator(self, method):
    """What decodes a prompt here."""
    config, family = self._config, self._made.family
    decoder = methods_lib.build(
      method, family, config.max_length, self._costs
    ).decoder

    def generate(prompt, number):
      options = {'seed': config.seed, 'request_ids': [number]}
      (result,) = decoder.decode([prompt], config.max_new_tokens, **options)
      return result.tokens, result.rounds

    return generate


def _rows(implementations):
  """A row for each player, of whose records there is one for each prompt."""
  sums = {}
  for records in implementations:
    name = records[0]['implementation'], records[0]['method']
    numbers = 'emitted', 'calls', 'seconds'
    sums[name] = [np.array([r[each] for r in records]) for each in numbers]
  rates = {name: (each[0], each[2]) for name, each in sums.items()}
  rows = []
  for (implementation, method), records in zip(sums, implementations):
    own = rates[implementation, method]
    plain = rates[implementation, compare.REFERENCE]
    emitted, calls, _ = sums[implementation, method]
    row = {'implementation': implementation, 'method': method}
    row |= {'decoded': len(records), 'tokens': int(emitted.sum())}
    row |= _with_error('block_efficiency', metrics.ratio(emitted, calls))
    row |= _with_error('tokens_per_second', metrics.ratio(*own))
    row |= _with_error('speed_up', metrics.ratio_of_ratios(own, plain))
    if implementation != _OURS:
      ratio = metrics.ratio_of_ratios(rates[_OURS, method], own)
      row |= _with_error('specjax_ratio', ratio)
    if 'same' in records[0]:
      row['same_outputs'] = sum(record['same'] for record in records)
    rows.append(row)
  return rows


def _with_error(name, measured):
  value, error = measured
  return {name: value, f'{name}_error': error}
