"""Counts are integers: a fraction, a bool or a text is refused by name."""

import jax.numpy as jnp
import numpy as np
import pytest

import specjax
from specjax import checks
from specjax import drafters


@pytest.mark.parametrize(
  'values',
  [1, np.int64(3), (1, 2), np.array([1, 3]), (), object(), jnp.float32(2)],
)
def test_integers_in_range_pass(values):
  checks.check_integers('depth', values, 1, 3)


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    (2.0, 'depth must be an integer, got 2.0'),
    (True, 'depth must be an integer, got True'),
    ('2', "depth must be an integer, got '2'"),
    ((1, 2.5), r'depth must hold integers, got \[1.0, 2.5\]'),
    (0, r'depth must lie in \[1, 3\], got 0'),
    ((1, 4), r'depth must lie in \[1, 3\], got \(1, 4\)'),
  ],
)
def test_all_else_is_refused(values, message):
  with pytest.raises(ValueError, match=message):
    checks.check_integers('depth', values, 1, 3)


@pytest.mark.parametrize(
  ('build', 'name'),
  [
    (lambda: drafters.Length(2.5), 'length'),
    (lambda: specjax.bandits.Fixed(num_arms=2, arm=0.5), 'arm'),
    (lambda: drafters.PromptLookup(32, max_ngram=2.5), 'max_ngram'),
  ],
)
def test_components_check_their_counts(build, name):
  with pytest.raises(ValueError, match=f'{name} must be an integer, got'):
    build()
