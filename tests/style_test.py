"""What holds for all code and prose: short functions, one word, one sense."""

import ast
import itertools
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[1]
PACKAGE = sorted((ROOT / 'specjax').rglob('*.py'))
PROSE = sorted(
  path
  for path in (
    *(ROOT / 'README.md',),
    *itertools.chain.from_iterable(
      (ROOT / folder).rglob(f'*.{kind}')
      for folder in (
        'specjax',
        'experiments',
        'configs',
        'tests',
        'colabs',
        'docs',
      )
      for kind in ('py', 'ipynb', 'md')
    ),
  )
  if path != pathlib.Path(__file__) and '.ipynb_checkpoints' not in path.parts
)

# Words that once meant something here, and what is said instead.
OLD_WORDS = {
  r'laws?|\w+_laws?|laws?_\w+|\w+Laws?': 'distribution, probs',
  r'untempered': 'raw',
  r'goals\.told': 'has_draft_probs',
  r'memories': 'state slots',
  r'base\.Committed|base\.Feedback': 'TargetProbs, RoundInfo',
  r'make_lesson|prompt_tokens': 'warm_start',
  r'make_row_play|make_play|play\.Played': 'ArmOutput',
  r'evidence': 'acceptance estimates',
  r'kv_cache\.keep|kv_cache\.Block': 'commit, Pending',
  r'caught_up': 'num_catch_up_tokens',
  r'clocked': 'throughput_learner',
  r'base\.(component|lookup|check_range|pad_to)': 'registry, checks, padding',
}


def _find(pattern):
  word = re.compile(rf'(?<![\w.])(?:{pattern})(?!\w)')
  return [
    f'{path.relative_to(ROOT)}:{number}: {line.strip()}'
    for path in PROSE
    for number, line in enumerate(
      path.read_text(encoding='utf-8').splitlines(), 1
    )
    if word.search(line)
  ]


@pytest.mark.parametrize('pattern', OLD_WORDS)
def test_no_old_word_is_left(pattern):
  assert not _find(pattern), f'say: {OLD_WORDS[pattern]}'


def _functions(path):
  for node in ast.walk(ast.parse(path.read_text(encoding='utf-8'))):
    if isinstance(node, ast.FunctionDef):
      yield node


def test_no_function_is_long():
  long = [
    f'{path.relative_to(ROOT)}: {function.name}'
    for path in PACKAGE
    for function in _functions(path)
    if function.end_lineno - function.lineno >= 60
  ]
  assert not long


def test_no_function_of_a_round_is_defined_inside_another():
  """A reader of the loop finds every step at the top of a file."""
  nested = [
    f'{path.relative_to(ROOT)}: {inner.name}'
    for path in (ROOT / 'specjax' / 'decoding').glob('*.py')
    for function in _functions(path)
    if path.name in ('round.py', 'arms.py', 'estimates.py', 'state.py')
    for inner in ast.walk(function)
    if isinstance(inner, ast.FunctionDef) and inner is not function
  ]
  assert not nested


def _public(path):
  """Functions and methods that a user may call."""
  tree = ast.parse(path.read_text(encoding='utf-8'))
  for node in tree.body:
    if isinstance(node, ast.FunctionDef):
      yield node, False
    if isinstance(node, ast.ClassDef) and not node.name.startswith('_'):
      for each in node.body:
        if isinstance(each, ast.FunctionDef):
          static = any(
            isinstance(mark, ast.Name) and mark.id == 'staticmethod'
            for mark in each.decorator_list
          )
          yield each, not static


def test_public_functions_are_annotated():
  bare = []
  for path in PACKAGE:
    for function, method in _public(path):
      if function.name.startswith('_'):
        continue
      args = function.args
      named = [*args.posonlyargs, *args.args, *args.kwonlyargs][method:]
      if function.returns is None or any(not arg.annotation for arg in named):
        bare.append(f'{path.relative_to(ROOT)}: {function.name}')
  assert not bare
