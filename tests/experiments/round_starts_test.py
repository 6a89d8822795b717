"""How much harder drafts are where rounds begin."""

import numpy as np
import pytest

from experiments.benchmark import round_starts
from tests.experiments import toy


def test_rounds_accept_what_plain_decoding_says(family, tmp_path):
  changes = {
    'arms': ('small', 'far'),
    'data_dir': str(family),
    'sweep': '',
    'sampling': {'temperature': 0.0},
    'prompts': {'eval': {'domains': ('asks', 'talk')}},
  }
  config = toy.config('benchmark/round_starts', family, toy.SIZES | changes)
  rows = toy.run(config, tmp_path)
  domains = ['all', 'asks', 'talk']
  assert [row['method'] for row in rows] == ['small'] * 3 + ['far'] * 3
  assert [row['domain'] for row in rows] == domains * 2
  for row in rows:
    assert row['same_decisions'] == 1
    assert row['acceptance_at_starts'] == row['first_acceptance']
  assert rows[0]['acceptance_everywhere'] > rows[3]['acceptance_everywhere']


def test_first_tokens_of_rounds_and_others():
  """Of six tokens, two are accepted; the last round is cut short."""
  plain = toy.record(
    job=0, emitted=6, rewards=[[0.0, x] for x in (1.0, 1.0, 0.0, 0.0, 0.0, 1.0)]
  )
  drafted = toy.record(
    job=0, emitted=6, num_emitted=[3.0, 1.0, 2.0], num_accepted=[2.0, 0.0, 1.0]
  )
  np.testing.assert_array_equal(round_starts.first_tokens(drafted), [0, 3, 4])
  row = round_starts.acceptance_row([plain], [drafted], is_greedy=True)
  assert row['acceptance_everywhere'] == pytest.approx(3 / 6)
  assert row['acceptance_at_starts'] == pytest.approx(1 / 3)
  assert row['acceptance_elsewhere'] == pytest.approx(2 / 3)
  # The last round has accepted a token that plain decoding would reject.
  assert row['same_decisions'] == pytest.approx(2 / 3)
  sampled_row = round_starts.acceptance_row([plain], [drafted], is_greedy=False)
  assert 'acceptance_at_starts' not in sampled_row
