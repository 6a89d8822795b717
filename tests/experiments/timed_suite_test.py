"""Parts of a suite, each a process with a limit, killed and resumed."""

import errno
import json
import os
import pathlib
import signal
import subprocess
import sys
import textwrap
import time

import pytest

from configs.train.heads import dflash
from experiments import main
from experiments import timed_suite
from experiments.common import prompts
from experiments.common import results
from tests import smoke
from tests import xla

_CONFIG = 'configs/accelerators.py'
# A table of one line, for which nothing is compiled.
_FIELDS = {
  'compile': False,
  'devices': ('cpu',),
  'targets': ('mini',),
  'batch_sizes': (1,),
  'methods': ('none',),
}
_ROOT = smoke.ROOT
# Replaces the program of a part: it records its start and writes a table.
_PROGRAM = """
import json, os, pathlib, sys, time
name, folder = sys.argv[1:]
remaining = lambda: float(os.environ['SPECJAX_DEADLINE']) - time.time()
with open(pathlib.Path(folder).parent / 'starts', 'a') as file:
  file.write(name + ' ')
if name == 'full':
  sys.exit('Error: Cannot write x: No space left on device.')
in_time = remaining() > 0
if name.startswith('hangs') and (in_time or name == 'hangs_twice'):
  time.sleep(60)
if name == 'hangs_and_fails':
  sys.exit('Error: A table cannot be written.')
while name == 'slow' and remaining() > 0:
  time.sleep(0.01)
os.makedirs(folder, exist_ok=True)
row = {'part': None, 'batch_size': 7, 'method': 'none'}
content = {'format': 2, 'device': 'a toy', 'command': '', 'rows': [row]}
pathlib.Path(folder, 'results.json').write_text(json.dumps(content))
pathlib.Path(folder, 'teacher.npy').write_text('large')
sys.exit(75 if name in ('slow', 'hangs') else 0)
"""


def _part(minutes=0.02, **fields):
  part = {'minutes': minutes, 'config': _CONFIG, 'command_buffers': False}
  return part | {'fields': _FIELDS, 'small': {}} | fields


def _suite(tmp_path, parts, **fields):
  config = smoke.load('accelerators:half_hour', smoke=True)
  config.update({'data_dir': str(tmp_path), 'reserve': 0.01} | fields)
  config.parts = parts
  return config


@pytest.fixture(name='fake_processes')
def _fake_processes(monkeypatch):
  """Replaces the processes of parts by `_PROGRAM`, and skips the checks."""

  def command(arguments):
    folder = arguments[-1].removeprefix('--workdir=')
    name = os.path.basename(folder).partition('_')[2]
    return [sys.executable, '-S', '-E', '-c', _PROGRAM, name, folder]

  monkeypatch.setattr(timed_suite, '_command', command)
  monkeypatch.setattr(timed_suite, '_check_available', lambda *_: None)
  monkeypatch.setattr(timed_suite, '_PAUSE', 0.05)


def test_each_part_ends_within_its_limit_and_the_next_one_starts(
  tmp_path, fake_processes, capsys
):
  parts = {
    '1_done': _part(),
    '2_slow': _part(),
    '3_hangs': _part(),
    '4_full': _part(),
    '5_graphs': _part(command_buffers=True),
  }
  workdir = tmp_path / 'run'
  states = ['done', 'ran out of time', 'ran out of time', 'failed', 'left out']
  config = _suite(tmp_path, parts)
  for starts in ('1 2 3 3 4', '4'):  # What has failed is tried again.
    start_time = time.monotonic()
    main.run(config, workdir)
    assert time.monotonic() - start_time < 10
    rows = results.read(workdir)['rows']
    assert [row['state'] for row in rows] == states
    started_names = (workdir / 'starts').read_text().split()
    names = [name for name in parts for _ in range(starts.count(name[0]))]
    assert started_names == [name.partition('_')[2] for name in names]
    (workdir / 'starts').unlink()
  assert rows[3]['message'] == 'Cannot write x: No space left on device.'
  assert rows[4]['message'] == 'cpu has no command buffers.'
  assert 0.01 <= rows[1]['minutes'] < rows[2]['minutes']
  # The table of each part is kept, but not its large files.
  assert [row['kept'] for row in rows] == ['results.json'] * 3 + [''] * 2
  summary = (workdir / 'kept' / 'summary.md').read_text()
  assert summary.count('batch size') == 3 and 'Device: a toy.' in summary
  assert 'ran out of time after' in capsys.readouterr().out
  # More minutes are more time.
  config.parts['2_slow'].minutes = 0.05
  main.run(config, workdir)
  assert (workdir / 'starts').read_text().split() == ['slow', 'full']


def test_a_part_that_was_stopped_goes_on_with_the_time_it_has_left(
  tmp_path, fake_processes, monkeypatch
):
  workdir = tmp_path / 'run'
  config = _suite(tmp_path, {'1_hangs': _part(minutes=1.0)})
  save, contents = results.save_json, []

  def save_until_full(path, content):
    contents.append(content)
    if len(contents) == 6:
      raise ValueError(f'Cannot write {path}: No space left on device.')
    save(path, content)

  monkeypatch.setattr(results, 'save_json', save_until_full)
  with pytest.raises(ValueError, match='Cannot write .*parts.json: No space'):
    main.run(config, workdir)
  # The process has ended, and its time counts.
  part_state = json.loads((workdir / 'parts.json').read_text())['1_hangs']
  assert part_state['state'] == 'stopped' and part_state['minutes'] > 0
  config.parts['1_hangs'].minutes = part_state['minutes'] + 0.01
  main.run(config, workdir)
  (row,) = results.read(workdir)['rows']
  assert row['state'] == 'ran out of time'
  assert part_state['minutes'] + 0.01 <= row['minutes'] < 0.5


@pytest.mark.parametrize(
  ('name', 'state', 'message'),
  [
    ('hangs', 'ran out of time', None),
    ('hangs_and_fails', 'failed', 'A table cannot be written.'),
    ('hangs_but_is_done', 'done', None),
    ('hangs_twice', 'ran out of time', 'Its tables were not written in time.'),
  ],
)
def test_a_killed_part_ends_as_the_process_that_writes_its_tables(
  name, state, message, tmp_path, fake_processes
):
  config = _suite(tmp_path, {f'1_{name}': _part()})
  main.run(config, tmp_path / 'run')
  (row,) = results.read(tmp_path / 'run')['rows']
  assert (row['state'], row['message']) == (state, message)
  # Both processes count: the limit, and at most the reserve once more.
  assert 0.02 < row['minutes'] < 0.02 + 0.01 + 0.02


@pytest.mark.parametrize(
  ('end', 'message'),
  [
    ('sys.exit(3)', 'The process ended with exit status 3.'),
    ('os.kill(os.getpid(), 9)', 'The process was terminated by SIGKILL.'),
    ("sys.exit('Error: It is full.')", 'It is full.'),
  ],
)
def test_a_failure_has_the_message_of_its_own_process(
  end, message, tmp_path, fake_processes, monkeypatch
):
  workdir = tmp_path / 'run'
  workdir.mkdir()
  (workdir / '1_a.log').write_text('Error: An earlier process failed.\n')
  command = [sys.executable, '-c', f'import os, sys; {end}']
  monkeypatch.setattr(timed_suite, '_command', lambda arguments: command)
  main.run(_suite(tmp_path, {'1_a': _part(minutes=1.0)}), workdir)
  (row,) = results.read(workdir)['rows']
  assert (row['state'], row['message']) == ('failed', message)


def test_a_device_whose_process_is_killed_is_named(tmp_path, monkeypatch):
  fake_run = lambda *args, **options: subprocess.CompletedProcess(
    args, -signal.SIGSEGV, '', 'a warning'
  )
  monkeypatch.setattr(subprocess, 'run', fake_run)
  message = "device 'cpu' could not be found: .* terminated by SIGSEGV"
  with pytest.raises(ValueError, match=message):
    main.run(_suite(tmp_path, {'1_a': _part()}), tmp_path / 'run')


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'parts': {}}, 'parts must hold at least one run, got none'),
    ({'data_dir': 'nowhere'}, "data_dir must be a folder, got 'nowhere'"),
    ({'device': 'h1000'}, "device must be one of cpu, h100.*got 'h1000'"),
    ({'parts': {'a': _part(minutes=0)}}, r'parts.a.minutes must be > 0, got 0'),
    ({'parts': {'a': _part(config='x.py')}}, "parts.a: There is no config 'x"),
    ({'parts': {'a': _part(flags={})}}, "parts.a: Unknown key 'flags' of a pa"),
    ({'reserve': -1.0}, 'reserve must be >= 0, got -1.0'),
    (
      {'parts': {'a': _part(config='configs/decode.py', fields={})}},
      "parts.a.config must be .* respects deadlines .*compare.*got 'decode'",
    ),
    (
      {'parts': {'a': _part(fields={'max': 1})}},
      "parts.a: Unknown config field 'max'",
    ),
  ],
)
def test_what_is_wrong_is_refused_before_anything_runs(
  fields, message, tmp_path
):
  config = _suite(tmp_path, {'a': _part()})
  parts = fields.pop('parts', None)
  config.update(fields)
  if parts is not None:
    config.parts = parts
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_command_buffers_of_the_suite_would_be_those_of_all_parts(
  tmp_path, monkeypatch
):
  flag = '--xla_gpu_enable_command_buffer=WHILE'
  monkeypatch.setenv('XLA_FLAGS', flag)
  with pytest.raises(ValueError, match='command_buffers must be set for parts'):
    main.run(_suite(tmp_path, {'a': _part()}), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


def test_results_name_the_device_and_the_commands_of_parts(
  tmp_path, fake_processes, capsys
):
  measured = {'files': ('WORKDIR/other/results.json',)}
  fields = {**_FIELDS, 'measured': measured}
  parts = {
    '1_a': _part(fields=fields),
    '2_b': _part(command_buffers=True),
  }
  workdir = tmp_path / 'run'
  config = _suite(tmp_path, parts, device='h100')
  main.run(config, workdir)
  assert results.read(workdir)['device'] == 'h100'
  output = capsys.readouterr().out
  summary = (workdir / 'kept' / 'summary.md').read_text()
  for part in timed_suite.prepare(config, str(workdir)):
    command = part.run.command
    assert command in output and command in summary
  assert f'{workdir}/other/results.json' in output
  assert '--command_buffers' in output


def test_a_part_leaves_out_drafters_that_no_part_has_left(
  tmp_path, fake_processes
):
  workdir = tmp_path / 'run'
  part = smoke.load('accelerators:half_hour').parts.e_smollm2
  config = _suite(tmp_path, {'e_smollm2': part})
  main.run(config, workdir)
  (row,) = results.read(workdir)['rows']
  names = 'new_dflash, new_eagle, new_eagle3, new_medusa, new_small'
  assert row['state'] == 'left out'
  assert row['message'] == f'There are no files for drafters {names}.'
  for name in ('eagle3', 'medusa'):  # Those of part d2 that were trained.
    path = workdir / 'd2_heads' / f'{name}.safetensors'
    path.parent.mkdir(exist_ok=True)
    path.touch()
  (part,) = timed_suite.prepare(config, str(workdir))
  part, _ = timed_suite._without_missing_drafters(part, str(workdir))
  assert part.run.config.methods == (
    'none',
    'feature_head(new_eagle3):5',
    'dynamic_tree(new_eagle3, num_nodes=25, depth=5)',
    'medusa(new_medusa):4',
  )
  drafters = prompts.drafter_paths(part.run.config)
  assert list(drafters) == ['new_eagle3', 'new_medusa']
  for _ in range(2):  # It is done, and its message stays.
    main.run(config, workdir)
    (row,) = results.read(workdir)['rows']
    assert row['state'] == 'done'
    message = (
      'There are no files for drafters new_dflash, new_eagle, new_small.'
    )
    assert row['message'] == message


def test_a_file_that_cannot_be_kept_is_named(
  tmp_path, fake_processes, monkeypatch
):
  def raise_full(source, copy):
    pathlib.Path(copy).write_text('a half')
    raise OSError(errno.ENOSPC, 'No space left on device')

  workdir = tmp_path / 'run'
  config = _suite(tmp_path, {'1_a': _part(), '2_b': _part()})
  message = 'Cannot keep results.json: No space left on device.'
  with monkeypatch.context() as patch:
    patch.setattr(timed_suite.shutil, 'copyfile', raise_full)
    main.run(config, workdir)
    rows = results.read(workdir)['rows']
    assert [row['state'] for row in rows] == ['done'] * 2
    assert [row['message'] for row in rows] == [message] * 2
    assert [row['megabytes'] for row in rows] == [0.0] * 2
    assert not list((workdir / 'kept').rglob('*.part'))
  # The partial copy of a killed suite is ignored.
  (workdir / 'kept' / '1_a' / 'results.json.part').write_text('a half')
  main.run(config, workdir)
  for row in results.read(workdir)['rows']:
    assert (row['kept'], row['message']) == ('results.json', None)


def test_parts_of_the_half_hour_take_25_minutes(tmp_path):
  config = smoke.load('accelerators:half_hour')
  config.data_dir = str(tmp_path)
  parts = timed_suite.prepare(config)
  assert sum(part.minutes for part in parts) <= 25
  # Also if each part is killed, and its tables are written by another process.
  assert sum(part.minutes + config.reserve for part in parts) <= 29
  assert [part.name[0] for part in parts] == list('aaaabcdde')
  graphs = ['--command_buffers' in part.run.arguments for part in parts]
  assert graphs == [False, True] * 2 + [False] * 5
  assert not any(part.unfit for part in parts)
  assert all(part.run.config.devices == ('h100',) for part in parts[:4])
  config.small = True
  parts = {part.name: part.run for part in timed_suite.prepare(config)}
  training = parts['d2_heads'].config
  steps = [training, *(training.heads[name] for name in ('eagle', 'eagle3'))]
  assert [entry.training.steps for entry in steps] == [8, 4, 4]
  assert parts['c_responses'].config.temperatures == (0.0, 1.0)
  assert training.heads.dflash.options.mask_token == dflash.MASK_TOKENS['mini']


def test_a_killed_suite_takes_its_part_along_and_goes_on(tmp_path):
  """Starts the suite in a process, as users do."""
  path = tmp_path / 'suite.py'
  code = f"""
  from configs import accelerators

  def get_config():
    config = accelerators.get_config('half_hour')
    config.update({{'device': 'cpu', 'family': 'mini'}})
    config.parts = {{'a': {_part(minutes=5.0)}}}
    return config
  """
  path.write_text(textwrap.dedent(code))
  workdir = tmp_path / 'run'
  command = [sys.executable, '-m', 'experiments.main', f'--config={path}']
  command += [f'--workdir={workdir}', f'--config.data_dir={tmp_path}']
  options = {'cwd': _ROOT, 'env': xla.environment(1)}
  killed_process = subprocess.Popen(command, **options)
  log = workdir / 'a.log'
  while not log.exists():  # Its part has started.
    assert killed_process.poll() is None
    time.sleep(0.05)
  killed_process.send_signal(signal.SIGKILL)
  killed_process.wait()
  resumed_process = subprocess.run(command, **options, check=False, timeout=120)
  assert resumed_process.returncode == 0
  (row,) = results.read(workdir)['rows']
  assert row['state'] == 'done' and row['kept'] == 'results.json'
  # A device that is not there.
  failed_process = subprocess.run(
    [*command, '--config.device=h100', f'--workdir={tmp_path / "other"}'],
    **options,
    check=False,
    capture_output=True,
    text=True,
  )
  assert failed_process.returncode == 1
  (message,) = [
    line
    for line in failed_process.stderr.splitlines()
    if line.startswith('Error')
  ]
  assert 'device must be available to run on' in message
  assert "got 'h100'" in message and not (tmp_path / 'other').exists()


@pytest.mark.parametrize(
  ('device', 'data_dir', 'message'),
  [
    ('h100', '', "available to run on: JAX has 1 of .*, got 'h100'"),
    ('cpu', 'texts', r'data_dir must hold files \*.train.jsonl, got .*texts'),
    ('cpu', '', None),
  ],
)
def test_what_is_missing_is_found_in_a_process_of_its_own(
  device, data_dir, message, tmp_path, family
):
  folders = [str(tmp_path / data_dir)] if data_dir else []
  if message is None:
    timed_suite._check(device, str(family), str(family))
    return
  with pytest.raises(ValueError, match=message):
    timed_suite._check(device, str(family), *folders)
