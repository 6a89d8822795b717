r"""Expected acceptance by the temperature of the draft model.

python -m experiments.main --config=configs/theory/draft_temperature.py \
    --workdir=runs/theory_draft_temperature

At each token of texts that the target has decoded, the expected acceptance is
the sum of `min(target, draft)`. At draft temperature 0, the draft is the most
likely token, as in engines that do not store the distributions of drafts.
`gain` is acceptance minus that of a draft at the target's temperature.
"""

import ml_collections

from configs.benchmark import smollm2
from specjax import registry

_VARIANTS = {
  'mini': {
    'drafters': ('large', 'medium', 'small'),
    'prompts': {'all': {'domains': ()}},
    'prompts_per_domain': 4,
    'max_length': 144,
    'batch_size': 16,
  },
  'smollm2': {
    'drafters': ('small',),
    'prompts': {'all': {'domains': smollm2.DOMAINS}},
    'prompts_per_domain': 8,
    'max_length': 256,
    'batch_size': 8,
  },
}
_TARGET_TEMPERATURES = 0.6, 1.0

VARIANTS = tuple(_VARIANTS)
SMOKE = {'temperatures': (0.0, 0.6, 1.0)}


def get_config(which='mini'):
  """Returns the config for 'mini' or 'smollm2'."""
  variant = dict(registry.lookup(_VARIANTS, 'family', which))
  drafters = variant.pop('drafters')
  return ml_collections.ConfigDict(
    {
      'experiment': 'theory.draft_temperature',
      'family': which,
      'data_dir': '',  # Its eval files; the family's own prompts by default.
      **variant,
      # The texts are decoded with drafts at the target's temperature.
      'methods': tuple(
        {
          'arm': f'{drafter}:4/maximal',
          'sampling': {'temperature': temperature},
          'columns': {'drafter': drafter, 'target_temperature': temperature},
        }
        for temperature in _TARGET_TEMPERATURES
        for drafter in drafters
      ),
      'temperatures': (0.0, 0.2, 0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0),
      'sampling': {'temperature': 1.0},
      'max_new_tokens': 48,
      'seed': 0,
      'columns': (
        'target_temperature',
        'drafter',
        'draft_temperature',
        'acceptance',
        'acceptance_error',
        'gain',
        'gain_error',
        'best_share',
      ),
    }
  )
