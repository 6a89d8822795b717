"""How many kernels a round launches beside its model calls.

Times differ from run to run; these numbers do not. An XLA that fuses otherwise
may change them: then look at what a round does before a bound is moved.
"""

import collections
import re

import jax
import jax.numpy as jnp
import pytest

import specjax
from specjax import base
from specjax import decoding
from specjax import drafters
from specjax import families
from specjax import sampling as sampling_lib
from specjax import trees
from specjax import verifiers
from specjax.decoding import estimates
from tests import xla

_CALL = 'model_call'
# What launches nothing by itself.
_FREE = {
  'bitcast',
  'conditional',
  'constant',
  'get-tuple-element',
  'parameter',
  'tuple',
  'while',
}
_INSTRUCTION = re.compile(
  r'\s+(?:ROOT )?%?(?P<name>[\w.\-]+) = '
  r'(?:\((?:[^()]|\([^()]*\))*\)|\S+) (?P<kind>[\w\-]+)\((?P<rest>.*)'
)


def _named(model):
  """The model, whose calls can be found in a compiled program."""

  def extend(*args, **kwargs):
    with jax.named_scope(_CALL):
      return model.extend(*args, **kwargs)

  return model._replace(extend=extend)


def _computations(text):
  """`{computation: {instruction: (kind, rest of its line)}}`."""
  computations, here = {}, None
  for line in text.splitlines():
    if line.endswith('{') and not line.startswith(' '):
      name = line.removeprefix('ENTRY ').split()[0].lstrip('%')
      here = computations.setdefault(name, {})
    elif here is not None and (found := _INSTRUCTION.match(line)):
      here[found['name']] = found['kind'], found['rest']
  return computations


def _callees(kind, rest):
  """The computations of loops and choices."""
  if kind not in ('while', 'conditional'):
    return []
  branches = ','.join(re.findall(r'branch_computations=\{([^}]*)\}', rest))
  named = re.findall(
    r'(?:body|condition|true_computation|false_computation)=%?([\w.\-]+)', rest
  )
  return named + [each.strip(' %') for each in branches.split(',') if each]


def _of_models(instructions):
  """Those of model calls; XLA forgets the names of some, but not of all."""
  operands = {
    name: [
      each for each in re.findall(r'[\w.\-]+', rest) if each in instructions
    ]
    for name, (_, rest) in instructions.items()
  }
  near = collections.defaultdict(set)
  for name, others in operands.items():
    for other in others:
      near[name].add(other)
      near[other].add(name)
  found = {
    name for name, (_, rest) in instructions.items() if f'/{_CALL}/' in rest
  }
  left = list(found)
  while left:
    for name in near[left.pop()] - found:
      kind, rest = instructions[name]
      if kind not in _FREE and 'op_name' not in rest:
        found.add(name)
        left.append(name)
  return found


def num_kernels(text: str) -> int:
  """Kernels of the loop of a compiled `decode`, each counted once.

  Args:
    text: of the program, whose models are `_named`.
  """
  computations = _computations(text)
  entry = re.search(r'^ENTRY %?([\w.\-]+)', text, re.M)[1]
  loops = [each for each in computations[entry].values() if each[0] == 'while']
  left, num = [name for each in loops for name in _callees(*each)], 0
  while left:
    instructions = computations[left.pop()]
    models = _of_models(instructions)
    for name, (kind, rest) in instructions.items():
      if name not in models:
        num += kind not in _FREE
        left += _callees(kind, rest)
  return num


def _decoder(temperature, options, lengths=()):
  """Of the mini family; with a bandit over draft lengths, if there are some."""
  family = families.load('mini')
  target, draft = family.target, family.drafters['medium']
  model, sampling = _named(draft.functions), sampling_lib.Sampling(temperature)
  if not lengths:
    return specjax.speculative(
      _named(target.functions),
      target.params,
      *((model, draft.params) if options else (None, None)),
      sampling=sampling,
      **options,
    )
  arms = [
    specjax.Arm(
      drafters.DRAFTERS['autoregressive'](model, trees.chain(length), sampling),
      verifiers.resolve('maximal'),
    )
    for length in lengths
  ]
  return specjax.Decoder(
    _named(target.functions),
    target.params,
    [(arm, draft.params) for arm in arms],
    bandit=specjax.BANDITS['ucb1'](len(arms)),
    sampling=sampling,
    **options,
  )


def _count(*args):
  decoder = _decoder(*args)
  state = decoder.init([[1, 2, 3]], 64)
  lowered = decoding.decode.lower(decoder.round_fn, decoder.params, state)
  return num_kernels(xla.compile_as_usual(lowered).as_text())


CHAIN = {'draft_length': 4}
SLOW = pytest.mark.slow


@pytest.mark.parametrize(
  ('args', 'most'),
  [
    pytest.param((0.0, {}), 33, id='plain'),
    pytest.param((0.0, CHAIN), 78, id='greedy'),
    pytest.param((1.0, CHAIN), 188, id='maximal'),
    pytest.param(
      (1.0, CHAIN | {'verifier': 'block'}), 166, id='block', marks=SLOW
    ),
    pytest.param(
      (1.0, CHAIN | {'num_drafts': 4, 'verifier': 'otm'}),
      330,
      id='otm',
      marks=SLOW,
    ),
    pytest.param((1.0, {}, (2, 4)), 333, id='bandit', marks=SLOW),
  ],
)
def test_a_round_launches_few_kernels_beside_its_model_calls(args, most):
  assert _count(*args) <= most


def _no_acceptance(tree, sampled, outcome):
  """What `estimates.of_tree` would return, of nothing."""
  del sampled
  rows, places = jnp.zeros(len(tree.tokens)), jnp.zeros(outcome.entries.shape)
  return estimates.Acceptance(
    mean=base.Probs(rows, rows),
    at=base.Probs(places, places),
    known=places > 0,
  )


@SLOW
def test_what_a_reward_asks_for_is_counted(monkeypatch):
  """Acceptance is computed for those rewards only that read it."""
  asked = {'reward': specjax.REWARDS['block_divergence']()}
  without = _count(1.0, {}, (2, 4))
  assert _count(1.0, asked, (2, 4)) > without + 4
  jax.clear_caches()  # Programs of equal rounds are shared.
  with monkeypatch.context() as patch:
    patch.setattr(estimates, 'of_tree', _no_acceptance)
    assert _count(1.0, {}, (2, 4)) == without
  jax.clear_caches()
