"""Programs as text: what they hold, and what they move."""

import pytest

from specjax.compilation import hlo
from specjax.compilation import totals
from specjax.compilation import traffic

_TEXT = """
HloModule jit_f, is_scheduled=true

%update (big: bf16[16,256], part: bf16[1,256]) -> bf16[16,256] {
  %big = bf16[16,256]{1,0:T(8,128)(2,1)} parameter(0)
  %part = bf16[1,256]{1,0:T(2,128)(2,1)} parameter(1)
  %zero = s32[]{:T(128)} constant(0)
  ROOT %dus = bf16[16,256]{1,0} dynamic-update-slice(%big, %part, %zero, %zero)
}

%rows (table: f32[1000,256], at: s32[4]) -> f32[4,256] {
  %table = f32[1000,256]{1,0} parameter(0)
  %at = s32[4]{0} parameter(1)
  %same = f32[1000,256]{1,0} bitcast(%table)
  ROOT %gather = f32[4,256]{1,0} gather(%same, %at), slice_sizes={1,256}
}

%body (carry: (s32[], f32[8,8])) -> (s32[], f32[8,8]) {
  %carry = (s32[], /*index=1*/f32[8,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %x = f32[8,8]{1,0} get-tuple-element(%carry), index=1
  %y = f32[8,8]{1,0} add(%x, %x)
  ROOT %next = (s32[], f32[8,8]{1,0}) tuple(%i, %y)
}

%condition (carry: (s32[], f32[8,8])) -> pred[] {
  %carry = (s32[], f32[8,8]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%carry), index=0
  %last = s32[] constant(5)
  ROOT %less = pred[] compare(%i, %last), direction=LT
}

%p (x: f32[8,8]) -> f32[8,8] {
  %x = f32[8,8]{1,0} parameter(0)
  ROOT %y = f32[8,8]{1,0} negate(%x)
}

%q (x: f32[8,8]) -> f32[8,8] {
  ROOT %x = f32[8,8]{1,0} parameter(0)
}

ENTRY %main (a: bf16[16,256], b: bf16[1,256], c: f32[1000,256]) -> f32[8,8] {
  %a = bf16[16,256]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[1,256]{1,0:T(2,128)(2,1)} parameter(1)
  %c = f32[1000,256]{1,0} parameter(2)
  %at = s32[4]{0} parameter(3)
  %carry = (s32[], f32[8,8]{1,0}) parameter(4)
  %written = bf16[16,256]{1,0:T(8,128)(2,1)} fusion(%a, %b), calls=%update
  %some = f32[4,256]{1,0} fusion(%c, %at), calls=%rows, note="f(x)"
  %loop = (s32[], f32[8,8]{1,0}) while(%carry), condition=%condition, body=%body
  %start = (f32[8,8]{1,0:S(1)}, f32[8,8]{1,0}, u32[]{:S(2)}) copy-start(%value)
  %on = f32[8,8]{1,0:S(1)} copy-done(%start)
  %value = f32[8,8]{1,0} get-tuple-element(%loop), index=1
  %i = s32[] constant(0)
  ROOT %or = f32[8,8] conditional(%i, %on, %on), branch_computations={%p, %q}
}
"""
_PART = 256 * 2  # A row of `a`; its tile has two.
_SQUARE = 8 * 8 * 4


def _moved(module, name):
  """Bytes that one instruction of the entry reads, and that it writes."""
  computation = module.computations[module.entry]
  counted = totals.ClassifiedModule(module, lambda array: 'any')
  total = traffic.count_instruction(counted, computation, computation[name])
  total.update(
    totals._total_of_calls(
      counted, computation[name], traffic.count_instruction
    )
  )
  return total['any', 'read'], total['any', 'written']


@pytest.fixture(scope='module', name='module')
def _module():
  return hlo.parse(_TEXT)


def test_a_program_is_read(module):
  computation = module.computations[module.entry]
  assert computation['or'].is_root and computation['or'].op == 'conditional'
  assert computation['or'].called('branch_computations') == ['p', 'q']
  assert computation['loop'].called('body') == ['body']
  assert [array.dims for array in computation['loop'].outputs] == [(), (8, 8)]
  assert computation['some'].operands == ('c', 'at')
  assert [array.on_chip for array in computation['start'].outputs] == [
    True,
    False,
    True,
  ]
  assert hlo.root(module.computations['update']).name == 'dus'


def test_tiles_are_filled(module):
  computation = module.computations[module.entry]
  assert computation['a'].outputs[0].num_bytes == 16 * 256 * 2
  assert computation['b'].outputs[0].num_bytes == 2 * _PART
  assert computation['c'].outputs[0].num_bytes == 1000 * 256 * 4


def test_an_update_in_place_is_written_alone(module):
  assert _moved(module, 'written') == (2 * _PART, 2 * _PART)


def test_of_a_table_the_rows_are_read_that_are_gathered(module):
  assert _moved(module, 'some') == (4 * 256 * 4 + 4 * 4, 4 * 256 * 4)


def test_a_loop_counts_as_often_as_it_runs(module):
  assert _moved(module, 'loop') == (2 * 5 * _SQUARE, 5 * _SQUARE)


def test_what_is_copied_onto_the_chip_is_read_once(module):
  assert _moved(module, 'start') == (_SQUARE, 0)
  assert _moved(module, 'on') == (0, 0)


def test_of_branches_the_one_counts_that_moves_the_most(module):
  assert _moved(module, 'or') == (_SQUARE, _SQUARE)


def test_the_body_is_that_of_the_largest_loop(module):
  assert totals.loop_body(module) == 'body'
  with pytest.raises(ValueError, match='no loop'):
    totals.loop_body(module._replace(entry='p'))


def test_other_text_is_refused():
  with pytest.raises(ValueError, match='no ENTRY'):
    hlo.parse('module {}')
