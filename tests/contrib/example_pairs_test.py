"""Tests of packed pairs."""

import numpy as np
import pytest

from specjax.contrib import example_pairs
from specjax.data import packing


def test_pairs_of_a_case_written_by_hand():
  """Equal sequences: the decoder's side has room for two, and sources are cut.

  The token before the first predicted one stands on the decoder's side.
  """
  rows = example_pairs.pack([([5, 6, 7, 2, 8, 9], 4)] * 3, 5, 7, seed=0)
  np.testing.assert_array_equal(rows.source_tokens, [[5, 6, 7, 0, 0]] * 3)
  rows = example_pairs.pack([([5, 6, 2, 8, 9], 3)] * 3, 5, 7, seed=0)
  np.testing.assert_array_equal(
    rows.source_tokens, [[5, 6, 5, 6, 0], [5, 6, 0, 0, 0]]
  )
  np.testing.assert_array_equal(
    rows.source_segments, [[0, 0, 1, 1, -1], [0, 0, -1, -1, -1]]
  )
  np.testing.assert_array_equal(
    rows.tokens, [[2, 8, 9, 2, 8, 9, 0], [2, 8, 9, 0, 0, 0, 0]]
  )
  np.testing.assert_array_equal(
    rows.segments, [[0, 0, 0, 1, 1, 1, -1], [0, 0, 0, -1, -1, -1, -1]]
  )
  np.testing.assert_array_equal(
    rows.weights, [[1, 1, 0, 1, 1, 0, 0], [1, 1, 0, 0, 0, 0, 0]]
  )
  assert packing.num_tokens(packing.batch_at(rows, 0, 2, seed=0)) == 24


def test_pairs_are_cut_on_their_own_sides():
  rows = example_pairs.pack([([5, 6, 7, 2, 8, 9], 4)], 2, 2, seed=0)
  np.testing.assert_array_equal(rows.source_tokens, [[5, 6]])
  np.testing.assert_array_equal(rows.tokens, [[2, 8]])
  np.testing.assert_array_equal(rows.weights, [[1, 0]])


def test_a_pair_without_a_source_is_refused():
  with pytest.raises(ValueError, match=r'start must lie in \[2, 3\].*got 1'):
    example_pairs.pack([([2, 8, 9], 1)], 4, 4, seed=0)
