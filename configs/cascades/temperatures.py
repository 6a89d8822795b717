r"""The frontier at lower temperatures (Figures 5 and 6).

python -m experiments.main --config=configs/cascades/temperatures.py \
    --config.data_dir=DATA --workdir=runs/temperatures

At temperature 0, with 40 prompts on one CPU core, opt and diff of one alpha say
the same (-1.36 nats a token with alpha 0 at a latency of 0.84, -1.66 with 0.1
at 0.58), lossy is lossless whatever its alpha is (-1.26 at about 1), bild of 4
has -1.48 at 0.73 and chow of 0.9 -1.54 at 0.66.
"""

from configs.cascades import frontier


def get_config(task='translation'):
  config = frontier.get_config(task)
  config.temperatures = (0.0, 0.1, 0.5)
  config.methods = {
    'target': {},
    'draft': {},
    'lossless': {},
    'lossy': {'alphas': (0.3, 0.6, 0.9)},
    'bild': {'alphas': (1.0, 2.0, 4.0)},
    'chow': {'alphas': (0.3, 0.6, 0.9)},
    'diff': {'alphas': (0.0, 0.1, 0.3)},
    'opt': {'alphas': (0.0, 0.1, 0.3)},
    'token_v3': {'alphas': (0.3, 0.6, 0.9)},
    'token_cascade': {'alphas': (0.3, 0.6, 0.9)},
  }
  return config
