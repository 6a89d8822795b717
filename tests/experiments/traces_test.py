"""A profiler's trace, reduced to a table."""

import jax
import jax.numpy as jnp
import pytest

from configs import accelerators
from experiments.common import traces


def test_kernels_are_counted_by_what_they_do():
  """Under names that XLA and NVIDIA's libraries give them."""
  events = [
    ('gemm_fusion_dot_7', 3.0),
    ('nvjet_tst_64x8_64x16_1x1_h_bz_NNT', 2.0),
    ('input_reduce_fusion', 1.0),
    ('MemcpyD2H', 0.5),
    ('MemcpyD2D', 0.25),
    ('loop_dynamic_update_slice_fusion', 0.25),
    ('loop_add_fusion', 0.125),
    ('loop_add_fusion', 0.125),
    ('loop_convert_fusion', 0.0625),
    ('convert_reduce_fusion', 0.0625),
    ('convolution_7', 0.25),
  ]
  found = traces.reduce(iter(events))
  assert found.kernels == {
    'host': 1,
    'product': 3,
    'reduction': 2,
    'copy': 2,
    'other': 3,
  }
  assert found.seconds['product'] == 5.25 and found.seconds['other'] == 0.3125
  assert list(found.longest)[:2] == ['gemm_fusion_dot_7', events[1][0]]
  assert len(found.longest) == 5


def test_tables_have_a_column_for_each_kind():
  assert sorted(accelerators._TRACED) == sorted(traces._KINDS)


def test_a_trace_has_what_a_program_runs_and_not_what_it_is_inside_of():
  @jax.jit
  def sort(x):
    return jax.lax.fori_loop(0, 5, lambda i, x: jnp.sort(x + i), x)

  x = jnp.ones((8, 64), jnp.int32)
  sort(x)
  found = traces.trace(lambda: sort(x))
  assert found.kernels['reduction'] >= 5
  assert 0 < sum(found.seconds.values())
  assert not [name for name in found.longest if name.startswith('while')]
  assert found.seconds['reduction'] == pytest.approx(
    sum(value for name, value in found.longest.items() if 'sort' in name)
  )
