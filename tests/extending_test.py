"""The page about components of one's own: its code runs, its commands too."""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

import specjax
from specjax import testing
from specjax.testing import toys

_ROOT = pathlib.Path(__file__).parents[1]
_PAGE = (_ROOT / 'docs' / 'extending.md').read_text(encoding='utf-8')
_NEW = {
  'DRAFTERS': 'cycle',
  'COUPLINGS': 'independent',
  'GOALS': 'geometric',
  'BANDITS': 'win_stay',
  'REWARDS': 'concave',
}


def _blocks(language):
  return re.findall(rf'^```{language}\n(.*?)^```', _PAGE, re.M | re.S)


def _file():
  """`mine.py`, as the page has it: whatever begins with a docstring."""
  return '\n\n'.join(each for each in _blocks('python') if each[:3] == '"""')


def test_the_page_has_a_check_for_every_kind():
  for name in (*testing.CHECKS, 'lossless'):
    assert f'`check_{name}`' in _PAGE
  for kind in testing.CHECKS:
    assert f'| {kind} |' in _PAGE


@pytest.mark.slow
def test_the_code_of_the_page_runs(monkeypatch):
  """The checks are part of it."""
  for table, name in _NEW.items():
    # Set and removed again, whatever the page does.
    monkeypatch.setitem(getattr(specjax, table), name, None)
  namespace = {}
  for block in _blocks('python'):
    exec(compile(block, 'extending.md', 'exec'), namespace)
  for table, name in _NEW.items():
    assert getattr(specjax, table)[name] is namespace[name]
  ways = namespace['get_config']().ways
  assert any('cycle' in way for way in ways)


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path):
  """With a toy family; a word of the page is not changed otherwise."""
  drafters = dict.fromkeys(('small', 'medium', 'large'), 0.2)
  toys.write_family(tmp_path, drafters)
  (tmp_path / 'prompts.jsonl').write_text(
    '{"domain": "qa", "prompt": "one two"}\n'
    '{"domain": "code", "prompt": "a b a b"}\n'
  )
  (tmp_path / 'mine.py').write_text(_file())
  environment = os.environ | {'PYTHONPATH': str(_ROOT), 'JAX_PLATFORMS': 'cpu'}
  (block,) = _blocks('sh')
  said = []
  for command in block.splitlines():
    python, *words = shlex.split(command)
    assert python == 'python'
    done = subprocess.run(
      [
        *(sys.executable, *words, f'--config.family={tmp_path}'),
        *('--config.max_new_tokens=4', '--config.prompts_per_domain=1'),
      ],
      cwd=tmp_path,
      env=environment,
      capture_output=True,
      text=True,
    )
    assert not done.returncode, done.stderr
    said.append(done.stdout)
  assert 'win_stay' in said[0] and 'medium:4~geometric(0.5)' in said[0]
  assert 'win_stay(at_least=0.5)' in said[1] and 'are done already' in said[1]
  assert (tmp_path / 'runs' / 'mine' / 'block_efficiency.png').stat().st_size


def test_what_is_wrong_is_said_as_the_page_says():
  words = re.search(r'^`cycle: (The draft.*?)[;`]', _PAGE, re.M | re.S)[1]
  source = pathlib.Path(testing.drafters.__file__).read_text()
  said = re.sub(r"'\s*'", '', source)
  assert ' '.join(words.split()) in said
