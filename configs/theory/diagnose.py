r"""The rejections of runs against what theory predicts of the same runs.

python -m experiments.main --config=configs/theory/diagnose.py \
    --workdir=runs/theory_diagnose --config.data_dir=DATA

Theorem 1 of Yin et al. (2024), along each run: `seen` rejections lie within 3
standard errors of the predicted ones, or the row is flagged: one sound row in
370 is. With `--config.ways="('small:4/over_acceptance',)"` most are.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.diagnose',
      'family': 'mini',
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      'prompts': {'all': {}},
      'prompts_per_domain': 20,
      # Chains, and a verifier that tests drafts one by one.
      'ways': tuple(f'{name}:4/maximal' for name in _MODELS),
      'sampling': {'temperature': 1.0},
      'num_seeds': 4,
      'max_new_tokens': 48,
      'max_length': 144,
      'batch_size': 64,
      'seed': 0,
    }
  )


_MODELS = ('large', 'medium', 'small')
