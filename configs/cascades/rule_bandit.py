r"""Bandits over rules, for several trade-offs of speed and fidelity.

python -m experiments.main --config=configs/cascades/rule_bandit.py \
    --config.data_dir=DATA --workdir=runs/rule_bandit
"""

from configs.cascades import frontier

_ARMS = (
  'small:5',
  'small:5~lossy(0.5)',
  'small:5~opt(0.2)',
  'small:5~token_v3(0.5)',
  'small:8~token_v3(0.9)',
)

VARIANTS = frontier.TASKS


def get_config(task='translation'):
  """Returns single arms, and bandits for each weight of fidelity."""
  config = frontier.shared(task)
  config.experiment = 'cascades.rule_bandit'
  config.batch_size, config.repeats = 8, 0
  config.update(
    {
      'arms': _ARMS,
      'bandits': ('uniform', 'ucb1(beta=0.01)', 'thompson'),  # One per row.
      'weights': (0.2, 0.5, 0.8),  # Of fidelity; the remainder is of tokens.
      'carry_over': True,  # Bandits keep their state, as answers are short.
      'per_row': True,
      'columns': (
        'weight',
        'method',
        'target_nats',
        'target_calls',
        'fidelity',
        'reward',
        'best_arm',
        'over_best',
        'pulls',
      ),
    }
  )
  return config
