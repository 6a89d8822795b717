r"""Trains one EAGLE head further with each of several losses.

python -m experiments.main --config=configs/train/responses.py:smollm2 \
    --config.data_dir=DATA --workdir=runs/smollm2_responses
python -m experiments.main --config=configs/train/heads/losses.py \
    --config.data_dir=DATA --workdir=runs/losses

Every head starts from the weights that come with the family, and sees the same
responses, three steps of its own draft at each position. The losses are those
of the acceptance rate, and KL. The rows show teacher-forced agreement;
configs/benchmark/losses.py measures emitted tokens per target call.
"""

from configs.train.heads import eagle
from specjax import registry

LOSSES = 'kl', 'tv', 'acceptance', 'hybrid'
_RESPONSES = {
  'smollm2': 'runs/smollm2_responses/responses.npz',
  'mini': 'runs/responses/responses.npz',
}

VARIANTS = tuple(_RESPONSES)


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  responses = registry.lookup(_RESPONSES, 'family', family)
  config = eagle.get_config(family)
  config.responses = (responses,)
  config.num_texts = {'all': 0}
  further = config.heads.eagle
  config.heads = {
    name: {
      'start': f'specjax/families/{family}/heads/eagle.safetensors',
      'recipe': {**further.recipe, 'loss': name},
    }
    for name in LOSSES
  }
  config.training.update(
    {'steps': 250, 'learning_rate': 3e-4, 'warmup_steps': 30}
  )
  return config
