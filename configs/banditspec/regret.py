r"""Regret of bandits on simulated arms: BanditSpec's theorems, measured.

python -m experiments.main --config=configs/banditspec/regret.py \
    --workdir=runs/banditspec_regret

Writes `regret.png`, `best_arm.png` and `pulls.png`, in about 2 minutes on two
cores. Regret in rounds, mean and standard error of 500 runs:

| | stationary, 2000 tokens | 20000 | drifting, 20000 | adversarial, 20000 |
|---|---|---|---|---|
| ucb_spec | 48.1 ± 0.3 | 90.5 ± 0.5 | -39.2 ± 0.5 | 15000 |
| its bound (42) | 788 | 978 | | |
| exp3_spec | 61.4 ± 0.7 | 108.4 ± 1.0 | 111.4 ± 7.0 | 5.9 ± 1.3 |
| its bound, Theorem 5.3 | 814 | 1808 | 1829 | 1687 |
| ucb1 | 62.3 ± 0.4 | 133.8 ± 0.5 | 7.2 ± 0.5 | 15000 |
| kl_ucb | 21.8 ± 0.2 | 37.2 ± 0.3 | -104.8 ± 0.5 | 15000 |
| thompson | 18.0 ± 0.2 | 27.0 ± 0.2 | -44.9 ± 1.7 | 18.8 ± 1.2 |
| epsilon_greedy | 30.1 ± 0.9 | 212.7 ± 1.1 | 226.2 ± 3.8 | 15.3 ± 0.5 |
| exp3 | 84.2 ± 0.8 | 268.2 ± 1.1 | 259.5 ± 2.5 | 9.3 ± 1.2 |
| hedge (sees all arms) | 1.8 ± 0.1 | 1.7 ± 0.1 | 2.6 ± 0.1 | 35.7 ± 1.4 |
| uniform | 292.4 ± 0.9 | 2907.4 ± 3.0 | 2734.3 ± 2.9 | 1.9 ± 1.4 |

Below 0, a bandit beats every single arm: it follows the drift. The adversary
traps whoever plays in turns as long as nothing is earned. UCBSpec plays about
9e6 rounds a second, compilation aside.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'regret',
      'bandits': {  # Options by name.
        'ucb_spec': {'delta': 0.5},
        'exp3_spec': {},
        'ucb1': {'beta': 1.0},
        'kl_ucb': {'c': 0.0},
        'thompson': {},
        'epsilon_greedy': {'epsilon': 0.1},
        'exp3': {'gamma': 0.1},
        'hedge': {'learning_rate': None},  # AdaHedge.
        'uniform': {},
      },
      'draft_length': 4,
      'acceptances': (0.3, 0.5, 0.6, 0.8),  # Stationary arms.
      'drift': ((0.8, 0.5, 0.6, 0.3), (0.3, 0.5, 0.6, 0.8)),
      'period': 300,  # Rounds until the arms drift.
      'lengths': (200, 600, 2000, 6000, 20000),  # Tokens.
      'runs': 500,
      'trace_rounds': 1000,  # 0 leaves out plots of arms.
      'traced': ('stationary', 'drifting'),  # Environments.
      'pulls': ('ucb_spec', 'exp3_spec'),  # Bandits.
      'seed': 0,
    }
  )
