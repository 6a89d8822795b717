r"""Variants of BiLD, of lossy decoding and of the token rules (Figures 8, 9).

python -m experiments.main --config=configs/cascades/variants.py:bild \
    --config.data_dir=DATA --workdir=runs/variants_bild

With `--config.prompts=100` on one CPU core, in nats a token by the target at a
latency. BiLD at temperature 0, with other weights of the same training (the
target alone -1.33): as a speculative cascade -1.34 at 0.91 with alpha 2, -1.53
at 0.71 with 3 and -1.91 at 0.54 with 8; the original, with a window of 5 and a
fallback of 90%, -1.34 at 0.97 with 2, -1.41 at 0.82 with 3 and -1.43 at 0.77
with 8; with a window of 10, -1.34 at 1.14 and -1.43 at 0.89. A fallback of 10%
hands over at almost every token: 1.21 to 1.37 with a window of 5, 1.26 to 1.42
with 10. Lossy decoding at temperature 1: with beta 1 -3.46 at 0.77 and -3.62 at
0.71 (alpha 0.3 and 0.5), tuned -3.49 at 0.95 and -3.60 at 0.90: nearly the
same distribution, and beta has to be found. Token rules at temperature 1 (the
target has -3.58 ± 0.08): token_v2 -3.15 at 0.81 (0.1) and -3.36 at 0.66 (0.2),
token_v1 -3.23 at 0.85 (0) and -3.53 at 0.66 (0.2), token_v3 -2.87 at 0.91
(0.9), no faster with any alpha; diff_log -3.52 at 0.84 (0) and -3.79 at 0.66
(0.6), opt_log -3.52 at 0.81 and -3.72 at 0.68 (1).
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
