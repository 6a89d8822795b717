"""What compilers say of rounds, in tables."""

import json
from typing import NamedTuple

import jax
import jax.numpy as jnp
import pytest

from configs import accelerators as config_lib
from experiments.accelerators import estimates
from experiments.accelerators import hardware
from experiments.common import log
from specjax import compilation
from specjax import decoding
from specjax.testing import toys

_VOCAB = {'vocab_size': 64}


def _row(method, round_ms=None, device='h100'):
  row = {'target': 'a', 'device': device, 'batch_size': 1, 'method': method}
  return row if round_ms is None else row | {'round_ms': round_ms}


def test_speed_ups_are_of_bytes_and_block_efficiencies():
  rows = [_row('none', 10.0), _row('a:4', 12.5), _row('b:4', 20.0)]
  plain, a, b = estimates._with_predictions(rows, {'none': 1.0, 'a:4': 2.5})
  assert plain['tokens_per_second'] == 100.0 and plain['speed_up'] == 1.0
  assert a['tokens_per_second'] == 200.0 and a['speed_up'] == 2.0
  assert 'speed_up' not in b  # Nobody has measured it.
  assert list(estimates.figures(rows)) == ['speed_up']
  b['over_least'] = 1.1
  assert list(estimates.figures(rows)) == ['over_least', 'speed_up']
  del b['over_least']
  assert not estimates.figures([b])


def test_rows_of_a_device_without_a_bandwidth_are_not_predicted():
  (row,) = estimates._with_predictions(
    [_row('none', device='cpu')], {'none': 1.0}
  )
  assert 'tokens_per_second' not in row


def test_chains_that_nobody_measured_accept_what_is_assumed():
  plain, chain, tree = estimates._with_predictions(
    [
      _row('none', 10.0) | {'draft_length': 0},
      _row('draft:2', 15.0) | {'draft_length': 2},
      _row('draft:2x2/otm', 15.0),
    ],
    {},
    acceptance=0.5,
  )
  assert plain['block_efficiency'] == 1.0
  assert chain['block_efficiency'] == 1.75
  assert chain['speed_up'] == pytest.approx(1.75 * 10 / 15)
  assert 'speed_up' not in tree


def test_speed_ups_of_what_ran_are_of_the_same_block_efficiencies():
  rows = [
    _row('none', 10.0) | {'draft_length': 0, 'measured_ms': 20.0},
    _row('draft:2', 15.0) | {'draft_length': 2, 'measured_ms': 25.0},
    _row('draft:4', 15.0) | {'draft_length': 4, 'measured_ms': None},
  ]
  plain, chain, unmeasured_chain = estimates._with_predictions(
    rows, {}, acceptance=0.5
  )
  assert plain['projected_tokens_per_second'] == 50.0
  assert plain['projected_speed_up'] == 1.0
  assert chain['projected_speed_up'] == pytest.approx(1.75 * 20 / 25)
  assert (
    'speed_up' in unmeasured_chain
    and 'projected_speed_up' not in unmeasured_chain
  )
  assert list(estimates.figures(rows)) == ['speed_up', 'projected_speed_up']


def test_a_layer_launches_what_a_deeper_target_launches_more():
  shapes = [
    {'target': {'num_layers': depth, 'd_model': width}}
    for depth, width in ((2, 64), (4, 64), (4, 128), (8, 64))
  ]
  kernels = 93, 147, 200, None
  rows = [_row('none') | {'kernels': num} for num in kernels]
  estimates._add_kernels_per_layer(rows, shapes)
  per_layer = [row.get('kernels_per_layer') for row in rows]
  assert per_layer == [None, 27, None, None]


def _tiny(table='drafter'):
  """Returns a config with two methods for a tiny target on this CPU."""
  config = config_lib.get_config(table)
  config.update(
    {'devices': ('cpu',), 'targets': ('tiny',), 'batch_sizes': (1,)}
  )
  config.shapes = {'tiny': toys.TINY | _VOCAB}
  config.drafters.others = {'draft': toys.TINY}
  config.update({'methods': ('none', 'draft:1'), 'max_length': 32})
  config.update({'rounds': 2, 'repeats': 2, 'copied_megabytes': 1})
  return config


def test_rounds_are_measured_and_traced_without_a_compiler_being_asked(
  tmp_path, monkeypatch
):
  """Reports times only for the method that does not run out of memory."""
  fake = lambda *args, **kwargs: pytest.fail('compiled')
  monkeypatch.setattr(compilation, 'compile_decode', fake)
  timed = hardware.round_seconds

  def fake_round_seconds(decoder, *args):
    if decoder.round_fn.arms[0].drafter.topology.depth:
      raise jax.errors.JaxRuntimeError('RESOURCE_EXHAUSTED: Out of memory')
    return timed(decoder, *args)

  monkeypatch.setattr(hardware, 'round_seconds', fake_round_seconds)
  plain, chain = estimates.run(_tiny('rounds'), tmp_path)
  assert plain['fits'] and not chain['fits']
  assert plain['draft_length'] == 0 and chain['draft_length'] == 1
  assert chain['least_gigabytes'] > plain['least_gigabytes'] > 0
  rate = 1e3 * plain['least_gigabytes'] / plain['measured_ms']
  share = rate / plain['copy_gigabytes_per_second']
  assert plain['share_of_copy'] == pytest.approx(share)
  assert plain['launched'] > 10 and plain['longest']
  kinds = [plain[f'{kind}_ms'] for kind in config_lib._TRACED]
  assert 0 < sum(kinds) == pytest.approx(plain['busy_ms'])
  assert 'busy_ms' not in chain
  # Rounds are measured again if XLA flags change.
  monkeypatch.setenv('XLA_FLAGS', '--xla_flag_of_a_test=1')
  estimates.run(_tiny('rounds'), tmp_path)
  flags = [json.loads(line)['xla_flags'] for line in open(tmp_path / log.FILE)]
  assert [value == flags[-1] for value in flags] == [False] * 2 + [True] * 2


def test_programs_are_not_compiled_again_to_run_them(tmp_path, monkeypatch):
  """Reuses the compiler's reports in a workdir, even from another machine."""
  config = _tiny()
  calls = []
  fake = lambda *args, **kwargs: pytest.fail('compiled again')
  compiled_rows = estimates.run(config, tmp_path)
  assert all(row['projected_speed_up'] is None for row in compiled_rows)
  monkeypatch.setattr(compilation, 'compile_decode', fake)
  timed = hardware.round_seconds
  monkeypatch.setattr(
    hardware, 'round_seconds', lambda *args: calls.append(args) or timed(*args)
  )
  config.run = True
  for _ in range(2):  # The second run does not measure again.
    rows = estimates.run(config, tmp_path)
  assert len(calls) == len(rows) == 2
  for row, compiled_row in zip(rows, compiled_rows):
    rate = 1e3 * row['gigabytes'] / row['measured_ms']
    share = rate / row['copy_gigabytes_per_second']
    assert row['share_of_copy'] == pytest.approx(share)
    assert row['gigabytes'] == compiled_row['gigabytes']
    assert row['measured_on'] and 'projected_speed_up' in row


def test_the_smallest_mesh_is_found(monkeypatch):
  """Searches meshes for a model with eight heads."""
  config = config_lib.get_config()
  target = estimates._target(config, 'gemma_2b')
  names = []

  def fake(config, candidate):
    names.append(candidate.device.name)
    return {'fits': len(names) >= num_trials}

  monkeypatch.setattr(estimates, '_compiled', fake)
  case = estimates._Case(target, compilation.find('v5e:1x1'), 1, None)
  num_trials = 3
  row = estimates._with_smallest_mesh(config, case)
  assert row == {'fits': True, 'device': 'v5e:2x2'}
  assert names == ['v5e:1x1', 'v5e:1x2', 'v5e:2x2']
  config.mesh.data, num_trials = 2, 99
  row = estimates._with_smallest_mesh(config, case)
  # Eight heads on eight devices, for each of two shards of the batch.
  assert row == {'fits': False, 'device': 'v5e:4x4'}


def test_a_target_is_known_or_the_config_of_a_checkpoint(tmp_path):
  config = config_lib.get_config()
  with pytest.raises(ValueError, match='must be among gemma_2b, llama_13b'):
    estimates._target(config, 'llama_8b')
  fields = {
    'model_type': 'llama',
    'vocab_size': 64,
    'hidden_size': 16,
    'intermediate_size': 32,
    'num_hidden_layers': 3,
    'num_attention_heads': 2,
    'hidden_act': 'silu',
    'rms_norm_eps': 1e-5,
    'max_position_embeddings': 128,
  }
  (tmp_path / 'config.json').write_text(json.dumps(fields), encoding='utf-8')
  family = estimates._target(config, str(tmp_path)).family
  assert family.target.config.num_layers == 3
  assert family.drafters['draft'].config.vocab_size == 64


def test_a_plan_looks_for_the_mesh_itself(tmp_path):
  config = config_lib.get_config('models')
  config.mesh.model = 8
  with pytest.raises(
    ValueError, match='must be None with find_mesh, which searches it, got 8'
  ):
    estimates.run(config, tmp_path)


def test_meshes_are_refused_before_anything_is_compiled(tmp_path):
  config = config_lib.get_config()
  config.devices, config.mesh.data = ('cpu',), 3
  with pytest.raises(ValueError, match='power of two .* 1 devices of cpu'):
    estimates.run(config, tmp_path)
  config.mesh.data, config.mesh.model = 1, 5
  with pytest.raises(ValueError, match='divide the 32 .*got 5 on cpu'):
    estimates.run(config, tmp_path)


@pytest.mark.parametrize(
  ('name', 'kind', 'num', 'is_available'),
  [
    ('h100', 'NVIDIA H100 80GB HBM3', 1, True),
    ('h100', 'NVIDIA H100 80GB HBM3', 2, True),
    ('h100:2', 'NVIDIA H100 80GB HBM3', 1, False),
    ('h200', 'NVIDIA H100 80GB HBM3', 1, False),
    ('v5e:1x1', 'TPU v5 lite', 1, True),
    ('v5p:1x1x1', 'TPU v5 lite', 1, False),
    ('v5e:1x1', 'NVIDIA H100 80GB HBM3', 1, False),
  ],
)
def test_devices_of_the_kind_are_enough(
  name, kind, num, is_available, monkeypatch
):
  """Compares the requested kind with the kind that JAX reports."""
  device_kinds = {
    'h100': 'NVIDIA H100',
    'h200': 'NVIDIA H200',
    'v5e': 'TPU v5 lite',
  }
  platform = {'N': 'gpu', 'T': 'tpu'}
  device = compilation.find(name)
  chip = name.partition(':')[0]
  make_device = lambda kind: _Device(platform[kind[0]], kind)
  requested_devices = [make_device(device_kinds.get(chip, 'TPU v5'))] * (
    2 if name == 'h100:2' else 1
  )
  local_devices = [make_device(kind)] * num
  monkeypatch.setattr(jax, 'default_backend', lambda: local_devices[0].platform)
  monkeypatch.setattr(jax, 'devices', lambda *args: local_devices)
  monkeypatch.setattr(
    compilation, 'jax_devices', lambda device: requested_devices
  )
  if is_available:
    assert hardware.devices(device) == local_devices
  else:
    with pytest.raises(ValueError, match=f'has {num} of {kind}, got .{name}'):
      hardware.devices(device)


class _Device(NamedTuple):
  platform: str
  device_kind: str


def test_what_is_run_is_there_and_has_room():
  with pytest.raises(ValueError, match='available to run on'):
    hardware.devices(compilation.find('h100'))
  family = hardware.abstract_family({'target': toys.TINY | _VOCAB})
  filled_family = hardware.filled(family)
  decoder = decoding.speculative(*filled_family.target[1:], None, max_length=16)
  with pytest.raises(ValueError, match='exceed the 16 tokens of 16 rounds'):
    hardware.round_seconds(decoder, 1, 16, 16, 1, 2**20)
  seconds, bandwidth = hardware.round_seconds(decoder, 2, 16, 4, 1, 2**20)
  assert seconds > 0 and bandwidth > 0


def test_all_copies_are_made():
  """Checks that each copy adds one, as the bandwidth counts all of them."""
  copies = hardware._copies(jnp.zeros(8))
  assert copies.tolist() == [hardware._NUM_COPIES] * 8


def test_heads_are_filled_with_places_of_tokens():
  head = {'kind': 'eagle', 'head_size': 8}
  shapes = {'target': toys.TINY | _VOCAB, 'eagle': head}
  filled_family = hardware.filled(hardware.abstract_family(shapes))
  rows = filled_family.drafters['eagle'].params['head_rows']
  assert rows.tolist() == [*range(8), *[-1] * 56]
