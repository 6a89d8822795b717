r"""EAGLE-3's head: features of three depths, steps on its own outputs.

python -m experiments.main --config=configs/train/heads/eagle3.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/eagle3

The responses are those of configs/train/heads/eagle.py, and `:mini` as there.
The paper takes seven steps on its own outputs from the first token on.
"""

from configs.train.heads import eagle

VARIANTS = eagle.VARIANTS
SMOKE = {'heads.eagle3_first.options.head_size': 64}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  return eagle.of_kind(family, 'eagle3', {**eagle.ITS_OWN_OUTPUTS, 'steps': 1})
