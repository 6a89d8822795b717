"""The command line: configs, flags, sweeps, help, and folders of runs."""

import functools
import glob
import importlib
from importlib import metadata
import io
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import types

from absl import flags as absl_flags
import ml_collections
import pytest

import experiments
from experiments import main
from experiments.common import configs
from experiments.common import locks
from experiments.common import log
from experiments.common import results
from experiments.common import sweeps
from experiments.common import terminal
from experiments.common import workdirs
import specjax

_ROOT = pathlib.Path(__file__).parents[2]


# What is asked for wrongly, and what is answered.


def test_help_lists_configs_and_components_on_a_screen():
  output = main.usage()
  for path, line in configs.titles().items():
    folder, _, name = path.rpartition('/')
    if folder == 'configs':
      assert f'{path} ' in output and line in output and line, path
    else:
      (names,) = re.findall(rf'{folder}/: ((?:.+\n    )*.+)', output)
      assert name.removesuffix('.py') in re.split(r',\s+', names), path
  assert len(output.splitlines()) <= 60
  for name in ('ucb_spec', 'otm', 'prompt_lookup', 'token_v3', 'prefix_tree'):
    assert name in output


_QUICKSTART = '--config=configs/quickstart.py'


@pytest.mark.parametrize(
  ('path', 'nearest'),
  [
    ('configs/decod.py', 'configs/decode.py'),
    ('decode.py', 'configs/decode.py'),
    ('configs/decode', 'configs/decode.py'),
    ('configs/eagle.py', 'configs/train/heads/eagle.py'),
    ('configs/languges.py', 'configs/metasd/languages.py'),
    ('configs/train.py', 'configs/train/target.py'),
    ('zzz', None),
  ],
)
def test_an_unknown_config_is_answered_with_the_nearest(path, nearest):
  with pytest.raises(ValueError) as error_info:
    configs.load(path)
  message = str(error_info.value)
  assert message.startswith(f'There is no config {path!r}; ')
  assert message.endswith(' --help lists all.') and message.count('.py') < 12
  assert (nearest is None) == ('nearest' not in message)
  if nearest is not None:
    assert f' {nearest},' in message


@pytest.mark.parametrize('flag', ['--help', '-h'])
@pytest.mark.parametrize(
  ('path', 'words'),
  [
    ('configs/decode.py', ['arms = (', 'sampling.top_p = 1.0', '--workdir']),
    (
      'configs/train/heads/eagle.py',
      ['heads.eagle_first.options.head_size = ', 'Variants:'],
    ),
  ],
)
def test_help_of_a_config_describes_it(path, words, flag, capsys):
  with pytest.raises(SystemExit) as error_info:
    main._parse(['main.py', f'--config={path}', flag])
  assert error_info.value.code == 0
  output = capsys.readouterr().out
  assert output.startswith(configs.docstring(path))
  for word in words:
    assert word in output
  assert 'Components, by kind' not in output


def test_help_of_a_folder_lists_its_configs(capsys):
  with pytest.raises(SystemExit) as error_info:
    main._parse(['main.py', '--config=configs/train', '--help'])
  assert error_info.value.code == 0
  output = capsys.readouterr().out
  for path, line in configs.titles().items():
    assert (path in output and line in output) == path.startswith(
      'configs/train/'
    )
  with pytest.raises(SystemExit, match="There is no config 'docs'"):
    main._parse(['main.py', '--config=docs', '--help'])


def test_components_of_imported_modules_are_in_the_tables(
  tmp_path, monkeypatch
):
  (tmp_path / 'mine.py').write_text(
    "import specjax\nspecjax.GOALS['mine'] = specjax.GOALS['lossy']\n"
  )
  monkeypatch.syspath_prepend(tmp_path)
  monkeypatch.setattr(specjax, 'GOALS', dict(specjax.GOALS))
  config = _toy(monkeypatch)
  config.imports = ('mine',)
  main.prepare(config)
  assert 'mine' in specjax.GOALS
  config.imports = ('mine.other',)
  with pytest.raises(ValueError, match="imports must .* got 'mine.other'"):
    main.prepare(config)
  del sys.modules['mine']
  assert configs.load('configs/compare.py').imports == ()


@pytest.mark.parametrize(
  ('flags', 'sentence'),
  [
    ([_QUICKSTART, '--config.sampling.heat=0'], 'Unknown config field'),
    ([_QUICKSTART, '--config.sweep={}'], 'sweep must hold at least one'),
  ],
)
def test_bad_flags_end_in_a_sentence_and_leave_nothing(
  flags, sentence, tmp_path
):
  """Covers errors while flags are parsed and while the experiment runs."""
  process = subprocess.run(
    [sys.executable, '-m', 'experiments.main', *flags]
    + [f'--workdir={tmp_path / "run"}'],
    cwd=_ROOT,
    capture_output=True,
    text=True,
  )
  assert process.returncode != 0
  assert f'Error: {sentence}' in process.stderr, process.stderr
  assert 'Traceback' not in process.stderr
  assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
  ('flags', 'sentence'),
  [
    (['--config=configs/nothing.py'], 'There is no config'),
    (['--config=configs/decode.py:x'], 'takes no argument'),
    (
      [_QUICKSTART, '--config.sampling.temprature=0'],
      "Unknown config field 'sampling.temprature'. Known: ",
    ),
    (
      [_QUICKSTART, '--config.sampling.temperature=-1.0'],
      r'temperature must be 0 \(greedy\)',
    ),
    (
      [_QUICKSTART, "--config.methods=('medum:4',)"],
      r"methods\[0\] 'medum:4': Unknown drafter 'medum'. Known: ",
    ),
    (
      [_QUICKSTART, "--config.sweep={'seed': (1, 1)}"],
      'sweep of seed holds 1 twice.',
    ),
  ],
)
def test_bad_flags_raise(flags, sentence, tmp_path):
  values = absl_flags.FlagValues()
  workdir = tmp_path / 'run'
  with pytest.raises(ValueError, match=sentence):
    main.parse_flags(['main.py', *flags, f'--workdir={workdir}'], values)
    main.run(values.config, values.workdir)
  assert not workdir.exists()


@pytest.mark.parametrize('has_flag', [True, False])
def test_command_buffers_are_enabled_before_a_run(
  monkeypatch, tmp_path, has_flag
):
  calls, values = [], absl_flags.FlagValues()
  monkeypatch.setattr(absl_flags, 'FLAGS', values)
  for module, name in (
    (main.programs, 'keep'),
    (main.command_buffers, 'enable'),
    (main, 'run'),
  ):
    call = lambda *args, name=name: calls.append(name)
    monkeypatch.setattr(module, name, call)
  words = [
    _QUICKSTART,
    f'--workdir={tmp_path}',
    *['--command_buffers'] * has_flag,
  ]
  main.parse_flags(['main.py', *words], values)
  main._main(['main.py'], '')
  assert calls == ['keep', *['enable'] * has_flag, 'run']


def test_an_unknown_experiment_is_answered_with_the_known(tmp_path):
  config = ml_collections.ConfigDict({'experiment': 'nothing'})
  with pytest.raises(ValueError, match='Known: .*compare.*quickstart'):
    main.run(config, tmp_path)
  for name in configs.experiments():
    assert callable(importlib.import_module(f'experiments.{name}').run)


# Workdirs, of a toy in the place of an experiment.


def _toy(monkeypatch, **constants):
  """Registers a toy as an experiment and returns its config."""
  module = types.SimpleNamespace(run=_run_toy, **constants)
  monkeypatch.setitem(sys.modules, 'experiments.toy', module)
  return ml_collections.ConfigDict(
    {'experiment': 'toy', 'sizes': (1, 2), 'inner': {'rate': 0.5}, 'seed': 0}
  )


def _run_toy(config, workdir):
  """Resumes a run with one row per size; size 13 raises an interrupt."""
  if config.seed < 0:
    raise ValueError(f'seed must be >= 0, got {config.seed}.')

  def measure(unit):
    if unit['size'] == 13:
      raise KeyboardInterrupt
    return {'double': 2 * unit['size'], 'rate': config.inner.rate}

  units = [{'size': size, 'rate': config.inner.rate} for size in config.sizes]
  outcomes = log.resume(workdir, units, measure)
  return [
    {'size': unit['size']} | outcome for unit, outcome in zip(units, outcomes)
  ]


def _rows(config, workdir):
  main.run(config, workdir)
  return results.read(workdir)['rows']


def _lines(workdir):
  return (workdir / log.FILE).read_text().splitlines()


def test_a_refused_run_leaves_no_folder(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.seed = -1
  with pytest.raises(ValueError, match='seed'):
    main.run(config, tmp_path / 'a' / 'b')
  assert not list(tmp_path.iterdir())
  config.seed = 0
  assert len(_rows(config, tmp_path / 'a' / 'b')) == 2
  saved_config = json.loads((tmp_path / 'a' / 'b' / 'config.json').read_text())
  assert saved_config == json.loads(config.to_json())


def test_other_settings_are_refused_before_anything_is_touched(
  tmp_path, monkeypatch
):
  config = _toy(monkeypatch)
  main.run(config, tmp_path)
  contents = {path: path.read_bytes() for path in tmp_path.iterdir()}
  assert len(contents) == 3
  config.seed = 1
  config.inner.rate = 0.25
  config.inner.more = 'x'
  with pytest.raises(ValueError) as error_info:
    main.run(config, tmp_path)
  assert str(error_info.value) == (
    f'{tmp_path} holds a run with other settings: inner.rate is 0.5 there and '
    '0.25 here; seed is 0 there and 1 here; inner.more is not set there and '
    '"x" here. Use another workdir, or delete this one.'
  )
  assert contents == {path: path.read_bytes() for path in tmp_path.iterdir()}


def test_of_another_experiment_only_that_is_said(tmp_path, monkeypatch):
  main.run(_toy(monkeypatch), tmp_path)
  other_config = configs.load(str(_ROOT / 'configs' / 'quickstart.py'))
  with pytest.raises(ValueError) as error_info:
    main.run(other_config, tmp_path)
  assert str(error_info.value) == (
    f'{tmp_path} holds a run with other settings: experiment is "toy" there '
    'and "quickstart" here. Use another workdir, or delete this one.'
  )


def test_a_spoilt_config_is_named(tmp_path, monkeypatch):
  (tmp_path / 'config.json').write_text('{"seed": ')
  with pytest.raises(ValueError, match=f'Cannot read {tmp_path}/config.json'):
    main.run(_toy(monkeypatch), tmp_path)


def test_files_of_an_older_format_are_refused(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  main.run(config, tmp_path)
  (tmp_path / log.FILE).write_text('{"size": 1}\n')
  with pytest.raises(ValueError, match='has an older format: use another'):
    main.run(config, tmp_path)
  (tmp_path / results.FILE).write_text('[{"size": 1}]')
  with pytest.raises(ValueError, match='format 1, but only format 2 is supp'):
    results.read(tmp_path)
  with pytest.raises(ValueError, match='There are no results in'):
    results.read(tmp_path / 'nowhere')


def test_what_is_done_is_not_done_again(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  for _ in range(2):
    assert len(_rows(config, tmp_path)) == len(_lines(tmp_path)) == 2
  # A torn line is ignored.
  path = tmp_path / log.FILE
  path.write_text(path.read_text()[:-3])
  assert len(_rows(config, tmp_path)) == len(_lines(tmp_path)) == 2


def test_named_fields_may_change_and_the_config_is_that_of_the_results(
  tmp_path, monkeypatch
):
  config = _toy(monkeypatch, MAY_CHANGE=('sizes',))
  main.run(config, tmp_path)
  config.sizes = (2, 3)
  assert [row['size'] for row in _rows(config, tmp_path)] == [2, 3]
  saved_config = json.loads((tmp_path / 'config.json').read_text())
  assert saved_config['sizes'] == [2, 3]
  assert len(_lines(tmp_path)) == 3  # Sizes 1, 2 and 3.


def test_a_killed_run_has_no_results_of_another_config(tmp_path, monkeypatch):
  config = _toy(monkeypatch, MAY_CHANGE=('sizes',))
  main.run(config, tmp_path)
  config.sizes = (1, 3, 13)
  with pytest.raises(KeyboardInterrupt):
    main.run(config, tmp_path)
  saved_config = json.loads((tmp_path / 'config.json').read_text())
  assert saved_config['sizes'] == [1, 3, 13]
  assert len(_lines(tmp_path)) == 3
  assert not (tmp_path / results.FILE).exists()


def test_two_equal_points_are_refused(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.sizes = (1, 2, 1)
  with pytest.raises(
    ValueError, match='Two units of work are the same: .*"size": 1'
  ):
    main.run(config, tmp_path)


# Files and machines as they are.


def _in_the_way(name):
  def make(folder):
    (folder / name).mkdir(parents=True)
    return folder

  return make


def _file(folder):
  folder.write_text('x')
  return folder


@pytest.mark.parametrize(
  ('make', 'sentence'),
  [
    (_file, 'workdir must be a folder that can be written, got {}: File'),
    (
      lambda folder: _file(folder) / 'a' / 'b',
      'workdir must be a folder that can be written, got {}: Not a dir',
    ),
    (
      lambda folder: folder / ('x' * 300),
      'workdir must be a folder that can be written, got {}: File name too',
    ),
    (
      lambda folder: pathlib.Path('/proc/self/run'),
      'workdir must be a folder that can be written, got {}: No such',
    ),
    (_in_the_way('config.json'), 'Cannot read {}/config.json: '),
    (_in_the_way(log.FILE), 'Cannot read {}/records.jsonl: Is a directory'),
    (_in_the_way(results.FILE), '{}/results.json must be a file'),
    (_in_the_way('lock'), 'Cannot write {}/lock: Is a directory'),
  ],
)
def test_a_workdir_that_cannot_be_written_is_refused_before_any_work(
  make, sentence, tmp_path, monkeypatch
):
  config = _toy(monkeypatch)
  config.sizes = (1, 13)  # Size 13 would raise an interrupt.
  workdir = make(tmp_path / 'run')
  paths = sorted(tmp_path.rglob('*'))
  with pytest.raises(ValueError) as error_info:
    main.run(config, workdir)
  assert str(error_info.value).startswith(sentence.format(workdir))
  assert sorted(tmp_path.rglob('*')) == paths


def test_a_full_disk_is_named(tmp_path, monkeypatch):
  workdir = workdirs.Workdir(tmp_path, _toy(monkeypatch))

  def fill(unit):
    (tmp_path / log.FILE).symlink_to('/dev/full')
    return unit

  with pytest.raises(
    ValueError, match=f'^Cannot write {tmp_path}/records.json'
  ):
    list(log.resume(workdir, [{'size': 1}], fill))


def test_a_sweep_finds_all_its_folders_before_any_work(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.sweep = {'sizes': ((13,), (1,))}  # 13 would be the end of it.
  _file(tmp_path / 'sizes=(1,)')
  with pytest.raises(ValueError, match=r'a folder that can .*=\(1,\): File'):
    main.run(config, tmp_path)


def test_a_workdir_may_begin_with_the_home_folder(tmp_path, monkeypatch):
  monkeypatch.setenv('HOME', str(tmp_path))
  assert len(_rows(_toy(monkeypatch), '~/runs/x')) == 2
  assert (tmp_path / 'runs' / 'x' / results.FILE).exists()


@pytest.mark.parametrize(
  'damage',
  [
    lambda lines: [lines[0], bytes(len(lines[1])) + b'\n'],
    lambda lines: [lines[0][:20] + lines[1], lines[1]],
    lambda lines: [lines[0], b'\xff' + lines[1]],
    lambda lines: [lines[0], b'\n', lines[1]],
  ],
)
def test_a_damaged_log_is_named_with_its_line(damage, tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  rows = _rows(config, tmp_path)
  path = tmp_path / log.FILE
  lines = path.read_bytes().splitlines(keepends=True)
  path.write_bytes(b''.join(damage(lines)))
  with pytest.raises(ValueError, match=f'{path} is damaged: .* in line [12]'):
    main.run(config, tmp_path)
  path.write_bytes(lines[0])
  assert _rows(config, tmp_path) == rows


@pytest.mark.parametrize('content', ['', '{"format": 2, "ro', '\0\0', '[' * 9])
def test_damaged_results_are_named_and_written_anew(
  content, tmp_path, monkeypatch
):
  config = _toy(monkeypatch)
  rows = _rows(config, tmp_path)
  path = tmp_path / results.FILE
  path.write_text(content)
  with pytest.raises(ValueError, match=f'^Cannot read {path}: '):
    results.read(tmp_path)
  assert _rows(config, tmp_path) == rows


_RESTARTS = """
import os, sys
import ml_collections
from experiments.common import log, results, workdirs

print('ready', flush=True)
sys.stdin.readline()
for number in range(int(sys.argv[2]), int(sys.argv[2]) + 20):
  config = ml_collections.ConfigDict({'a': 1})
  workdir = workdirs.Workdir(sys.argv[1], config)
  unit = {'number': number}
  list(log.resume(workdir, [unit], lambda unit: {'text': 'y' * 100_000}))
  results.save_json(os.path.join(workdir, results.FILE), {'rows': number})
"""


def _start(*argv):
  process = subprocess.Popen(
    [sys.executable, '-c', *map(str, argv)],
    cwd=_ROOT,
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout.readline() == 'ready\n'
  return process


def test_two_processes_do_not_break_the_log_of_one_workdir(tmp_path):
  """Writes records larger than a buffer, and opens the log for each of them."""
  processes = [_start(_RESTARTS, tmp_path / 'run', first) for first in (0, 100)]
  for process in processes:
    process.stdin.write('\n')
    process.stdin.flush()
  for process in processes:
    process.communicate(timeout=300)
    assert process.returncode == 0
  numbers = {json.loads(line)['number'] for line in _lines(tmp_path / 'run')}
  assert numbers == {*range(20), *range(100, 120)}


_HOLDS = """
import sys
from experiments.common import locks

with locks.held(sys.argv[1]):
  print('ready', flush=True)
  sys.stdin.readline()
"""


def test_a_workdir_in_use_is_refused_until_its_process_ends(
  tmp_path, monkeypatch, capsys
):
  """Waits for a process that is killed, then resumes from its log."""
  hold_lock = functools.partial(locks.held, patience=0.2)
  monkeypatch.setattr(workdirs.locks, 'held', hold_lock)
  config = _toy(monkeypatch)
  process = _start(_HOLDS, tmp_path)
  with pytest.raises(ValueError) as error_info:
    main.run(config, tmp_path)
  assert str(error_info.value) == (
    f'{tmp_path} is in use by process {process.pid} on {socket.gethostname()}. '
    'Use another workdir, or wait for its end.'
  )
  assert 'waiting for 0 seconds at most' in capsys.readouterr().out
  process.kill()
  process.communicate(timeout=60)
  assert len(_rows(config, tmp_path)) == 2
  assert not (tmp_path / locks.FILE).exists()


def test_a_run_with_other_settings_that_ended_meanwhile_is_not_overwritten(
  tmp_path, monkeypatch
):
  config = _toy(monkeypatch)
  workdir = workdirs.Workdir(tmp_path / 'run', config)
  config.seed = 1
  main.run(config, tmp_path / 'run')
  with pytest.raises(ValueError, match='seed is 1 there and 0 here'), workdir:
    pass


@pytest.mark.parametrize(
  ('files', 'plugin', 'platforms'),
  [
    ([], 'xla_cuda12', 'cpu'),
    (['/dev/nvidia0'], 'xla_cuda12', None),
    ([], 'xla_rocm7', None),
  ],
)
def test_jax_looks_for_no_accelerator_where_there_is_none(
  files, plugin, platforms, monkeypatch
):
  monkeypatch.setenv('JAX_PLATFORMS', '')
  monkeypatch.delenv('JAX_PLATFORMS')
  plugins = [metadata.EntryPoint(plugin, 'missing', 'jax_plugins')]
  monkeypatch.setattr(glob, 'glob', lambda _: files)
  monkeypatch.setattr(metadata, 'entry_points', lambda group: plugins)
  importlib.reload(experiments)
  assert os.environ.get('JAX_PLATFORMS') == platforms


def test_characters_that_a_terminal_lacks_are_replaced(monkeypatch):
  output = io.BytesIO()
  stream = io.TextIOWrapper(output, encoding='cp1252', write_through=True)
  monkeypatch.setattr(sys, 'stdout', stream)
  input_stream = io.TextIOWrapper(io.BytesIO(b'caf\xe9\n'), encoding='utf-8')
  monkeypatch.setattr(sys, 'stdin', input_stream)
  terminal.accept_any_text()
  print('é 漢字', end='')
  assert output.getvalue() == b'\xe9 ??'
  assert input() == 'caf\ufffd'


# Sweeps.


def test_a_sweep_joins_the_rows_of_all_combinations(tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.sweep = sweeps.product(
    {'inner.rate': (0.5, 2), 'sizes': ((1,), (3, 4))}
  )
  rows = _rows(config, tmp_path)
  values = [(row['inner.rate'], row['rate'], row['double']) for row in rows]
  assert values == [
    *((0.5, 0.5, 2), (0.5, 0.5, 6), (0.5, 0.5, 8)),
    *((2, 2.0, 2), (2, 2.0, 6), (2, 2.0, 8)),
  ]
  # Each point has its own folder, and is not run again.
  (tmp_path / results.FILE).unlink()
  logs = {path: path.read_bytes() for path in tmp_path.rglob(log.FILE)}
  assert len(logs) == 4
  assert _rows(config, tmp_path) == rows
  assert logs == {path: path.read_bytes() for path in tmp_path.rglob(log.FILE)}


@pytest.mark.parametrize(
  ('sweep', 'sentence'),
  [
    ((1, 2), 'sweep must be a dictionary such as'),
    ('{', 'sweep must be a dictionary such as'),
    ({'rate': (1,)}, "Unknown field 'rate' of sweep. Known: .*inner.rate"),
    (({'rate': 1},), "Unknown field 'rate' of sweep. Known: .*inner.rate"),
    ({'seed': ()}, r'sweep of seed must hold values, got \(\)'),
    ({'seed': 1}, 'sweep of seed must hold values, got 1'),
    ({'seed': (1, 2, 1)}, 'sweep of seed holds 1 twice'),
    (({'seed': 1}, {'seed': 1}), "sweep holds {'seed': 1} twice"),
    (({'inner.rate': 'x'},), 'sweep of inner.rate: .*type'),
    ({}, 'sweep must hold at least one field'),
    (({'seed': 1}, {}), 'sweep must hold at least one field'),
  ],
)
def test_bad_sweeps_are_refused(sweep, sentence, tmp_path, monkeypatch):
  config = _toy(monkeypatch)
  config.sweep = sweep
  with pytest.raises(ValueError, match=sentence):
    main.run(config, tmp_path / 'run')
  assert not list(tmp_path.iterdir())


def test_a_sweep_as_a_flag_is_a_product_or_lists_its_changes():
  for flag, changes in (
    (
      "{'sampling.temperature': (0.0, 1.0), 'seed': (1,)}",
      [
        {'sampling.temperature': 0.0, 'seed': 1},
        {'sampling.temperature': 1.0, 'seed': 1},
      ],
    ),
    ("({'seed': 1}, {'max_length': 9})", [{'seed': 1}, {'max_length': 9}]),
  ):
    values = absl_flags.FlagValues()
    arguments = ['main.py', _QUICKSTART, f'--config.sweep={flag}']
    main.parse_flags([*arguments, '--workdir=run'], values)
    points = configs.points(values.config)
    assert [change for change, _ in points] == changes
    assert [point.seed for _, point in points] == [
      change.get('seed', values.config.seed) for change in changes
    ]


def test_fields_that_may_change_are_fields_of_configs():
  known_fields, changeable_fields = set(), set()
  for path in configs.titles():
    config = configs.load(str(_ROOT / path))
    changeable_fields |= set(main.may_change(config))
    known_fields |= set(config)
  assert changeable_fields and changeable_fields <= known_fields
