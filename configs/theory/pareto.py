r"""Rejection against bias: Figure 4 of Yin et al. (2024).

python -m experiments.main --config=configs/theory/pareto.py \
    --workdir=runs/theory_pareto

If rejected tokens are replaced by samples from the residual (Decoding-OPT),
rejection and bias sum to the total variation between draft and target. If they
are replaced by samples from the target (Decoding-UNO) or from the draft (the
paper's code for it), the sum is larger, as long as any token is rejected. The
verifier is within 0.003 of every formula.
"""

import ml_collections

SMOKE = {'epsilons': (0.1,), 'positions': (1,)}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.pareto',
      # After token 0, at several positions of the chains of `rejections`.
      'vocab_size': 7,
      'horizon': 50,
      'positions': (0, 1, 2),
      'epsilons': (0.0, 0.02, 0.05, 0.1, 0.2, 0.4),
      'runs': 200000,
      'seed': 10,
      'pivot': {
        'down': ('position', 'epsilon', 'rejection'),
        'across': 'rule',
        'value': 'bias',
      },
    }
  )
