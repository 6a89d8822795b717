"""CUDA graphs of whole decodes: XLA's flags, and what they change."""

import collections
import os
import pathlib
import re

import jax
import jax.numpy as jnp
import pytest

from experiments.common import measure
from specjax.compilation import command_buffers
from specjax.compilation import devices


def _enabled(monkeypatch, folder):
  """The flags after `enable`, where the driver's files are in a folder."""
  monkeypatch.setattr(command_buffers, '_DRIVERS', (f'{folder}/nvidia*',))
  command_buffers.enable()
  return os.environ['XLA_FLAGS'].split()


def test_flags_are_set_where_a_gpu_is(monkeypatch, tmp_path):
  monkeypatch.setenv('XLA_FLAGS', '--xla_mine=1')
  assert _enabled(monkeypatch, tmp_path) == ['--xla_mine=1']
  assert not command_buffers.are_enabled()
  (tmp_path / 'nvidia0').touch()
  for _ in range(2):  # The second time, there is nothing to add.
    first, *added = _enabled(monkeypatch, tmp_path)
    assert first == '--xla_mine=1' and len(added) == 2
  assert command_buffers.are_enabled()


def test_flags_that_are_set_stay(monkeypatch, tmp_path):
  option = '--xla_gpu_enable_command_buffer='
  monkeypatch.setenv('XLA_FLAGS', option)
  (tmp_path / 'nvidia0').touch()
  least = '--xla_gpu_graph_min_graph_size=1'
  assert _enabled(monkeypatch, tmp_path) == [option, least]
  assert not command_buffers.are_enabled()


@pytest.mark.parametrize(
  ('kinds', 'enabled'),
  [
    ('WHILE', True),
    ('FUSION,WHILE', True),
    ('+CUDNN,+WHILE', True),
    ('-WHILE', False),
    ('FUSION,CONDITIONAL', False),
  ],
)
def test_loops_are_in_command_buffers_where_they_are_named(
  monkeypatch, kinds, enabled
):
  flag = f'--xla_gpu_enable_command_buffer={kinds}'
  monkeypatch.setenv('XLA_FLAGS', flag)
  assert command_buffers.are_enabled() == enabled


def test_clocks_with_command_buffers_are_of_another_device(monkeypatch):
  class Gpu:
    device_kind = 'NVIDIA H100'

  monkeypatch.setattr(jax, 'devices', lambda: [Gpu])
  assert measure.device() == 'NVIDIA H100'
  flag = '--xla_gpu_enable_command_buffer=+WHILE'
  monkeypatch.setenv('XLA_FLAGS', flag)
  assert measure.device() == 'NVIDIA H100, command buffers'


def test_xla_has_the_options_and_other_compilers_ignore_them():
  lowered = jax.jit(lambda x: x + 1).lower(1)
  compiled = lowered.compile(compiler_options=command_buffers.OPTIONS)
  assert compiled(1) == 2
  (name, value), *_ = command_buffers.OPTIONS.items()
  with pytest.raises(Exception, match='not a valid enum value'):
    lowered.compile(compiler_options={name: f'{value},LOOPS'})


def _in_and_out(text):
  """Counts thunks in command buffers, and those that the host runs."""
  counts, path = {True: collections.Counter(), False: collections.Counter()}, []
  for line in text.splitlines():
    indent = len(line) - len(line.lstrip())
    # Where a loop's condition begins is not indented.
    if line.strip() != 'condition:':
      while path and path[-1][0] >= indent:
        path.pop()
      header = re.match(r'\s*\d+: k(\w+)', line)
      if header:
        is_inside = any(kind == 'CommandBuffer' for _, kind in path)
        counts[is_inside][header[1]] += 1
      path.append((indent, header and header[1]))
  return counts[True], counts[False]


@pytest.mark.slow
def test_loops_and_conditionals_are_in_one_command_buffer(find, tmp_path):
  """With the options; by default, loops of unknown length are not."""

  def loop(x):
    inner = lambda x: jax.lax.while_loop(lambda x: x[0] < 9, lambda x: x + 1, x)
    body = lambda x: jax.lax.cond(x[1] > 5, inner, jnp.negative, x)
    return jax.lax.while_loop(lambda x: x.sum() < 90, body, x)

  device = find('h100')
  sharding = jax.sharding.SingleDeviceSharding(devices.jax_devices(device)[0])
  x = jax.ShapeDtypeStruct((8,), jnp.float32, sharding=sharding)
  lowered = jax.jit(loop).trace(x).lower(lowering_platforms=('cuda',))
  counts = {}
  for name, options in ('default', {}), ('all', command_buffers.OPTIONS):
    folder = tmp_path / name
    with devices.without_flags():
      lowered.compile({**options, 'xla_dump_to': str(folder)})
    # Where no thunk is put into a buffer, only the first file is written.
    path = max(pathlib.Path(folder).glob('*.thunk_sequence*.txt'))
    counts[name] = _in_and_out(path.read_text(encoding='utf-8'))
  (_, by_host), (on_device, launched) = counts['default'], counts['all']
  assert by_host['While'] == 2 and by_host['Conditional'] == 1
  assert launched == {'CommandBuffer': 1}
  assert on_device['While'] == 2 and on_device['Conditional'] == 1
