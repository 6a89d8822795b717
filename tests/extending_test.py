"""The page about components of one's own: its code runs, its commands too."""

import contextlib
import json
import pathlib
import re
import shlex
import sys
from unittest import mock

from absl import flags
import pytest

from experiments import main
import specjax
from specjax import evaluation
from specjax import testing
from specjax.testing import toys

_ROOT = pathlib.Path(__file__).parents[1]
_PAGE = (_ROOT / 'docs' / 'extending.md').read_text(encoding='utf-8')
# The table of each new entry, its name and what the page defines.
_NEW = (
  (specjax.DRAFTERS, 'cycle', 'Cycle'),
  (specjax.DRAFTERS, 'recurrent', 'Recurrent'),
  (specjax.drafters.STOPS, 'collision', 'Collision'),
  (specjax.VERIFIERS, 'chain_sampling', 'ChainSampling'),
  (specjax.COUPLINGS, 'independent', 'Independent'),
  (specjax.GOALS, 'geometric', 'Geometric'),
  (specjax.BANDITS, 'win_stay', 'WinStay'),
  (specjax.REWARDS, 'concave', 'Concave'),
  (evaluation.METRICS, 'same_length', 'same_length'),
)


def _blocks(language):
  return re.findall(rf'^```{language}\n(.*?)^```', _PAGE, re.M | re.S)


def _file():
  """Returns the page's `mine.py`: all blocks that begin with a docstring."""
  return '\n\n'.join(block for block in _blocks('python') if block[:3] == '"""')


def test_the_page_has_a_check_for_every_kind():
  for name in (*testing.CHECKS, 'lossless'):
    assert f'`check_{name}`' in _PAGE
  for kind in testing.CHECKS:
    assert f'| {kind} |' in _PAGE


@pytest.fixture(autouse=True)
def _tables_as_before():
  """Whatever the page adds is removed again."""
  with contextlib.ExitStack() as stack:
    for table, *_ in _NEW:
      stack.enter_context(mock.patch.dict(table))
    yield


@pytest.mark.slow
def test_the_code_of_the_page_runs():
  """The checks are part of it."""
  namespace = {}
  for block in _blocks('python'):
    exec(compile(block, 'extending.md', 'exec'), namespace)
  for table, name, attribute in _NEW:
    assert table[name] is namespace[attribute]
  methods = namespace['get_config']().methods
  assert any('cycle' in method for method in methods)


@pytest.mark.slow
def test_the_commands_of_the_page_run(tmp_path, monkeypatch, capsys):
  """With a toy family; a word of the page is not changed otherwise."""
  drafters = dict.fromkeys(('small', 'medium', 'large'), 0.2)
  toys.write_family(tmp_path, drafters)
  (tmp_path / 'prompts.jsonl').write_text(
    '{"domain": "qa", "prompt": "one two"}\n'
    '{"domain": "code", "prompt": "a b a b"}\n'
  )
  (tmp_path / 'mine.py').write_text(_file())
  monkeypatch.chdir(tmp_path)
  monkeypatch.syspath_prepend(tmp_path)
  outputs = []
  for command in ''.join(_blocks('sh')).splitlines():
    command = command.replace('configs/', f'{_ROOT}/configs/')
    words = shlex.split(command)
    assert words[:3] == ['python', '-m', 'experiments.main']
    argv = [
      *('main.py', *words[3:], f'--config.family={tmp_path}'),
      *('--config.max_new_tokens=4', '--config.prompts_per_domain=1'),
    ]
    values = flags.FlagValues()
    main.parse_flags(argv, values)
    main.run(values.config, values.workdir, command)
    outputs.append(capsys.readouterr().out)
  del sys.modules['mine']
  imported, first, second, _ = outputs
  assert 'cycle(period=8):16' in imported and 'win_stay' not in imported
  assert 'win_stay' in first and 'medium:4~geometric(0.5)' in first
  assert 'win_stay(at_least=0.5)' in second
  assert 'are done already' in second
  run = tmp_path / 'runs' / 'mine'
  assert (run / 'block_efficiency.png').stat().st_size
  config = json.loads((run / 'config.json').read_text())
  assert 'verifier chain_sampling' in config['component_sources']


def test_what_is_wrong_is_said_as_the_page_says():
  words = re.search(r'`Cycle: (The draft.*?)[;`]', _PAGE, re.M | re.S)[1]
  source = pathlib.Path(testing.drafters.__file__).read_text()
  source_text = re.sub(r"'\s*'", '', source)
  assert ' '.join(words.split()) in source_text
