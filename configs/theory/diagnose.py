r"""The rejections of a run against what theory predicts of the same run.

python -m experiments.main --config=configs/theory/diagnose.py \
    --workdir=runs/theory_diagnose

Seen and predicted, standard error: large 1900, 1846.9 ± 35.8; medium 2424,
2437.5 ± 39.0; small 3113, 3114.0 ± 40.1. The furthest of 24 domains is 1.8
standard errors off.

A row for each drafter and domain; `deviation` is in standard errors, and rows
beyond 3 are flagged: one sound row in 370. With `--config.verifier=
over_acceptance` most are.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'diagnose',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts_per_domain': 20,
      'drafters': (),  # All of them.
      'draft_length': 4,
      'verifier': 'maximal',  # One that tests drafts one by one.
      'requests_per_prompt': 4,
      'rounds': 20,
      'max_new_tokens': 48,
      'max_length': 144,
      'batch_size': 64,
      'temperature': 1.0,
      'seed': 0,
    }
  )
