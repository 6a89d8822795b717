r"""Decoding-OPT against Decoding-UNO: Yin et al. (2024), Tables 1 and 2.

python -m experiments.main --config=configs/theory/winrate.py \
    --workdir=runs/theory_winrate

The score of a response is the mean log-likelihood per token that the target
gives it, not a reward model. On the 64 shipped prompts, with 16 responses each:

| methods, epsilon | prompts won by the first | scores | rejections a token |
|---|---|---|---|
| target, small | 100% ± 0 | -3.65, -5.28 | 0.000, 0.000 |
| OPT, UNO 0.01 | 58% ± 6 | -4.92, -5.00 | 0.108, 0.108 |
| OPT, UNO 0.1 | 52% ± 6 | -4.99, -5.00 | 0.018, 0.020 |
| OPT, UNO 0.2 | 45% ± 6 | -5.01, -4.98 | 0.007, 0.007 |
| OPT, UNO 0.4 | 53% ± 6 | -4.94, -4.99 | 0.001, 0.001 |
| OPT, UNO 0.8 | 50% ± 6 | -4.98, -5.02 | 0.000, 0.000 |

From the paper's epsilons on, 2% of the tokens or fewer replace a draft, and the
two methods do not differ clearly; hence the smaller one, at which they do not
either. The paper's OPT wins 52.5 to 57.5%.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'winrate',
      'family': 'mini',
      'drafter': 'small',
      'draft_length': 4,
      'epsilons': (0.01, 0.1, 0.2, 0.4, 0.8),
      'responses': 16,  # To each prompt, by each method.
      'max_new_tokens': 24,
      'max_length': 128,
      'temperature': 1.0,
      'seed': 0,
    }
  )
