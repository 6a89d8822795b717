"""Compares specjax with other implementations on the same weights.

Implementations are interleaved prompt by prompt. Each method has a row for
specjax, and one for every other implementation that supports it.
"""

from collections.abc import Callable
import functools
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
from specjax import optional
from specjax import registry

_OURS = 'specjax'


class _Package(NamedTuple):
  """Another implementation."""

  module: str
  extra: str  # the extra of setup.py that installs it
  peer: Callable[..., Any]


_PEERS = {
  'transformers': _Package('transformers', 'oracles', transformers_peer.Peer),
  'llama.cpp': _Package('llama_cpp', 'llama-cpp', llama_cpp_peer.Peer),
}


class _Implementation(NamedTuple):
  """An implementation and one of its methods."""

  name: str
  method: methods_lib.Method
  generate: Callable[..., tuple[list[int], int]]


def prepare(config):
  """Returns the methods, which must include plain decoding, and the prompts."""
  checks.check_range('batch_size', config.batch_size, 1, 1)
  checks.check_range('repeats', config.repeats, 1)
  setup = compare.prepare(config)
  compare.check_labels(setup, compare.REFERENCE)
  compare.check_labels_differ(setup)
  return setup


def run(config, workdir):
  """Returns a row per implementation and method, over all prompts.

  `block_efficiency` is emitted tokens per target call. `tokens_per_second`
  includes prefill, `speed_up` is relative to plain decoding with the same
  implementation, and `specjax_ratio` is the speed of specjax with the same
  method over that of the row. For greedy methods, `same_outputs` counts the
  prompts whose tokens equal those of specjax's plain decoding.

  Raises:
    ValueError: the config is wrong, or a peer is not installed.
  """
  peers = [_installed(name) for name in config.peers]
  setup = prepare(config)
  pairs = [
    (prompts, job) for prompts in setup.prompt_sets for job in prompts.jobs
  ]
  texts = [job.turns[0] for _, job in pairs]
  costs = costs_lib.cost_function(config, workdir, setup.family, texts)
  session = _Session(config, setup, peers, costs)
  names = 'max_length', 'repeats'
  shared = measure.unit({name: config[name] for name in names})
  units = [
    {
      'job': job.number,
      'prompts': prompts.settings,
      'methods': [method.settings for method in setup.methods],
      'peers': list(config.peers),
      **shared,
    }
    for prompts, job in pairs
  ]
  jobs = [job for _, job in pairs]
  outcomes = log.resume(workdir, units, session.decode, 'prompts', jobs)
  records = zip(*(outcome['records'] for outcome in outcomes))
  return _rows(list(records))


def _installed(name: str) -> Callable[..., Any]:
  """Returns a peer of `_PEERS`, if it can be imported."""
  package = registry.lookup(_PEERS, 'peer', name)
  optional.load(package.module, package.extra, f'The comparison with {name}')
  return package.peer


class _Session:
  """Decodes prompts with all implementations and methods, interleaved."""

  def __init__(self, config, setup, peers, costs):
    self._config, self._setup = config, setup
    self._peers, self._costs = peers, costs
    self._warm: set[int] = set()

  def decode(self, job):
    """Decodes a prompt; returns a record per implementation, to be logged."""
    (prompt,) = job.turns
    answers = {}

    def decode(index, generate):
      answers[index] = generate(prompt, job.number)

    calls = [
      functools.partial(decode, index, implementation.generate)
      for index, implementation in enumerate(self._implementations)
    ]
    # Prefill compiles one program per width.
    # A new width needs a warm-up.
    width = (len(prompt) - 1).bit_length()
    new = width not in self._warm
    self._warm.add(width)
    seconds = measure.medians(calls, self._config.repeats, warm_up=new)
    records = [
      {
        'implementation': implementation.name,
        'method': implementation.method.label,
        'emitted': len(answers[index][0]),
        'calls': answers[index][1],
        'seconds': float(seconds[index]),
      }
      for index, implementation in enumerate(self._implementations)
    ]
    return {'records': self._compared(records, answers)}

  def _compared(
    self, records: list[dict[str, Any]], answers: dict[int, Any]
  ) -> list[dict[str, Any]]:
    """Adds to greedy methods' records whether tokens equal plain decoding's."""
    labels = [method.label for method in self._setup.methods]
    plain, _ = answers[labels.index(compare.REFERENCE)]
    for index, implementation in enumerate(self._implementations):
      if implementation.method.sampling.temperature == 0:
        records[index]['same'] = answers[index][0] == plain
    return records

  @functools.cached_property
  def _implementations(self) -> list[_Implementation]:
    """Returns all implementations, specjax first; this loads their models."""
    config, (family, methods, _) = self._config, self._setup
    peers = [make(config, family) for make in self._peers]
    implementations = [
      _Implementation(_OURS, method, self._generator(method))
      for method in methods
    ]
    for peer in peers:
      candidates = [
        _Implementation(peer.label, method, peer.generator(method))
        for method in methods
      ]
      implementations += [
        implementation
        for implementation in candidates
        if implementation.generate is not None
      ]
    return implementations

  def _generator(
    self, method: methods_lib.Method
  ) -> Callable[..., tuple[list[int], int]]:
    """Returns a function that decodes a prompt with specjax."""
    config, family = self._config, self._setup.family
    decoder = methods_lib.build(
      method, family, config.max_length, self._costs
    ).decoder

    def generate(prompt, number):
      options = {'seed': config.seed, 'request_ids': [number]}
      (result,) = decoder.decode([prompt], config.max_new_tokens, **options)
      return result.tokens, result.rounds

    return generate


def _rows(
  records_by_implementation: list[tuple[dict[str, Any], ...]],
) -> list[dict[str, Any]]:
  """Returns a row per implementation and method, from one record per prompt."""
  sums = {}
  for records in records_by_implementation:
    name = records[0]['implementation'], records[0]['method']
    numbers = 'emitted', 'calls', 'seconds'
    sums[name] = [np.array([r[field] for r in records]) for field in numbers]
  rates = {name: (columns[0], columns[2]) for name, columns in sums.items()}
  rows = []
  for (implementation, method), records in zip(sums, records_by_implementation):
    rate = rates[implementation, method]
    plain = rates[implementation, compare.REFERENCE]
    emitted, calls, _ = sums[implementation, method]
    row = {'implementation': implementation, 'method': method}
    row |= {'decoded': len(records), 'tokens': int(emitted.sum())}
    row |= _with_error('block_efficiency', metrics.ratio(emitted, calls))
    row |= _with_error('tokens_per_second', metrics.ratio(*rate))
    row |= _with_error('speed_up', metrics.ratio_of_ratios(rate, plain))
    if implementation != _OURS:
      ratio = metrics.ratio_of_ratios(rates[_OURS, method], rate)
      row |= _with_error('specjax_ratio', ratio)
    if 'same' in records[0]:
      row['same_outputs'] = sum(record['same'] for record in records)
    rows.append(row)
  return rows


def _with_error(name: str, measured: tuple[float, float]) -> dict[str, float]:
  value, error = measured
  return {name: value, f'{name}_error': error}
