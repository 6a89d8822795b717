"""The code of the pages runs, and their commands are those that programs take.

That experiments run is shown by the tests of configs.
"""

import json
import pathlib
import re
import shlex
import sys

from absl import flags
import jax
import ml_collections
import pytest

from experiments import main
from experiments.common import compare
from experiments.common import workdirs
from specjax import families
from specjax import models
from specjax.data import examples as examples_lib
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import heads
from specjax.models.huggingface import servers
from specjax.testing import toys
from tests import smoke

pytestmark = pytest.mark.slow

_ROOT = pathlib.Path(__file__).parents[1]
# Pages whose code is run here; docs/extending.md has a test of its own.
_PAGES = (
  'README.md',
  'docs/experiments.md',
  'docs/models.md',
  'docs/serving.md',
  'docs/troubleshooting.md',
)


def _blocks(page, language):
  text = (_ROOT / page).read_text(encoding='utf-8')
  return re.findall(rf'^```{language}\n(.*?)^```', text, re.M | re.S)


def _run(page, namespace):
  """Runs a page's code, in order; JAX converts as it does by default."""
  with (
    jax.numpy_rank_promotion('allow'),
    jax.numpy_dtype_promotion('standard'),
  ):
    for block in _blocks(page, 'python'):
      exec(compile(block, page, 'exec'), namespace)
  return namespace


def test_the_twelve_lines(capsys):
  (block,) = _blocks('README.md', 'python')
  lines = [line for line in block.splitlines() if line.strip()]
  assert len(lines) == 12
  _run('README.md', {})
  *_, last_line = capsys.readouterr().out.splitlines()
  assert re.fullmatch(r'\d\.\d\d emitted tokens per target call', last_line)


def test_the_page_about_experiments(tmp_path):
  toys.write_family(tmp_path, dict.fromkeys(('small', 'medium', 'large'), 0.2))
  examples = [examples_lib.Example('qa', text) for text in ('one', 'two')]
  examples_lib.write(tmp_path / 'prompts.jsonl', examples)
  config = ml_collections.ConfigDict(
    {
      'experiment': 'toy',
      'family': str(tmp_path),
      'prompts': {'family': {}},
      'prompts_per_domain': 2,
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 3,
      'max_length': 32,
      'batch_size': 2,
      'seed': 0,
    }
  )
  namespace = _run('docs/experiments.md', {'config': config})
  assert len(compare.prepare(config).methods) == len(config.methods) + 3
  config.methods, config.bandits = ('none', 'small:2'), ()
  workdir = workdirs.Workdir(tmp_path / 'run', config)
  rows = namespace['run'](config, workdir)
  assert [row['longest'] for row in rows] == [3, 3]
  assert set(namespace['figures'](rows)) == {'longest'}


def test_the_page_about_models(tmp_path):
  namespace = _run('docs/models.md', {})
  namespace['export'](tmp_path)
  _, decoder = namespace['load_pair'](tmp_path, tmp_path)
  (tmp_path / 'bytes').mkdir()
  toys.write_family(tmp_path / 'bytes', {}, tokenizer=toys.chat_tokenizer())
  family = families.load(tmp_path / 'bytes')
  text = family.tokenizer, family.tokenizer.stop_tokens
  models.save(models.Checkpoint(*family.target, *text), tmp_path / 'other')
  _, other_decoder = namespace['load_other'](tmp_path, tmp_path / 'other')
  results = [d.decode([[1, 2, 3]], 8)[0] for d in (decoder, other_decoder)]
  assert [len(result.tokens) for result in results] == [8, 8]


def test_the_page_about_serving(tmp_path):
  """Commands of servers name the folders that the page's code writes."""
  layer = config_lib.TransformerConfig(
    vocab_size=13,
    num_layers=8,
    d_model=8,
    num_heads=2,
    num_kv_heads=1,
    head_dim=4,
    d_ff=12,
  )
  target = models.Checkpoint(layer, adapters.Transformer(layer), {})

  def head_of(kind, **options):
    config = heads.configure(kind, layer, **options)
    params = flax_modules.init_params(jax.random.key(0), config)
    return models.Head(config, heads.head(config), params)

  _run('docs/serving.md', namespace := {})
  save = namespace['save_for_servers']
  save(head_of('eagle3'), 'team/model', tmp_path / 'eagle3')
  block_head = head_of('dflash', for_servers=True, markov_rank=2)
  namespace['save_block_head'](block_head, target, tmp_path / 'dspark')
  lines = ''.join(_blocks('docs/serving.md', 'sh')).splitlines()
  words = [word for line in lines for word in shlex.split(line)]
  folders = re.findall(r'runs/served/([\w.]+)', ' '.join(words))
  for saved in tmp_path.iterdir():
    assert set(folders) == {path.name for path in saved.iterdir()}
  settings = [json.loads(word) for word in words if word.startswith('{')]
  # EAGLE-3's folder names its target, and EAGLE's command is that of EAGLE-3.
  kinds = {name: set(kinds) for name, kinds in servers.SERVERS.items()}
  methods = [fields['method'] for fields in settings]
  assert {*methods} == kinds['vllm'] - {'eagle3'}
  text = ' '.join(words).lower()
  algorithms = re.findall(r'--speculative-algorithm (\w+)', text)
  assert {*algorithms} == kinds['sglang'] - {'eagle'}
  assert {*re.findall(r'--spec-type draft-(\w+)', text)} == kinds['llama.cpp']


def test_the_page_about_troubleshooting():
  regrets = _run('docs/troubleshooting.md', {})['regrets']
  assert [len(regret) <= 32 for regret in regrets] == [True] * 4


# Commands.


def _commands():
  """Returns all commands of all pages, each as words."""
  pages = [*_ROOT.glob('*.md'), *(_ROOT / 'docs').rglob('*.md')]
  commands = {}
  for page in sorted(pages):
    name = page.relative_to(_ROOT).as_posix()
    for block in _blocks(name, 'bash'):
      for line in block.replace('\\\n', ' ').splitlines():
        for command in line.split(' && '):
          if command.strip():
            commands.setdefault(
              tuple(shlex.split(command, comments=True)), name
            )
  return {words: name for words, name in commands.items() if words}


_COMMANDS = _commands()
_EXPERIMENTS = [
  words for words in _COMMANDS if words[2:3] == ('experiments.main',)
]


def test_there_are_commands_of_known_kinds():
  """What installs and what tests is run wherever the tests are."""
  kinds = {
    ('pip', 'install'),
    ('python', '-m', 'build'),
    ('python', '-m', 'experiments.harness'),
    ('python', '-m', 'pytest'),
    ('python', '-m', 'mypy'),
    ('python', '-m', 'experiments.main'),
    ('python', '-m', 'experiments.report'),
    ('python', '-m', 'experiments.tensorboard'),
    ('python', '-m', 'specjax.families.fetch'),
    ('ruff', 'check'),
    ('ruff', 'format'),
    ('git', 'clone'),
    ('cd', 'specjax'),
  }
  for words, page in _COMMANDS.items():
    assert any(words[: len(kind)] == kind for kind in kinds), (page, words)
  assert len(_EXPERIMENTS) > 5


@pytest.fixture(scope='module', name='folder')
def _folder(tmp_path_factory):
  return smoke.toy_folder(tmp_path_factory)


@pytest.mark.parametrize('words', _EXPERIMENTS, ids=' '.join)
def test_a_command_is_parsed_and_prepared(words, folder, monkeypatch, capsys):
  """Uses toys for data and models; nothing is decoded."""
  argv = ['main.py', *words[3:]]
  for path, toy in (
    ('DATA|DRAFT', ''),
    (r'runs/\w*datastore\b', 'store'),
    ('runs/train_heads(?=/)', 'heads/heads'),
  ):
    argv = [re.sub(path, str(folder / toy), word) for word in argv]
  monkeypatch.setattr(sys, 'argv', argv)
  if '--help' in argv:
    with pytest.raises(SystemExit) as error:
      main.console()
    assert not error.value.code and 'ucb_spec' in capsys.readouterr().out
    return
  values = flags.FlagValues()
  assert main.parse_flags(argv, values) == ['main.py'] and values.workdir
  main.prepare(smoke.with_toys(values.config, folder))


def test_fields_that_are_set_beside_smoke_stay_as_they_are_set():
  argv = ['main.py', '--smoke', '--config=configs/quickstart.py']
  argv += ['--config.max_new_tokens=9', '--workdir=none']
  values = flags.FlagValues()
  assert main.parse_flags(argv, values) == ['main.py']
  assert (values.config.max_new_tokens, values.config.repeats) == (9, 1)
  assert values.config.prompts.family.limit == 4
  assert main.command_line(argv).startswith(
    'python -m experiments.main --smoke'
  )
