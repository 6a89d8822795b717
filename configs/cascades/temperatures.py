r"""The frontier at lower temperatures (Figures 5 and 6).

python -m experiments.main --config=configs/cascades/temperatures.py \
    --config.data_dir=DATA --workdir=runs/temperatures

With `--config.prompts=100` on one CPU core, in nats a token by the target at a
latency. At temperature 0 opt and diff of one alpha say the same (-1.43 with 0
at 0.75, -1.85 with 0.1 at 0.57), lossy is lossless whatever its alpha is (-1.32
at 0.88), and token_v3 has -1.39 at 0.79 with 0.3 and -1.51 at 0.62 with 0.6,
where bild has -1.70 at 0.62 and chow -1.49 at 0.74. A token cascade says what
chow does: with other weights of the same training (the target alone -1.33) both
have -1.43 with 0.9, at 0.83 and at 0.66, and -1.33 with 0.6, at 1.01 and 0.88.
At 0.1 all is within 0.1 of that, but lossy trades: -1.38 at 0.77 with 0.9. At
0.5, token_v3 of 0.6 has -1.63 at 0.85, the target itself -1.78; below that the
rules are close, but for bild: -1.90 at 0.63 lossy, -1.91 at 0.63 opt, -2.08 at
0.62 bild.
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
