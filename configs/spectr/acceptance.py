r"""Acceptance by the number of drafts: SpecTr's Figures 4, 5 and 6.

python -m experiments.main --config=configs/spectr/acceptance.py \
    --workdir=runs/spectr_acceptance

Writes `bernoulli.png`, `uniform.png` and `zipf.png`. With k drafts:

| draft, target | rule | k = 1 | 2 | 4 | 8 |
|---|---|---|---|---|---|
| Ber(0.25), Ber(0.75) | optimum, otm | 0.500 | 0.688 | 0.934 | 1.000 |
| | kseq | 0.500 | 0.648 | 0.830 | 0.963 |
| | multiround | 0.500 | 0.625 | 0.789 | 0.933 |
| U(120), U(40) | all rules | 0.333 | 0.556 | 0.802 | 0.961 |
| Zipf(32000), noise 0.5 | optimum, otm | 0.754 | 0.922 | 0.990 | 0.999 |
| | kseq | 0.754 | 0.853 | 0.926 | 0.969 |
| | multiround | 0.754 | 0.825 | 0.883 | 0.927 |
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'transport',
      'max_drafts': 10,
      'bernoulli_draft': 0.25,
      'bernoulli_targets': (0.1, 0.25, 0.75, 1.0),
      'uniform_draft': 120,
      'uniform_targets': (60, 40, 20, 10),
      'zipf_size': 32000,
      'zipf_spreads': (0.5, 1.5),  # Noise of the logits, in nats.
      'seed': 0,
    }
  )
