"""A profiler's trace, reduced to a table."""

import jax
import jax.numpy as jnp
import pytest

from configs import accelerators
from experiments.common import traces


def test_kernels_are_counted_by_what_they_do():
  """Classifies kernels by the names from XLA and NVIDIA's libraries."""
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
  reduced_trace = traces.reduce(iter(events))
  assert reduced_trace.kernels == {
    'host': 1,
    'product': 3,
    'reduction': 2,
    'copy': 2,
    'other': 3,
  }
  assert (
    reduced_trace.seconds['product'] == 5.25
    and reduced_trace.seconds['other'] == 0.3125
  )
  assert list(reduced_trace.longest)[:2] == ['gemm_fusion_dot_7', events[1][0]]
  assert len(reduced_trace.longest) == 5


def test_tables_have_a_column_for_each_kind():
  assert sorted(accelerators._TRACED) == sorted(traces._KINDS)


def test_a_trace_has_what_a_program_runs_and_not_what_it_is_inside_of():
  @jax.jit
  def sort(x):
    return jax.lax.fori_loop(0, 5, lambda i, x: jnp.sort(x + i), x)

  x = jnp.ones((8, 64), jnp.int32)
  sort(x)
  trace = traces.trace(lambda: sort(x))
  assert trace.kernels['reduction'] >= 5
  assert 0 < sum(trace.seconds.values())
  assert not [name for name in trace.longest if name.startswith('while')]
  assert trace.seconds['reduction'] == pytest.approx(
    sum(value for name, value in trace.longest.items() if 'sort' in name)
  )
