r"""Trains an EAGLE-3 head, which reads hidden states from three depths.

python -m experiments.main --config=configs/train/heads/eagle3.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/eagle3

See configs/train/heads/eagle.py for the responses and for `:mini`. The paper
trains with seven steps on the head's own outputs from the start.
"""

from configs.train.heads import eagle

VARIANTS = eagle.VARIANTS
SMOKE = {'heads.eagle3_first.options.head_size': 64}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  return eagle.head_config(
    family, 'eagle3', {**eagle.ITS_OWN_OUTPUTS, 'steps': 1}
  )
