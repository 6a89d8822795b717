r"""Quality against cost at lower temperatures (Figures 5 and 6).

python -m experiments.main --config=configs/cascades/temperatures.py \
    --config.data_dir=DATA --workdir=runs/temperatures

Latencies, if they are measured, appear in figures and not in the table.
"""

from configs.cascades import frontier
from experiments.common import sweeps

VARIANTS = frontier.TASKS
SMOKE = frontier.SMOKE


def get_config(task='translation'):
  config = frontier.shared(task)
  config.methods = (
    *frontier.plain(),
    *frontier.drafted(frontier.FEW),
    *frontier.token_cascade(frontier.FEW['chow']),
  )
  config.sweep = sweeps.product({'sampling.temperature': (0.0, 0.1, 0.5)})
  config.columns = (
    'sampling.temperature',
    *frontier.UNTIMED,
  )
  return config
