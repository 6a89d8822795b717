"""The regret experiment, tiny: its rows, its plots, and how it goes on."""

import matplotlib.image
import ml_collections
import pytest

from experiments.banditspec import laboratory
from tests import experiments_test

pytestmark = pytest.mark.slow


def _config(**changes):
  config = experiments_test._load('banditspec/regret.py')
  config.bandits = ml_collections.ConfigDict(
    {'ucb_spec': {'delta': 0.3}, 'exp3_spec': {}}
  )
  config.update(
    {'lengths': (60, 120), 'runs': 6, 'period': 9, 'trace_rounds': 20} | changes
  )
  return config


def test_rows_bounds_and_plots(tmp_path, monkeypatch):
  """And a run that was killed goes on, with the rows that it had."""
  rows = experiments_test._run(_config(), tmp_path)
  names = ('environment', 'bandit', 'tokens')
  assert [tuple(row[name] for name in names) for row in rows] == [
    (environment, bandit, tokens)
    for environment in ('stationary', 'drifting', 'adversarial')
    for bandit in ('exp3_spec', 'ucb_spec')
    for tokens in (60, 120)
  ]
  for row in rows:
    lost = row['rounds'] - row['best_rounds']
    assert row['regret'] == pytest.approx(lost)
    assert row['tokens'] / 5 <= row['best_rounds'] < row['rounds']
    assert row['rounds_per_second'] > 0
    holds = row['bandit'] == 'exp3_spec' or row['environment'] == 'stationary'
    assert (row['bound'] is not None) == holds
    assert not holds or row['regret'] < row['bound']
  # In the trap: a token a round, against 16 in 4, rounded up to a block.
  assert rows[-1]['rounds'] == 120 and rows[-1]['best_rounds'] <= 30
  for name in ('regret', 'best_arm', 'pulls'):
    assert matplotlib.image.imread(tmp_path / f'{name}.png').std() > 0

  log = tmp_path / 'metrics.jsonl'
  log.write_text(''.join(log.read_text().splitlines(True)[:-1]) + '{"torn')
  played, play = [], laboratory.play
  monkeypatch.setattr(
    laboratory, 'play', lambda *args: played.append(args[3]) or play(*args)
  )
  again = experiments_test._run(_config(trace_rounds=0), tmp_path)
  assert played == [1, 120]  # The first of them compiles.
  assert again[:-1] == rows[:-1]
  assert again[-1]['regret'] == rows[-1]['regret']


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'acceptances': (0.5, 1.0)}, 'acceptances must lie'),
    ({'drift': ((0.5, 0.5), (0.5, 0.0))}, 'acceptances must lie'),
    ({'drift': ((0.5, 0.5), (0.5, 0.4))}, 'as many arms as acceptances'),
    ({'period': 0}, 'period must be >= 1'),
    ({'lengths': (10, 0)}, 'lengths must be >= 1'),
    ({'runs': 1}, 'runs must be >= 2'),
    ({'traced': ('nowhere',)}, "Unknown environment 'nowhere'"),
    ({'pulls': ('nobody',)}, "Unknown bandit 'nobody'"),
    ({'bandits': {'ucb_spec': {'delta': 2.0}}}, 'delta must lie'),
  ],
)
def test_bad_values_are_refused_before_anything_runs(
  tmp_path, monkeypatch, changes, message
):
  monkeypatch.setattr(laboratory, 'play', lambda *args: pytest.fail('started'))
  with pytest.raises(ValueError, match=message):
    experiments_test._run(_config(**changes), tmp_path)
