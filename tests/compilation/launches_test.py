"""How many kernels, conditionals and inner loops a round launches.

Counts do not differ from run to run, but another version of XLA may fuse
otherwise: then look at what a round does before a bound is moved.
"""

import functools

import pytest

from configs import accelerators as config_lib
from experiments.accelerators import estimates
from specjax.compilation import hlo
from specjax.compilation import launches
from specjax.compilation import totals
from tests.compilation import kept

_TEXT = """
HloModule jit_f

%few (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  ROOT %y = f32[8]{0} negate(%x)
}

%most (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  %y = f32[8]{0} negate(%x)
  %i = s32[] constant(0)
  %z = f32[8] conditional(%i, %y, %y), branch_computations={%few, %few}
  ROOT %w = f32[8]{0} copy(%z)
}

%condition (x: f32[8]) -> pred[] {
  %x = f32[8]{0} parameter(0)
  ROOT %less = pred[] custom-call(%x), custom_call_target="__any"
}

ENTRY %main (x: f32[8]) -> f32[8] {
  %x = f32[8]{0} parameter(0)
  LINE
}
"""


@pytest.mark.parametrize(
  ('line', 'expected'),
  [
    ('ROOT %y = f32[8]{0} bitcast(%x)', (0, 0, 0)),
    (
      'ROOT %y = f32[8]{0} custom-call(%x), custom_call_target="gemm"',
      (1, 0, 0),
    ),
    ('ROOT %y = (f32[8]{0}, f32[8]{0}, u32[]) copy-start(%x)', (1, 0, 0)),
    ('ROOT %y = f32[8]{0} copy-done(%x)', (0, 0, 0)),
    (
      'ROOT %y = f32[8] conditional(%x, %x, %x), '
      'branch_computations={%few, %most}',
      (3, 2, 0),
    ),
    (
      'ROOT %y = f32[8] while(%x), condition=%condition, body=%most',
      (3, 1, 1),
    ),
    (
      'ROOT %y = f32[8] while(%x), condition=%condition, body=%most, '
      'backend_config={"known_trip_count":{"n":"4"}}',
      (12, 4, 0),
    ),
  ],
)
def test_what_computes_is_counted_as_often_as_it_runs(line, expected):
  module = hlo.parse(_TEXT.replace('LINE', line))
  counted = totals.ClassifiedModule(module, lambda array: totals.REST)
  assert launches.count(counted, module.entry) == expected


# What rounds may launch, of the methods of `configs/accelerators.py:launches`,
# on slices of two layers. Exact with jaxlib 0.10.2; lower numbers are progress.
_MOST = {
  'h100': {
    'none': (80, 1, 0),
    'draft:4': (248, 5, 0),
    'feature_head(eagle):4': (251, 5, 0),
    'dynamic_tree(eagle, num_nodes=25, depth=4)': (257, 5, 0),
    # With all levels of the walk, of which a loop would count one.
    'draft:8x4/otm': (420, 5, 0),
    'ucb_spec': (347, 9, 2),
  },
  'v5e:1x1': {
    'none': (424, 1, 0),
    'draft:4': (904, 5, 0),
    'feature_head(eagle):4': (884, 5, 0),
    'dynamic_tree(eagle, num_nodes=25, depth=4)': (789, 5, 0),
    'draft:8x4/otm': (973, 5, 1),
    'ucb_spec': (1114, 9, 2),
  },
}
# Kernels and conditionals of each layer of the target, in a plain round.
_MOST_PER_LAYER = {'h100': (22, 0), 'v5e:1x1': (35, 0)}


@functools.cache
def _launched(name, label, num_layers=2):
  """What a round of a slice launches, compiled for a device."""
  config = config_lib.get_config('launches')
  config.update({'devices': (name,)})
  config.targets = (f'llama_7b_{num_layers}_layers',)
  cases = {case.method.label: case for case in estimates._cases(config)}
  decoder = estimates._decoder(config, cases[label])
  return kept.compile_decode(decoder, cases[label].device).launches


@pytest.mark.slow
@pytest.mark.parametrize('name', _MOST)
@pytest.mark.parametrize('label', _MOST['h100'])
def test_rounds_launch_few_kernels(find, name, label):
  find(name)
  launched = _launched(name, label)
  most = launches.Launches(*_MOST[name][label])
  assert all(num <= bound for num, bound in zip(launched, most)), launched


@pytest.mark.slow
@pytest.mark.parametrize('name', _MOST)
def test_layers_launch_few_kernels(find, name):
  find(name)
  fewer, more = (_launched(name, 'none', num) for num in (2, 4))
  per_layer = [(after - num) / 2 for num, after in zip(fewer, more)]
  most = *_MOST_PER_LAYER[name], 0
  assert all(num <= bound for num, bound in zip(per_layer, most)), per_layer
