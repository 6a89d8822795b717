r"""Rejections of runs and their prediction by theory.

python -m experiments.main --config=configs/theory/diagnose.py \
    --workdir=runs/theory_diagnose --config.data_dir=DATA

The prediction is Theorem 1 of Yin et al. (2024), along each run. A row is
flagged if its `seen` rejections differ by more than 3 standard errors from the
predicted ones, which happens in one of 370 correct rows. With
`--config.methods="('small:4/over_acceptance',)"`, most rows are flagged.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

_VARIANTS = {
  'mini': {
    'prompts': {'all': {'domains': ()}},
    'prompts_per_domain': 20,
    # Chains, with a verifier that tests tokens one by one.
    'methods': ('large:4/maximal', 'medium:4/maximal', 'small:4/maximal'),
    'max_new_tokens': 48,
    'max_length': 144,
    'batch_size': 64,
  },
  'smollm2': {
    'prompts': {'all': {'domains': smollm2.DOMAINS}},
    'prompts_per_domain': 16,
    'methods': ('small:4/maximal',),
    'max_new_tokens': 64,
    'max_length': 256,
    'batch_size': 8,
  },
}

VARIANTS = tuple(_VARIANTS)


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.diagnose',
      'family': which,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      **registry.lookup(_VARIANTS, 'family', which),
      'sampling': {'temperature': 1.0},
      'num_seeds': 4,
      'seed': 0,
    }
  )
