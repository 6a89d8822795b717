r"""Rejections in theory and in fact: Figures 2 and 5 of Yin et al. (2024).

python -m experiments.main --config=configs/theory/rejections.py \
    --workdir=runs/theory_rejections

The paper does not say how it drew its chains: here rows are Dirichlet samples,
of a concentration that comes near its 16.41 rejections at horizon 50. Writes
`num_drafts.png` and `running_mean.png`. Rejections, with standard errors of the
last digit:

| horizon, drafts | theory | simulation | decoder |
|---|---|---|---|
| 50, 1 | 16.308 | 16.304(10) | 16.315(46) |
| 50, 2 | 14.895 | 14.893(9) | 14.853(42) |
| 50, 4 | 13.875 | 13.885(8) | 13.867(37) |
| 50, 5 | 13.627 | 13.630(8) | 13.617(37) |
| 50, infinity | 12.098 | | |
| 100, 1 | 32.915 | 32.908(15) | |
| 100, 2 | 30.114 | 30.120(13) | |
| 100, 4 | 28.092 | 28.113(12) | |
| 100, 5 | 27.592 | 27.580(12) | |
| 100, infinity | 24.517 | | |

On two cores of an x86_64 CPU the simulation plays 0.6M (5 drafts) to 2.8M (one)
rounds a second, 100,000 runs of 50 tokens in 0.6 to 2.3 seconds, and the
decoder 26k to 80k.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'rejections',
      'vocab_size': 7,
      'concentration': 2.2,  # Of the Dirichlet, for the tables' rows.
      'horizons': (50, 100),
      'num_drafts': (1, 2, 3, 4, 5, 6, 7, 8),
      'simulated_drafts': (1, 2, 4, 5),
      'simulated_runs': 100000,
      'runs_per_chunk': 10000,
      'decoded_horizons': (50,),
      'decoded_drafts': (1, 2, 4, 5),
      'decoded_runs': 5000,
      'batch_size': 1000,
      'seed': 10,
    }
  )
