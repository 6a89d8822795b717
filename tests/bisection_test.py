"""Bisection is the same, whether steps share a pass or not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import bisection

WAYS = {'cpu': bisection._one_by_one, 'accelerators': bisection._together}
FLOATS = np.linspace(0, 1, 50, dtype=np.float32)


@pytest.mark.parametrize('way', WAYS)
@pytest.mark.parametrize(
  ('ends', 'low', 'high', 'num_steps'),
  [
    (FLOATS, jnp.float32(0), jnp.float32(1), 24),
    (8 * FLOATS, jnp.float32(1), jnp.float32(8), 10),
    (8 * FLOATS, jnp.float32(1), jnp.float32(1), 10),
    (np.arange(-1, 130), jnp.int32(0), jnp.int32(128), 7),
  ],
  ids=['floats', 'few steps', 'no interval', 'integers'],
)
def test_intervals_are_those_of_ordinary_bisection(
  way, ends, low, high, num_steps
):
  intervals = jax.vmap(
    lambda end: WAYS[way](lambda point: point < end, num_steps, low, high)
  )(jnp.asarray(ends, low.dtype))
  for end, *interval in zip(ends, *intervals):
    expected = np.array([low, high])
    for _ in range(num_steps):
      middle = expected.sum().astype(np.float64) / 2
      expected[0 if middle < end else 1] = middle
    np.testing.assert_array_equal(interval, expected)


@pytest.mark.parametrize('way', WAYS)
def test_ends_are_on_both_sides_of_what_is_sought(way):
  """Also where points between the bounds are rounded, as from 0.1 to 0.7."""
  bounds, ends = (jnp.float32(0.1), jnp.float32(0.7)), jnp.linspace(0.1, 0.7, 9)
  is_below = lambda point: point < ends
  low, high = WAYS[way](is_below, 20, *map(jnp.full_like, (ends,) * 2, bounds))
  assert ((low == 0.1) | is_below(low)).all()
  assert ((high == bounds[1]) | ~is_below(high)).all()
  np.testing.assert_allclose(low, ends, atol=2e-6)
  np.testing.assert_allclose(high - low, 0.6 * 2.0**-20, atol=1.2e-7)


def test_each_element_has_an_interval_of_its_own():
  ends = jnp.asarray(FLOATS).reshape(5, 10)
  low, high = bisection.bisect(
    lambda points: points < ends, jnp.zeros_like(ends), jnp.float32(1), 20
  )
  assert ((low <= ends) & (ends <= high) & (high - low <= 2.0**-20)).all()
