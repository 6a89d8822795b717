"""Two processes, each with some of the devices, run as one."""

import json
import pathlib
import socket
import subprocess
import sys

from absl import flags as absl_flags
import pytest

from experiments import main
from experiments.common import processes
from tests import xla
from tests.experiments import toy

_ROOT = pathlib.Path(__file__).parents[2]
_DEVICES = 4  # Of each process.
_PROMPTS = 16
_MESH = '--config.mesh.data=4', '--config.mesh.model=2'
_LIMITS = 'max_new_tokens', 'max_length'


def _free_port():
  with socket.socket() as server:
    server.bind(('localhost', 0))
    return server.getsockname()[1]


@pytest.fixture(name='flags')
def _flags(tmp_path, family):
  """Returns the flags of every run, with a bandit for each of eight rows."""
  file = tmp_path / 'prompts.jsonl'
  lines = [
    {'domain': 'any', 'prompt': f'{i} + {i}', 'response': ''}
    for i in range(_PROMPTS)
  ]
  file.write_text('\n'.join(map(json.dumps, lines)), encoding='utf-8')
  return (
    '--config=configs/decode.py',
    f'--config.family={family}',
    f'--config.prompts_file={file}',
    "--config.arms=('small:2', 'small:4')",
    '--config.bandit=ucb_spec',
    '--config.per_row=true',
    '--config.batch_size=8',
    *(f'--config.{name}={toy.SIZES[name]}' for name in _LIMITS),
  )


def _start(workdir, *arguments, num_devices=1):
  return subprocess.Popen(
    [sys.executable, '-m', 'experiments.main', *arguments]
    + [f'--workdir={workdir}'],
    cwd=_ROOT,
    env=xla.environment(num_devices),
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
    text=True,
  )


def _run_together(workdir, *arguments):
  """Runs two processes with their own `arguments`; returns their output."""
  port = _free_port()
  process_arguments = lambda i: (
    '--distributed',
    f'--coordinator=localhost:{port}',
    '--num_processes=2',
    f'--process_id={i}',
    *arguments[i],
  )
  children = [
    _start(workdir, *process_arguments(i), num_devices=_DEVICES) for i in (0, 1)
  ]
  return [(child, *child.communicate(timeout=600)) for child in children]


def _outcomes(folder):
  lines = (folder / 'records.jsonl').read_text('utf-8').splitlines()
  return [json.loads(line)['outcome'] for line in lines]


def test_two_processes_say_what_one_says(flags, tmp_path):
  outputs = _run_together(tmp_path / 'both', [*flags, *_MESH], [*flags, *_MESH])
  assert [child.returncode for child, *_ in outputs] == [0, 0], outputs
  single_process = _start(tmp_path / 'alone', *flags)
  assert single_process.wait(timeout=600) == 0
  expected = _outcomes(tmp_path / 'alone')
  assert len(expected) == _PROMPTS
  assert _outcomes(tmp_path / 'both') == expected
  assert _outcomes(tmp_path / 'both' / 'process_1') == expected
  # Only one process prints the results.
  (_, first_output, _), (_, second_output, _) = outputs
  assert (
    'block efficiency' in first_output
    and 'block efficiency' not in second_output
  )
  # Processes that were killed at different times agree on the remaining work.
  folders = tmp_path / 'both', tmp_path / 'both' / 'process_1'
  for folder, size in zip(folders, (3, _PROMPTS - 2)):
    log = folder / 'records.jsonl'
    lines = log.read_text('utf-8').splitlines(keepends=True)
    log.write_text(''.join(lines[:size]) + lines[size][:-9], 'utf-8')
  outputs = _run_together(tmp_path / 'both', [*flags, *_MESH], [*flags, *_MESH])
  assert [child.returncode for child, *_ in outputs] == [0, 0], outputs
  assert [_outcomes(folder) for folder in folders] == [expected] * 2


def test_processes_that_disagree_are_refused(flags, tmp_path):
  other_flags = [*flags, *_MESH, '--config.seed=1']
  outputs = _run_together(tmp_path / 'both', [*flags, *_MESH], other_flags)
  for child, _, errors in outputs:
    assert child.returncode == 1
    assert 'the same config, but process 0 differs from 1.' in errors


def test_flags_of_several_processes_go_together(flags, tmp_path):
  values = absl_flags.FlagValues()
  argv = ['main.py', *flags, f'--workdir={tmp_path}', '--num_processes=2']
  main.parse_flags(argv, values)
  with pytest.raises(
    ValueError, match='coordinator, num_processes and process_id need --distr'
  ):
    processes.join(values)
