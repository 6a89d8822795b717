r"""The frontier at lower temperatures (Figures 5 and 6).

python -m experiments.main --config=configs/cascades/temperatures.py \
    --config.data_dir=DATA --workdir=runs/temperatures
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
