r"""Rejection against bias: Figure 4 of Yin et al. (2024).

python -m experiments.main --config=configs/theory/pareto.py \
    --workdir=runs/theory_pareto

Writes `front.png`. Replaced by the residual, rejection and bias sum to the
total variation between draft and target; replaced by the target, to more, as
long as any is rejected. The verifier is within 0.003 of every formula.
Rejection, and bias with each replacement, of the first pair (0.439 apart):

| epsilon | rejection | residual | target |
|---|---|---|---|
| 0 | 0.439 | 0.000 | 0.191 |
| 0.02 | 0.379 | 0.060 | 0.225 |
| 0.05 | 0.304 | 0.135 | 0.266 |
| 0.1 | 0.227 | 0.212 | 0.309 |
| 0.2 | 0.127 | 0.312 | 0.364 |
| 0.4 | 0.000 | 0.439 | 0.439 |
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'pareto',
      'num_pairs': 3,
      'vocab_size': 7,
      'concentration': 1.0,  # Of the Dirichlet, for drafts and targets.
      'epsilons': (0.0, 0.02, 0.05, 0.1, 0.2, 0.4),
      'runs': 200000,
      'seed': 10,
    }
  )
