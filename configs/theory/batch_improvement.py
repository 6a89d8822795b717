r"""What more drafts of a token are worth: Figure 3 of Yin et al. (2024).

python -m experiments.main --config=configs/theory/batch_improvement.py \
    --workdir=runs/theory_batch_improvement

Writes `batch_improvement.png`. By how much `k` drafts lower the chance of a
rejection, in closed form and computed:

| draft, target | k = 2 | 4 | 10 | limit |
|---|---|---|---|---|
| Ber(0.6), Ber(0.5) | 0.040 | 0.078 | 0.099 | 0.100 |
| Ber(0.9), Ber(0.5) | 0.040 | 0.108 | 0.245 | 0.400 |
| U(120), U(60) | 0.250 | 0.438 | 0.499 | 0.500 |
| U(120), U(12) | 0.090 | 0.244 | 0.551 | 0.900 |
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'improvement',
      'max_drafts': 10,
      'bernoulli_target': 0.5,
      'bernoulli_drafts': (0.6, 0.7, 0.8, 0.9),
      'uniform_draft': 120,
      'uniform_targets': (96, 60, 30, 12),
    }
  )
