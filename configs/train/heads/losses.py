r"""Compares losses: one EAGLE head, trained further with each of them.

python -m experiments.main --config=configs/train/responses.py \
    --config.family=mini --config.data_dir=DATA --workdir=runs/responses
python -m experiments.main --config=configs/train/heads/losses.py:mini \
    --config.data_dir=DATA --workdir=runs/losses

Every head starts from the weights that come with the family, and sees the same
texts, at each position three steps of its own draft. The rows show
teacher-forced agreement; emitted tokens per target call on held-out prompts,
with one entry for each loss in `drafters` and `methods`, come from

python -m experiments.main --config=configs/compare.py \
    --config.family=mini/heads --config.data_dir=DATA --workdir=runs/compared \
    --config.drafters="{'kl': 'runs/losses/kl.safetensors'}" \
    --config.methods="('none', 'feature_head(kl):4')"
"""

from configs.train.heads import eagle
from specjax.training import losses

VARIANTS = eagle.VARIANTS


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  config = eagle.get_config(family)
  further = config.heads.eagle
  further.start = f'specjax/families/{family}/heads/eagle.safetensors'
  config.heads = {
    name: {**further, 'recipe': {**further.recipe, 'loss': name}}
    for name in losses.LOSSES
  }
  return config
