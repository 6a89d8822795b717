r"""Variants of BiLD, lossy decoding and the token rules (Figures 8, 9).

python -m experiments.main --config=configs/cascades/variants.py:bild \
    --config.data_dir=DATA --workdir=runs/variants_bild

`variants.py:smollm2_token` is Figure 9 with SmolLM2 and summarization.
"""

from configs.cascades import frontier
from specjax import registry

_TOKEN = {
  'token_v1': (-0.2, 0.0, 0.2, 0.4, 0.6),
  'token_v2': (0.0, 0.1, 0.2, 0.4, 0.6),
  'token_v3': frontier.SHARES,
}
_LOGARITHMS = {
  'chow_log': (0.5, 1.0, 2.0, 3.0, 4.0),
  'diff_log': (-1.0, 0.0, 0.3, 0.6, 1.0),
  'opt_log': (-1.0, 0.0, 0.5, 1.0, 2.0),
}


def get_config(figure='bild'):
  """Returns the config of Figure 8 ('bild' and 'lossy') or 9 ('token')."""
  variant = registry.lookup(_FIGURES, 'figure', figure)
  config = frontier.shared(variant['task'])
  config.methods = (
    *frontier.plain(),
    *frontier.drafted(variant['rules']),
    *variant['methods'],
  )
  config.sampling.temperature = 0.0 if figure == 'bild' else 1.0
  return config


def _original(window, fallback):
  """Returns the original BiLD: drafts until the drafter is unsure."""
  return frontier.line(
    f'window {window}, fallback {fallback:.0%}',
    f'small(stop=unsure({fallback}),bonus_probs=True):{window}'
    f'~bild({{alpha}},{fallback})',
    frontier.SURPRISES,
  )


_BILD = tuple(
  method
  for window in (10, 5)
  for fallback in (0.9, 0.1)
  for method in _original(window, fallback)
)
_TUNED = frontier.line('lossy_tuned', 'small:5~lossy({alpha})', frontier.SHARES)
_FIGURES = {
  'bild': {
    'task': 'translation',
    'rules': {'bild': frontier.SURPRISES},
    'methods': _BILD,  # Further methods.
  },
  'lossy': {'task': 'translation', 'rules': {}, 'methods': _TUNED},
  'token': {
    'task': 'translation',
    'rules': _TOKEN | _LOGARITHMS,
    'methods': (),
  },
  'smollm2_token': {
    'task': 'smollm2_summarization',
    'rules': _TOKEN,
    'methods': (),
  },
}
VARIANTS = tuple(_FIGURES)
SMOKE = frontier.SMOKE
