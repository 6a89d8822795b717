r"""Variants of BiLD, of lossy decoding and of the token rules (Figures 8, 9).

python -m experiments.main --config=configs/cascades/variants.py:bild \
    --config.data_dir=DATA --workdir=runs/variants_bild

BiLD with the T5 pair on one CPU core, with `--config.prompts=60`: as a
speculative cascade, alpha 2 has the target's -1.22 nats a token at a latency of
0.91, and 5 has -1.51 at 0.51. The original, with a window of 5 and a fallback
of 90%, has -1.22 at 0.99 with alpha 2 and -1.48 at 0.68 with 8; with a window
of 10, -1.22 at 1.25 and -1.48 at 0.82. A fallback of 10% hands over at almost
every token: 1.5 and more.
"""

import ml_collections

from configs.cascades import frontier

_ALPHAS = (0.1, 0.3, 0.5, 0.7, 0.9)
_SURPRISES = (1.0, 2.0, 3.0, 5.0, 8.0)


def _original(window, fallback):
  return {
    'method': 'bild_original',
    'alphas': _SURPRISES,
    'window': window,
    'fallback': fallback,
  }


_METHODS = {
  'bild': {
    'bild': {'alphas': _SURPRISES},
    'window 10, fallback 90%': _original(10, 0.9),
    'window 10, fallback 10%': _original(10, 0.1),
    'window 5, fallback 90%': _original(5, 0.9),
    'window 5, fallback 10%': _original(5, 0.1),
  },
  'lossy': {
    'lossy': {'alphas': _ALPHAS},
    'lossy_tuned': {'alphas': _ALPHAS},
  },
  'token': {
    'token_v1': {'alphas': (-0.2, 0.0, 0.2, 0.4, 0.6)},
    'token_v2': {'alphas': (0.0, 0.1, 0.2, 0.4, 0.6)},
    'token_v3': {'alphas': _ALPHAS},
    'chow_log': {'alphas': (0.5, 1.0, 2.0, 3.0, 4.0)},
    'diff_log': {'alphas': (-1.0, 0.0, 0.3, 0.6, 1.0)},
    'opt_log': {'alphas': (-1.0, 0.0, 0.5, 1.0, 2.0)},
  },
}


def get_config(figure='bild'):
  """Figure 8 top is 'bild', at temperature 0; its bottom 'lossy'; 9 'token'."""
  config = frontier.get_config()
  shared = {'target': {}, 'draft': {}, 'lossless': {}}
  config.methods = ml_collections.ConfigDict(shared | _METHODS[figure])
  config.temperatures = (0.0,) if figure == 'bild' else (1.0,)
  return config
