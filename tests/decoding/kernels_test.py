"""Bounds the number of kernels of a round, other than those of model calls.

Unlike times, these numbers are deterministic. A version of XLA that fuses
differently may change them; inspect the round before you raise a bound.
"""

import collections
import functools
import re

import jax
import pytest

import specjax
from specjax import components
from specjax import drafters
from specjax import families
from tests import arms
from tests.decoding import drivers_test

pytestmark = pytest.mark.slow

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


@components.component
class _Named(specjax.models.ModelWrapper):
  """A model whose calls can be found in a compiled program."""

  def extend(self, *args, **options):
    with jax.named_scope(_CALL):
      return self.model.extend(*args, **options)


def _computations(text):
  """Returns `{computation: {instruction: (kind, attributes)}}`."""
  computations, instructions = {}, None
  for line in text.splitlines():
    if line.endswith('{') and not line.startswith(' '):
      name = line.removeprefix('ENTRY ').split()[0].lstrip('%')
      instructions = computations.setdefault(name, {})
    elif instructions is not None and (match := _INSTRUCTION.match(line)):
      instructions[match['name']] = match['kind'], match['rest']
  return computations


def _callees(kind, attributes):
  """Returns the computations that a loop or a conditional calls."""
  if kind not in ('while', 'conditional'):
    return []
  branches = ','.join(
    re.findall(r'branch_computations=\{([^}]*)\}', attributes)
  )
  named = re.findall(
    r'(?:body|condition|true_computation|false_computation)=%?([\w.\-]+)',
    attributes,
  )
  return named + [
    branch.strip(' %') for branch in branches.split(',') if branch
  ]


def _of_models(instructions):
  """Returns the names of instructions that belong to model calls.

  XLA drops the metadata of some of them, but never of all.
  """
  operands = {
    name: [
      operand
      for operand in re.findall(r'[\w.\-]+', attributes)
      if operand in instructions
    ]
    for name, (_, attributes) in instructions.items()
  }
  near = collections.defaultdict(set)
  for name, operand_names in operands.items():
    for operand in operand_names:
      near[name].add(operand)
      near[operand].add(name)
  model_names = {
    name
    for name, (_, attributes) in instructions.items()
    if f'/{_CALL}/' in attributes
  }
  pending = list(model_names)
  while pending:
    for name in near[pending.pop()] - model_names:
      kind, attributes = instructions[name]
      if kind not in _FREE and 'op_name' not in attributes:
        model_names.add(name)
        pending.append(name)
  return model_names


def num_kernels(text: str) -> int:
  """Returns the number of kernels in the loop of a compiled `decode`.

  Args:
    text: The text of the program, whose models are `_Named`.
  """
  computations = _computations(text)
  entry = re.search(r'^ENTRY %?([\w.\-]+)', text, re.M)[1]
  loops = [
    instruction
    for instruction in computations[entry].values()
    if instruction[0] == 'while'
  ]
  pending, num = (
    [name for instruction in loops for name in _callees(*instruction)],
    0,
  )
  while pending:
    instructions = computations[pending.pop()]
    models = _of_models(instructions)
    for name, (kind, attributes) in instructions.items():
      if name not in models:
        num += kind not in _FREE
        pending += _callees(kind, attributes)
  return num


@functools.cache
def _models():
  """Returns the mini family's target and drafter, wrapped in `_Named`."""
  family = families.load('mini')
  models = family.target, family.drafters['medium']
  return [(_Named(entry.model), entry.params) for entry in models]


def _count(*args, **options):
  decoder = arms.decoder(
    *args, target=_models()[0], **{'max_length': 512} | options
  )
  _, loop = drivers_test.compiled_loop(decoder, [[1, 2, 3]])
  return num_kernels(loop.as_text())


def _chains(*args, **options):
  return arms.chains(*args, draft=_models()[1], **options)


@pytest.mark.parametrize(
  ('build', 'temperature', 'max_kernels'),
  [
    (lambda: arms.arm(drafters.NoDrafter(), verifier='greedy'), 0.0, 33),
    (lambda: _chains(1, 4, temperature=0.0), 0.0, 78),
    (lambda: _chains(1, 4), 1.0, 188),
    (lambda: _chains(1, 4, verifier='block'), 1.0, 166),
    (lambda: _chains(4, 4), 1.0, 330),
  ],
  ids=['plain', 'greedy', 'maximal', 'block', 'otm'],
)
def test_a_round_launches_few_kernels_beside_its_model_calls(
  build, temperature, max_kernels
):
  assert _count(build(), temperature=temperature) <= max_kernels


def test_a_bandit_launches_few_kernels_and_acceptance_only_if_asked():
  """Acceptance is computed only for rewards that use it."""
  count = functools.partial(_count, _chains(1, 2), _chains(1, 4), bandit='ucb1')
  num_without_acceptance = count()
  assert num_without_acceptance <= 333
  num_with_acceptance = count(reward=specjax.rewards.BlockDivergence())
  assert num_with_acceptance > num_without_acceptance + 4


def test_arms_of_one_rule_launch_few_kernels_for_their_numbers():
  """They are verified at once, each row with the numbers of its arm."""

  def count(*alphas):
    return _count(
      *(
        _chains(1, 2, goal=specjax.goals.Chow(alpha), bonus_probs=True)
        for alpha in alphas
      ),
      bandit='ucb1',
      per_row=True,
    )

  assert count(0.1, 0.3) <= count(0.3, 0.3) + 4
