import collections

import numpy as np
import pytest

from specjax.data import packing


def _sequences(count, longest, seed=0):
  """Random sequences of length 2 to `longest`, each with a random start."""
  draw = np.random.default_rng(seed)
  sequences = []
  for _ in range(count):
    length = int(draw.integers(2, longest + 1))
    tokens = draw.integers(1, 1000, length).tolist()
    sequences.append((tokens, int(draw.integers(1, length))))
  return sequences


def _unpack(rows):
  """Yields `(tokens, positions, weights)` of each example, as tuples."""
  for tokens, positions, segments, weights in zip(*rows):
    for segment in range(segments.max() + 1):
      inside = segments == segment
      yield tuple(
        tuple(field[inside].tolist()) for field in (tokens, positions, weights)
      )


def _expected(tokens, start, row_length):
  example = tuple(tokens[:row_length])
  predicts_next = [start <= i + 1 < len(example) for i in range(len(example))]
  return example, tuple(range(len(example))), tuple(map(float, predicts_next))


def test_rows_of_a_case_written_by_hand():
  """Equal sequences, so that the order in which they are packed is no matter.

  The weight stands on the token before the predicted one, and never on the last
  token of an example, which would predict the first of its neighbour.
  """
  rows = packing.pack([([7, 8, 9], 2)] * 3, row_length=7, seed=0)
  np.testing.assert_array_equal(
    rows.tokens, [[7, 8, 9, 7, 8, 9, 0], [7, 8, 9, 0, 0, 0, 0]]
  )
  np.testing.assert_array_equal(
    rows.positions, [[0, 1, 2, 0, 1, 2, -1], [0, 1, 2, -1, -1, -1, -1]]
  )
  np.testing.assert_array_equal(
    rows.segments, [[0, 0, 0, 1, 1, 1, -1], [0, 0, 0, -1, -1, -1, -1]]
  )
  np.testing.assert_array_equal(
    rows.weights, [[0, 1, 0, 0, 1, 0, 0], [0, 1, 0, 0, 0, 0, 0]]
  )
  assert [field.dtype for field in rows] == [np.int32] * 3 + [np.float32]


@pytest.mark.parametrize(
  'start, weights',
  [(1, [1, 1, 1, 0]), (3, [0, 0, 1, 0]), (4, [0] * 4), (6, [0] * 4)],
)
def test_what_exceeds_a_row_is_cut_off(start, weights):
  """Even where the cut falls before the first token to be predicted."""
  rows = packing.pack([([1, 2, 3, 4, 5, 6, 7], start)], row_length=4, seed=0)
  np.testing.assert_array_equal(rows.tokens, [[1, 2, 3, 4]])
  np.testing.assert_array_equal(rows.positions, [[0, 1, 2, 3]])
  np.testing.assert_array_equal(rows.weights, [weights])


@pytest.mark.parametrize('count, longest', [(1, 5), (60, 12), (500, 40)])
def test_every_example_is_packed_once(count, longest):
  """Nothing is lost but the cut-off, also past the limit of open rows."""
  row_length = 16
  sequences = _sequences(count, longest)
  rows = packing.pack(sequences, row_length, seed=3)
  assert {field.shape for field in rows} == {(len(rows.tokens), row_length)}
  assert collections.Counter(_unpack(rows)) == collections.Counter(
    _expected(*sequence, row_length) for sequence in sequences
  )


def test_padding_is_marked_and_follows_the_examples():
  rows = packing.pack(_sequences(60, 12), 16, seed=3)
  padding = rows.segments < 0
  assert padding.any()
  assert (np.diff(padding.astype(int), axis=1) >= 0).all()
  np.testing.assert_array_equal(rows.positions[padding], -1)
  np.testing.assert_array_equal(rows.weights[padding], 0)


def test_no_two_rows_could_be_one():
  """First fit fills any two rows more than one row holds."""
  rows = packing.pack(_sequences(60, 12), 16, seed=3)
  loads = np.sort((rows.segments >= 0).sum(axis=1))
  assert len(loads) > 2 and loads[0] + loads[1] > 16


def test_the_seed_decides_the_order():
  pack = lambda seed: packing.pack(_sequences(60, 12), 16, seed).tokens
  np.testing.assert_array_equal(pack(0), pack(0))
  assert not np.array_equal(pack(0)[:10], pack(1)[:10])


def _numbered(num_rows):
  """Rows whose every field tells which row it is."""
  number = np.arange(num_rows)[:, None]
  ones = np.ones((1, 3), np.int32)
  return packing.Batch(
    *((number * ones + field).astype(np.int32) for field in range(4))
  )


def _rows_at(step, num_rows, batch_size, seed=0):
  batch = packing.batch_at(_numbered(num_rows), step, batch_size, seed)
  for i, field in enumerate(batch):  # Fields stay together.
    np.testing.assert_array_equal(field, batch.tokens + i)
  return batch.tokens[:, 0].tolist()


def test_a_batch_is_a_function_of_the_step():
  """Whatever steps were asked for before."""
  in_order = [_rows_at(step, 10, 3) for step in range(12)]
  for step in (5, 0, 11, 5, 3):
    assert _rows_at(step, 10, 3) == in_order[step]


@pytest.mark.parametrize('num_rows, batch_size', [(10, 5), (10, 3), (4, 4)])
def test_an_epoch_holds_each_row_at_most_once(num_rows, batch_size):
  """Exactly once where the batch size divides the number of rows."""
  steps = num_rows // batch_size
  epochs = [
    [
      row
      for step in range(epoch * steps, (epoch + 1) * steps)
      for row in _rows_at(step, num_rows, batch_size)
    ]
    for epoch in range(30)
  ]
  for epoch in epochs:
    assert len(epoch) == len(set(epoch)) == steps * batch_size
  # The rows that do not fill a batch are others in each epoch.
  assert set().union(*epochs) == set(range(num_rows))
  assert len(set(map(tuple, epochs))) > 10  # 4 rows have 24 orders.


def test_the_seed_decides_the_batches():
  epochs = {tuple(_rows_at(0, 10, 10, seed)) for seed in range(20)}
  assert len(epochs) == 20


@pytest.mark.parametrize('num_rows', [0, 3])
def test_a_batch_larger_than_all_rows_raises(num_rows):
  with pytest.raises(ValueError, match=rf'\({num_rows}\), got 4'):
    packing.batch_at(_numbered(num_rows), 0, 4, seed=0)
