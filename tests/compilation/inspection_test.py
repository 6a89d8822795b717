"""What should not be in a program is found."""

import pytest

from specjax.compilation import hlo
from specjax.compilation import inspection
from specjax.compilation import totals

_TEXT = """
HloModule jit_f

%turned (w: bf16[8,16]) -> bf16[16,8] {
  %w = bf16[8,16]{1,0} parameter(0)
  ROOT %t = bf16[16,8]{1,0} transpose(%w), dimensions={1,0}
}

%one (c: f32[4,2]) -> f32[4,2] {
  %c = f32[4,2]{1,0} parameter(0)
  ROOT %copied = f32[4,2]{1,0} copy(%c)
}

%other (c: f32[4,2]) -> f32[4,2] {
  ROOT %c = f32[4,2]{1,0} parameter(0)
}

%body (carry: (s32[], f32[4,2])) -> (s32[], f32[4,2]) {
  %carry = (s32[], f32[4,2]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %c = f32[4,2]{1,0} get-tuple-element(%carry), index=1
  BODY
  %new = f32[4,2] conditional(%i, %c, %c), branch_computations={%one, %other}
  ROOT %next = (s32[], f32[4,2]{1,0}) tuple(%i, %new)
}

%condition (carry: (s32[], f32[4,2])) -> pred[] {
  %carry = (s32[], f32[4,2]{1,0}) parameter(0)
  ROOT %less = pred[] constant(true)
}

ENTRY %main (w: bf16[8,16], carry: (s32[], f32[4,2])) -> (s32[], f32[4,2]) {
  %w = bf16[8,16]{1,0} parameter(0)
  %carry = (s32[], f32[4,2]{1,0}) parameter(1)
  %t = bf16[16,8]{1,0} fusion(%w), calls=%turned
  ROOT %l = (s32[], f32[4,2]) while(%carry), condition=%condition, body=%body
}
"""


def _inspect(body=''):
  module = hlo.parse(_TEXT.replace('BODY', body))
  kind = lambda array: {2: 'caches', 8: 'weights'}.get(array.dims[-1], 'rest')
  return inspection.inspect(totals.ClassifiedModule(module, kind))


def test_copies_are_found_in_branches_and_before_the_loop():
  result = _inspect()
  assert result.copied_in_loop == {'caches': 4 * 2 * 4}
  assert result.copied_before == {'weights': 8 * 16 * 2}
  assert not (result.host_transfers or result.float64 or result.collectives)


def test_a_collective_that_is_spread_over_fusions_is_one():
  computation = """
%part (c: f32[4,2]) -> f32[8,2] {
  %c = f32[4,2]{1,0} parameter(0)
  ROOT %g = f32[8,2]{1,0} all-gather(%c), channel_id=3
}

"""
  calls = '\n  '.join(
    f'%n{i} = f32[8,2]{{1,0}} fusion(%c), kind=kCustom, calls=%part'
    for i in range(2)
  )
  text = _TEXT.replace('BODY', calls).replace('%body', f'{computation}%body', 1)
  result = inspection.inspect(
    totals.ClassifiedModule(hlo.parse(text), lambda _: 'rest')
  )
  assert result.collectives == {'all-gather': 64}
  assert result.num_collectives == {'all-gather': 1}


def test_what_stays_on_the_chip_is_no_copy():
  line = '%n = f32[4,2]{1,0:S(1)} copy(%c)'
  assert _inspect(line) == _inspect()
  line = '%n = (f32[4,2]{1,0:S(1)}, f32[4,2]{1,0}, u32[]) copy-start(%c)'
  assert _inspect(line) == _inspect()


@pytest.mark.parametrize(
  ('line', 'field', 'value'),
  [
    ('%n = (f32[4,2], token[]) infeed(%c)', 'host_transfers', 1),
    ('%n = (f32[4,2], u32[]) send(%c)', 'host_transfers', 1),
    (
      '%n = () custom-call(%c), custom_call_target="xla_gpu_callback"',
      'host_transfers',
      1,
    ),
    ('%n = f64[4,2]{1,0} convert(%c)', 'float64', 1),
    ('%n = f32[8,2]{1,0} all-gather(%c)', 'collectives', {'all-gather': 64}),
    (
      '%n = (f32[4,2], f32[8,2]) all-gather-start(%c)',
      'collectives',
      {'all-gather': 64},
    ),
    (
      '%n = (f32[4,2], f32[4,2]) all-reduce-start(%c, %c)',
      'num_collectives',
      {'all-reduce': 2},
    ),
  ],
)
def test_what_should_not_be_there_is_found(line, field, value):
  assert getattr(_inspect(line), field) == value
