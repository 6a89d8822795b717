"""The regret experiment, tiny: its rows, its figures, and how it goes on."""

import jax
import numpy as np
import pytest

from experiments import main
from experiments.banditspec import regret
from experiments.banditspec import simulated_arms
from experiments.common import paper
from specjax import bandits
from tests.experiments import toy


def _config(**changes):
  small = {
    'bandits': ('ucb_spec(delta=0.3)', 'exp3_spec'),
    'pulls': ('exp3_spec',),
    'lengths': (60, 120),
    'runs': 6,
    'trace_rounds': 60,
  }
  config = toy.config('banditspec/regret', None, small | changes)
  drifting = config.environments.drifting
  config.environments.drifting = drifting.replace('period=300', 'period=9')
  return config


@pytest.fixture(scope='module', name='regret_run')
def _regret_run(tmp_path_factory):
  workdir = tmp_path_factory.mktemp('regret')
  return workdir, toy.run(_config(), workdir)


def _regrets(rows):
  return [row for row in rows if 'part' not in row]


def test_rows_and_bounds(regret_run):
  _, rows = regret_run
  rows = _regrets(rows)
  names = ('environment', 'bandit', 'tokens')
  assert [tuple(row[name] for name in names) for row in rows] == [
    (environment, bandit, tokens)
    for environment in ('adversarial', 'drifting', 'stationary')
    for bandit in ('ucb_spec(delta=0.3)', 'exp3_spec')
    for tokens in (60, 120)
  ]
  for row in rows:
    lost_rounds = row['rounds'] - row['best_rounds']
    assert row['regret'] == pytest.approx(lost_rounds)
    assert row['tokens'] / 5 <= row['best_rounds'] < row['rounds']
    is_exp3 = row['bandit'] == 'exp3_spec'
    has_bound = is_exp3 or row['environment'] == 'stationary'
    assert (row['bound'] is not None) == has_bound
    assert not has_bound or row['regret'] < row['bound']
  # In the trap: a token per round, against 16 in 4, rounded up to a block.
  assert rows[1]['rounds'] == 120 and rows[1]['best_rounds'] <= 30


def test_shares_of_arms_are_those_of_a_trace(regret_run):
  """Computes shares from simulated arms, round by round."""
  _, rows = regret_run
  rows = [row for row in rows if row.get('part') == 'selected arms']
  assert {row['environment'] for row in rows} == {'drifting', 'stationary'}
  trace_rows = [
    row
    for row in rows
    if (row['environment'], row['bandit']) == ('drifting', 'exp3_spec')
  ]
  acceptances = (0.8, 0.5, 0.6, 0.3), (0.3, 0.5, 0.6, 0.8)
  drifting = simulated_arms.drifting(acceptances, 4, 9)
  bandit = bandits.EXP3Spec(4)
  arms = simulated_arms.simulate(
    jax.random.key(0), bandit, drifting, 300, 6
  ).arms
  best = np.where(np.arange(60) < 9, 0, 3)
  rounds = np.array([row['round'] for row in trace_rows])
  assert len(trace_rows) == 50 and rounds[0] == 0.5 and rounds[-1] == 59
  # The first windows have two rounds, the last ones one.
  assert trace_rows[0]['best_arm'] == pytest.approx(
    (arms[:, :2] == best[:2]).mean()
  )
  assert trace_rows[-1]['best_arm'] == pytest.approx((arms[:, 59] == 3).mean())
  shares = [[row[f'arm_{i}'] for i in range(4)] for row in trace_rows]
  np.testing.assert_allclose(np.sum(shares, 1), 1)
  assert shares[0][1] == pytest.approx((arms[:, :2] == 1).mean())
  untraced_rows = [row for row in rows if row['bandit'] != 'exp3_spec']
  assert untraced_rows and not any('arm_0' in row for row in untraced_rows)


def test_figures(regret_run):
  _, rows = regret_run
  figures = regret.figures(rows)
  assert set(figures) == {'regret', 'best_arm', 'pulls'}
  titles = [axes.get_title() for axes in figures['pulls'].axes]
  assert titles == ['exp3_spec, drifting', 'exp3_spec, stationary']
  labels = {
    text.get_text() for axes in figures['regret'].axes for text in axes.texts
  }
  assert 'bound of exp3_spec' in labels and len(labels) == 4
  assert set(regret.figures(_regrets(rows))) == {'regret'}


def test_block_efficiency_is_tokens_per_round(regret_run):
  _, rows = regret_run
  for row in _regrets(rows):
    expected = row['tokens'] / row['rounds']
    assert row['block_efficiency'] == pytest.approx(expected)
    assert 0 <= row['block_efficiency_error'] < 1


def test_the_arms_of_table_1_emit_the_paper_s_numbers_of_tokens():
  config = toy.config('banditspec/regret', None, {}, 'table_1')
  _, arms = regret.prepare(config)
  numbers = paper.read('banditspec/tables_1_3_4')
  numbers = numbers[
    (numbers['table'] == 'Table 1, LLaMA3-8B')
    & (numbers['prompts'] == 'Spec-Bench')
  ].set_index('method')['block_efficiency']
  methods = ['Eagle-2', 'suffix tree', 'PLD', 'Rest']
  expected = numbers[methods].astype(float)
  means = arms['Spec-Bench'].means(0)
  np.testing.assert_allclose(means, expected, atol=0.005)


def test_a_run_that_was_killed_goes_on(regret_run, tmp_path):
  """Resumes a run; with one bandit fewer, nothing is simulated again."""
  workdir, rows = regret_run
  torn_dir = toy.torn_workdir(workdir, tmp_path / 'again', 4)
  assert toy.run(_config(), torn_dir) == rows
  units = toy.units(workdir)
  assert toy.units(torn_dir) == units and len(units) == 6
  exp3_rows = toy.run(_config(bandits=('exp3_spec',)), torn_dir)
  assert exp3_rows == [row for row in rows if row['bandit'] == 'exp3_spec']
  assert toy.units(torn_dir) == units


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'draft_length': 0}, 'environments.adversarial: draft_length must be'),
    ({'lengths': (10, 0)}, 'lengths must be >= 1'),
    ({'runs': 1}, 'runs must be >= 2'),
    ({'traced': ('nowhere',)}, "Unknown environment of traced 'nowhere'"),
    ({'pulls': ('nobody',)}, "Unknown bandit of pulls 'nobody'"),
    (
      {'bandits': ('ucb_spec(delta=2.0)',)},
      'bandits: ucb_spec.*delta must lie',
    ),
    ({'bandits': ('ucb1', 'ucb1')}, 'Two units of work are the same'),
  ],
)
def test_bad_values_are_refused_before_anything_runs(
  tmp_path, monkeypatch, changes, message
):
  monkeypatch.setattr(
    simulated_arms, 'simulate', lambda *args: pytest.fail('started')
  )
  with pytest.raises(ValueError, match=message):
    main.run(_config(**({'pulls': ()} | changes)), tmp_path / 'run')
  assert not (tmp_path / 'run').exists()


@pytest.mark.parametrize(
  ('entry', 'message'),
  [
    ('truncated_geometric((0.5, 1.0))', 'lie in'),
    ('truncated_geometric', "environments.mine.*'acceptances'"),
    ('truncated_geometric(chance=1)', "Unknown option 'chance'"),
    ('drifting(acceptances=((0.5,),), period=0)', 'period'),
    ('nowhere', "environments.mine: Unknown environment 'nowhere'"),
  ],
)
def test_bad_environments_are_refused(tmp_path, entry, message):
  config = _config()
  config.environments = {'mine': entry}
  with pytest.raises(ValueError, match=message):
    main.run(config, tmp_path)
