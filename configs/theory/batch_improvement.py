r"""The gain from several drafts of a token: Figure 3 of Yin et al. (2024).

python -m experiments.main --config=configs/theory/batch_improvement.py \
    --workdir=runs/theory_batch_improvement

`k` drafts lower the probability of a rejection by an amount that grows with `k`
up to the total variation between draft and target. For a draft Ber(0.9) and a
target Ber(0.5), 10 drafts gain 0.245 of at most 0.4, exactly.
"""

import ml_collections

SMOKE = {'max_drafts': 2}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.improvement',
      'max_drafts': 10,
      'bernoulli_target': 0.5,
      'bernoulli_drafts': (0.6, 0.7, 0.8, 0.9),
      'uniform_draft': 120,
      'uniform_targets': (96, 60, 30, 12),
      'pivot': {
        'down': ('num_drafts',),
        'across': 'pair',
        'value': 'improvement',
      },
    }
  )
