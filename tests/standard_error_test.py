"""Libraries that report missing drivers do not clutter commands' output.

The tests belong to the first tier, which has no plugin besides theirs.
"""

import glob
from importlib import metadata
import os
import subprocess
import sys

import pytest

import experiments
from experiments.common import standard_error

_REPORT = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
I0000 00:00:1795891180.427660    7996 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.
"""  # noqa: E501
_OTHER = """\
WARNING: All log messages before absl::InitializeLog() is called are written to STDERR
E0000 00:00:1795891180.427660    7996 cuda_dnn.cc:8310] Another error.
"""  # noqa: E501


def test_all_other_text_is_written_even_after_an_error(capfd):
  with pytest.raises(ZeroDivisionError):
    with standard_error.without(experiments.NO_DRIVER):
      for text in (_REPORT, 'before\n', _REPORT, _OTHER, 'after'):
        os.write(2, text.encode())
      1 / 0  # noqa: B018
  os.write(2, b'\nlater\n')
  assert capfd.readouterr().err == f'before\n{_OTHER}after\nlater\n'


def test_standard_error_may_be_closed():
  code = (
    'import os; os.close(2); from experiments.common import standard_error\n'
    "with standard_error.without(b'a'): print('works')"
  )
  process = subprocess.run(
    [sys.executable, '-c', code], capture_output=True, text=True
  )
  assert process.stdout == 'works\n'


@pytest.mark.skipif(
  any(map(glob.glob, experiments.DEVICES))
  or bool(metadata.entry_points(group='jax_plugins')),
  reason='There is a device, or a plugin for one.',
)
def test_a_command_without_a_device_reports_no_missing_driver(tmp_path):
  """Covers both parts of a plugin: one loads with JAX, one with its devices."""
  text = f'import os; os.write(2, {(_REPORT + _OTHER).encode()!r})\n'
  metadata = tmp_path / 'jax_cuda12_plugin-1.dist-info'
  for folder in ('jax_cuda12_plugin', 'fake_plugin'):
    (tmp_path / folder).mkdir()
  metadata.mkdir()
  (metadata / 'METADATA').write_text('Name: jax_cuda12_plugin\nVersion: 1\n')
  entry = '[jax_plugins]\nxla_cuda12 = fake_plugin\n'
  (metadata / 'entry_points.txt').write_text(entry)
  # JAX ignores a part that cannot be imported.
  part = tmp_path / 'jax_cuda12_plugin' / '_solver.py'
  part.write_text(text + 'raise ImportError')
  initialize = 'initialize = lambda: None\n'
  (tmp_path / 'fake_plugin' / '__init__.py').write_text(text + initialize)
  path = os.pathsep.join([str(tmp_path), *sys.path])
  environment = {
    name: value for name, value in os.environ.items() if name != 'JAX_PLATFORMS'
  }
  process = subprocess.run(
    [sys.executable, '-c', 'import experiments, jax; print(jax.devices())'],
    env=environment | {'PYTHONPATH': path},
    capture_output=True,
    text=True,
  )
  assert 'Cpu' in process.stdout, process.stderr
  assert process.stderr == 2 * _OTHER
