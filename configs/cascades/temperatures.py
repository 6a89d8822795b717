r"""The frontier at lower temperatures (Figures 5 and 6).

python -m experiments.main --config=configs/cascades/temperatures.py \
    --config.data_dir=DATA --workdir=runs/temperatures
"""

from configs.cascades import frontier

_SHARES = (0.3, 0.6, 0.9)
_GAPS = (0.0, 0.1, 0.3)
_RULES = {
  'bild': (1.0, 2.0, 4.0),
  'chow': _SHARES,
  'diff': _GAPS,
  'opt': _GAPS,
  'token_v3': _SHARES,
}


def get_config(task='translation'):
  config = frontier.shared(task)
  config.ways = (
    *frontier.alone(),
    *frontier.drafted(_RULES),
    *frontier.token_cascade(_SHARES),
  )
  config.sweep = "{'sampling.temperature': (0.0, 0.1, 0.5)}"
  return config
