"""Decodes compiled for devices that are not there."""

import functools
import os

import jax
import pytest

from experiments.accelerators import hardware
from specjax import compilation
from specjax import decoding
from specjax import meshes
from specjax.compilation import devices
from specjax.compilation import programs
from specjax.models import sharding
from specjax.testing import toys
from tests import arms
from tests import sizes
from tests.compilation import kept

_ACCELERATORS = ['v5e:1x1', 'h100']


def _decoder(draft_length):
  """Returns a decoder of abstract parameters."""
  (target, params), (draft, draft_params) = arms.TARGET, arms.DRAFT
  return decoding.speculative(
    target,
    _abstract(params),
    draft,
    _abstract(draft_params),
    draft_length=draft_length,
    max_length=sizes.BUFFER,
  )


def _abstract(params):
  return jax.eval_shape(lambda: params)


@functools.cache
def _on_cpu(draft_length):
  return compilation.compile_decode(
    _decoder(draft_length), compilation.find('cpu')
  )


def _plain():
  """Returns plain decoding, and the number of entries of its matrices."""
  model, params = arms.TARGET
  shapes = _abstract(params)
  size = sum(x.size for x in jax.tree.leaves(shapes) if len(x.shape) > 1)
  decoder = decoding.speculative(model, shapes, None, max_length=sizes.BUFFER)
  return decoder, size


def test_a_round_reads_the_weights_of_all_its_calls():
  program = _on_cpu(4)
  assert program.memory.peak >= program.memory.arguments > 0
  assert program.num_bytes > program.read['weights'] > 0
  with pytest.raises(
    ValueError, match='The bandwidth and the FLOPS of cpu are unknown'
  ):
    print(program.seconds)


@pytest.mark.slow
def test_a_decode_on_a_mesh_is_compiled_for_it():
  """Of one device, on which nothing is divided."""
  shapes = {'vocab_size': 64, **toys.TINY}
  family = hardware.abstract_family({'target': shapes, 'draft': shapes})
  cpu, mesh = compilation.find('cpu'), meshes.make()
  single, on_mesh = (
    compilation.compile_decode(
      decoding.speculative(
        *place_on(family.target)[1:], *place_on(family.drafters['draft'])[1:]
      ),
      cpu,
    )
    for place_on in (
      lambda model: model,
      lambda model: sharding.shard(model, mesh),
    )
  )
  assert single.min_bytes == on_mesh.min_bytes > 0
  assert on_mesh.read['weights'] > 0


@pytest.mark.slow
def test_more_drafts_read_more():
  one, two, four = (_on_cpu(length).min_bytes for length in (1, 2, 4))
  assert four - two == pytest.approx(2 * (two - one), rel=0.1)
  # No compiler is needed to know it.
  assert four == compilation.min_bytes(_decoder(4), compilation.find('cpu'))


def test_a_token_takes_two_operations_for_each_weight():
  plain, size = _plain()
  program = compilation.compile_decode(plain, compilation.find('cpu'))
  assert program.operations['weights'] == 2 * size


@pytest.mark.slow
@pytest.mark.parametrize('name, most', [('v5e:1x1', 1), ('h100', 2)])
def test_a_decode_compiles_for_accelerators(name, most, find):
  """And multiplies as much as on the CPU; GPUs take a lone row twice."""
  here = _on_cpu(4)
  program = kept.compile_decode(_decoder(4), find(name))
  assert program.seconds > 0
  ratio = program.operations['weights'] / here.operations['weights']
  assert 1 <= ratio <= most


def test_a_report_is_found_again_unless_it_is_damaged(tmp_path, monkeypatch):
  monkeypatch.setenv('SPECJAX_TEST_CACHE', str(tmp_path))
  decoder, cpu = _plain()[0], compilation.find('cpu')
  report = kept.compile_decode(decoder, cpu)
  (file,) = tmp_path.rglob('report-*')
  whole = file.read_bytes()
  file.write_bytes(whole[:100])
  assert kept.compile_decode(decoder, cpu) == report
  assert file.read_bytes() == whole
  monkeypatch.setattr(compilation, 'compile_decode', None)
  assert kept.compile_decode(decoder, cpu) == report


def test_a_program_that_does_not_fit_says_how_much_it_lacks():
  plain, size = _plain()
  small = compilation.find('cpu')._replace(memory=1e3)
  with pytest.raises(compilation.DoesNotFit, match='fit on cpu') as caught:
    compilation.compile_decode(plain, small)
  assert caught.value.lacking >= 4 * size - 1e3
  # Parameters alone fit, but not the caches of so many rows.
  larger = small._replace(memory=4.0 * size + 1e6)
  with pytest.raises(compilation.DoesNotFit):
    compilation.check_fits(plain, larger, batch_size=4096)
  assert compilation.check_fits(plain, larger)
  message = 'Ran out. Exceeded hbm capacity by 1.5G.'
  assert programs._exceeded(message) == 1.5 * 2**30
  assert programs._exceeded('Ran out.') == 0


def test_flags_of_the_cpu_are_hidden_from_other_compilers(monkeypatch):
  jax.devices('cpu')  # It reads its flags when it starts.
  monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_of_this_one=true')
  with pytest.raises(KeyError), devices.without_flags():
    print(os.environ['XLA_FLAGS'])
  assert os.environ['XLA_FLAGS'] == '--xla_cpu_of_this_one=true'


@pytest.mark.parametrize('num, name', [(1, '1x1'), (2, '1x2'), (8, '2x4')])
def test_several_devices_stand_in_a_square(num, name):
  one = compilation.find('v5e:1x1')
  assert compilation.several(one, num).name == f'v5e:{name}'
  h100 = compilation.find('h100')
  assert compilation.several(h100, num).topology == f'1x1x{num}'


def test_several_devices_are_a_power_of_two():
  with pytest.raises(ValueError, match='num must be a power of two, got 6'):
    compilation.several(compilation.find('h100'), 6)


@pytest.mark.parametrize('name', ['v5e', 'a100', 'cpu:2', 'h100:x', 'tpu'])
def test_unknown_devices_are_answered_with_the_known(name):
  with pytest.raises(ValueError, match='one of cpu, h100, h200, v5e:1x1'):
    compilation.find(name)


def test_a_compiler_that_is_not_there_is_named(monkeypatch):
  monkeypatch.setattr(devices.importlib.util, 'find_spec', lambda name: None)
  devices.jax_devices.cache_clear()
  for name in _ACCELERATORS:
    with pytest.raises(
      ValueError, match=r"pip install -e '\.\[accelerators\]'"
    ):
      devices.jax_devices(compilation.find(name))


@pytest.mark.parametrize('version', [12, 13])
def test_either_cuda_has_the_compiler(version, monkeypatch):
  plugin = f'jax_cuda{version}_plugin'
  find_spec = lambda name: name if name == plugin else None
  monkeypatch.setattr(devices.importlib.util, 'find_spec', find_spec)
  assert not devices.missing(compilation.find('h100'))
  assert 'libtpu' in devices.missing(compilation.find('v5e:1x1'))
