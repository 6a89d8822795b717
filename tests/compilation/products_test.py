"""Operations of products, counted in a program's text."""

import jax
import jax.numpy as jnp
import pytest

from specjax.compilation import hlo
from specjax.compilation import products
from specjax.compilation import totals

_TEXT = """
HloModule jit_f

%turned (w: bf16[8,16]) -> bf16[16,8] {
  %w = bf16[8,16]{1,0} parameter(0)
  ROOT %t = bf16[16,8]{1,0} transpose(%w), dimensions={1,0}
}

%fused (x: bf16[2,8], w: bf16[8,16]) -> f32[2,16] {
  %x = bf16[2,8]{1,0} parameter(0)
  %w = bf16[8,16]{1,0} parameter(1)
  %t = bf16[16,8]{1,0} fusion(%w), kind=kLoop, calls=%turned
  ROOT %y = f32[2,16]{1,0} dot(%x, %t), LAST
}

%joined (a: bf16[3,4], b: bf16[1,4]) -> bf16[4,4] {
  %a = bf16[3,4]{1,0} parameter(0)
  %b = bf16[1,4]{1,0} parameter(1)
  ROOT %c = bf16[4,4]{1,0} concatenate(%b, %a), dimensions={0}
}

ENTRY %main (x: bf16[2,8], w: bf16[8,16]) -> f32[2,16] {
  %x = bf16[2,8]{1,0} parameter(0)
  %w = bf16[8,16]{1,0} parameter(1)
  %k = bf16[3,4]{1,0} parameter(2)
  %own = bf16[1,4]{1,0} parameter(3)
  %heads = bf16[5,2,8]{2,1,0} parameter(4)
  %values = bf16[5,8,6]{2,1,0} parameter(5)
  %by_weights = f32[2,16]{1,0} fusion(%x, %w), kind=kOutput, calls=%fused
  %keys = bf16[4,4]{1,0} fusion(%k, %own), kind=kLoop, calls=%joined
  %by_keys = f32[2,4]{1,0} dot(%x, %keys), lhs_contracting_dims={1}
  %batch = f32[5,2,6]{2,1,0} convolution(%heads, %values), BATCH
  %wide = f32[7,8]{1,0} parameter(6)
  %times = f32[7,8]{1,0} multiply(%wide, %wide)
  %as = f32[8,7]{1,0} transpose(%times), dimensions={1,0}
  %summed = f32[8]{0} reduce(%as, %zero), dimensions={1}, to_apply=%add
  ROOT %largest = f32[8]{0} reduce(%wide, %zero), dimensions={1}, to_apply=%max
}
"""
_ATTRIBUTES = {
  'LAST': 'lhs_contracting_dims={1}, rhs_contracting_dims={0}',
  'BATCH': 'window={size=5 stride=4 lhs_dilate=5}, dim_labels=0bf_0io->0bf',
}


def _kind(array):
  kinds = {(8, 16): totals.WEIGHTS, (3, 4): totals.CACHES}
  return kinds.get(array.dims, totals.REST)


@pytest.mark.parametrize(
  'name, kind, num_operations',
  [
    ('by_weights', totals.WEIGHTS, 2 * 2 * 16 * 8),
    ('by_keys', totals.CACHES, 2 * 2 * 4 * 8),
    ('batch', totals.REST, 2 * 5 * 2 * 6 * 8),
    ('summed', totals.REST, 2 * 7 * 8),
    ('largest', totals.REST, 0),
  ],
)
def test_products_are_counted_by_what_they_read(name, kind, num_operations):
  text = _TEXT
  for short, attributes in _ATTRIBUTES.items():
    text = text.replace(short, attributes)
  module = hlo.parse(text)
  computation = module.computations[module.entry]
  counts = products.count_instruction(
    totals.ClassifiedModule(module, _kind), computation, computation[name]
  )
  assert +counts == +type(counts)({kind: num_operations})


@pytest.mark.parametrize(
  'shape, kernel, window',
  [
    ((3, 8), (3, 8), {}),
    ((1, 5, 4), (3, 4, 6), {'padding': [(2, 2)]}),
    ((1, 9, 4), (3, 4, 6), {'padding': 'VALID', 'window_strides': (2,)}),
    (
      (1, 5, 4),
      (2, 4, 6),
      {'padding': [(1, 0)], 'lhs_dilation': (3,), 'rhs_dilation': (2,)},
    ),
  ],
)
def test_convolutions_take_as_many_operations_as_xla_counts(
  shape, kernel, window
):
  def f(x, w):
    options = {'window_strides': (1,), 'padding': 'SAME'} | window
    return jax.lax.conv_general_dilated(
      x, w, dimension_numbers=('NWC', 'WIO', 'NWC'), **options
    )

  if len(shape) == 2:
    f = lambda x, w: x @ w.T
  compiled = jax.jit(f).lower(jnp.ones(shape), jnp.ones(kernel)).compile()
  module = hlo.parse(compiled.as_text())
  counts = products.count(
    totals.ClassifiedModule(module, lambda array: totals.REST), module.entry
  )
  assert counts.total() == compiled.cost_analysis()['flops']
