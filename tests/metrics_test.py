"""Metrics on results counted by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import decoding
from specjax import metrics
from specjax import models


def _result(num_tokens, rounds, accepted, tested=None):
  tested = [rounds, *accepted[:-1]] if tested is None else tested
  return decoding.Result(
    tokens=[0] * num_tokens,
    rounds=rounds,
    draft_calls=0,
    num_catch_up_tokens=0,
    accepted=np.array(accepted),
    drafted=np.array([rounds] * len(accepted)),
    tested=np.array(tested[: len(accepted)]),
    pulls=np.array([rounds]),
  )


def test_block_efficiency_is_pooled_over_rounds():
  results = [_result(6, 2, [2, 2]), _result(2, 2, [0, 0])]
  ratio, error = metrics.block_efficiency(results)
  assert ratio == 2.0
  # Of two items, the variance is twice that of their deviations.
  np.testing.assert_allclose(error, 2**0.5 * np.sqrt(2**2 + 2**2) / 4)
  assert np.isnan(metrics.block_efficiency([_result(0, 0, [])])[0])


def test_acceptance_is_counted_where_it_was_reached():
  shares, errors = metrics.acceptance_by_position(
    [_result(9, 4, [3, 2, 0, 0]), _result(6, 4, [1, 1, 0, 0])]
  )
  np.testing.assert_allclose(shares, [0.5, 0.75, 0.0, np.nan])
  # 3 of 4 and 1 of 4; then 2 of 3 and 1 of 1; then none of 2 and of 1.
  expected = [np.hypot(1, 1) / 8, np.hypot(0.25, 0.25) / 4, 0, np.nan]
  np.testing.assert_allclose(errors, 2**0.5 * np.array(expected))
  # Of three rounds that accepted their first token, one had drafted no more.
  shares, _ = metrics.acceptance_by_position([_result(8, 4, [3, 1], [4, 2])])
  np.testing.assert_allclose(shares, [0.75, 0.5])


def test_ratio_is_of_sums_with_the_error_of_independent_items():
  value, error = metrics.ratio([6, 2, 1], [2, 2, 0])
  assert value == 2.25
  # By how much each item is above its share, over 4, with n - 1 = 2.
  expected = np.sqrt(3 / 2) * np.sqrt(1.5**2 + 2.5**2 + 1) / 4
  np.testing.assert_allclose(error, expected)
  value, error = metrics.ratio([3], [2])
  assert value == 1.5 and np.isnan(error)  # One item does not show it.
  np.testing.assert_allclose(metrics.ratio([3, 6], [1, 2]), [3, 0], atol=1e-12)
  assert np.isnan(metrics.ratio([0, 0], [0, 0])).all()


def test_a_ratio_of_ratios_is_known_if_the_first_one_is_zero():
  value, error = metrics.ratio_of_ratios(([0, 0], [1, 1]), ([1, 3], [2, 2]))
  assert value == 0 and error == 0
  for other in (([0, 0], [0, 0]), ([0, 0], [1, 1])):
    assert np.isnan(metrics.ratio_of_ratios(([1, 1], [1, 1]), other)).all()


def test_regret_is_the_gap_to_the_largest_logit():
  table = jnp.array([[0.5, 0.25, 0.25], [0.1, 0.3, 0.6], [0.2, 0.8, 0.0]])
  prompts = [[1, 0], [2]]
  results = [_result(2, 1, [1])._replace(tokens=[0, 2]), _result(0, 1, [0])]
  texts, empty = metrics.regret(models.Markov(3), table, prompts, results)
  np.testing.assert_allclose(texts, [0.0, np.log(2)], rtol=1e-6)
  assert not len(empty)
  with pytest.raises(ValueError, match='one item per prompt, 1, got 2'):
    metrics.regret(models.Markov(3), table, prompts[:1], results)
