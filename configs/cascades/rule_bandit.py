r"""A bandit over rules, for several trade-offs of speed and fidelity.

python -m experiments.main --config=configs/cascades/rule_bandit.py \
    --config.data_dir=DATA --workdir=runs/rule_bandit

An arm has a method of `experiments/methods.py`, an alpha, a draft length if
another than the config's, and options of the method.

On one CPU core in 7 minutes, the mean reward of a round less that of the best
arm (opt for a weight of 0.2, lossless for 0.5 and 0.8; errors up to 0.009):
ucb1 -0.042, 0.000 and -0.004, thompson -0.057, -0.020 and -0.063, at random
-0.069, -0.027 and -0.088. Without `carry_over` no bandit learns anything: an
answer takes three or four rounds.
"""

import ml_collections

from configs.cascades import frontier


def get_config(task='translation'):
  return ml_collections.ConfigDict(
    {
      'experiment': 'rule_bandit',
      **frontier.shared(task),
      'arms': {
        'lossless': {},
        'lossy_tuned': {'alpha': 0.5},
        'opt': {'alpha': 0.2},
        'token': {'method': 'token_v3', 'alpha': 0.5},
        'token 8': {'method': 'token_v3', 'alpha': 0.9, 'draft_length': 8},
      },
      'bandits': ('uniform', 'ucb1:beta=0.01', 'thompson'),  # One a row.
      'carry_over': True,  # The bandit's state, as answers are short.
      'weights': (0.2, 0.5, 0.8),  # Of fidelity; the rest is of tokens.
      'draft_length': 5,
      'temperature': 1.0,
      'prompts': 200,
      'batch_size': 8,
    }
  )
