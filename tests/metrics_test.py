"""Metrics on results counted by hand."""

import numpy as np

from specjax import decoding
from specjax import metrics


def _result(num_tokens, rounds, accepted):
  return decoding.Result(
    tokens=[0] * num_tokens,
    rounds=rounds,
    draft_calls=0,
    caught_up=0,
    accepted=np.array(accepted),
    drafted=np.full(len(accepted), rounds),
    pulls=np.array([rounds]),
  )


def test_block_efficiency_is_pooled_over_rounds():
  results = [_result(6, 2, [2, 2]), _result(2, 2, [0, 0])]
  ratio, error = metrics.block_efficiency(results)
  assert ratio == 2.0
  np.testing.assert_allclose(error, np.sqrt(2**2 + 2**2) / 4)
  assert np.isnan(metrics.block_efficiency([_result(0, 0, [])])[0])


def test_acceptance_is_counted_where_it_was_reached():
  shares = metrics.acceptance_by_position(
    [_result(9, 4, [3, 2, 0, 0]), _result(6, 4, [1, 1, 0, 0])]
  )
  np.testing.assert_allclose(shares, [0.5, 0.75, 0.0, np.nan])
