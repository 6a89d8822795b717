r"""Trains one EAGLE head further on more and more of its target's responses.

python -m experiments.main --config=configs/train/responses.py:smollm2 \
    --config.temperatures='(0.0,)' --config.max_prompt_tokens=128 \
    --config.data_dir=DATA --workdir=runs/smollm2_greedy
python -m experiments.main --config=configs/train/heads/growth.py \
    --config.data_dir=DATA --workdir=runs/growth

python -m experiments.main --config=configs/train/responses.py:smollm2 \
    --config.temperatures='(1.0,)' --config.batch_size=128 \
    --config.data_dir=DATA --workdir=runs/smollm2_sampled
python -m experiments.main --config=configs/train/heads/growth.py:sampled \
    --config.data_dir=DATA --workdir=runs/growth-sampled

python -m experiments.main --config=configs/train/responses.py \
    --config.family=mini --config.data_dir=DATA --workdir=runs/responses
python -m experiments.main --config=configs/train/heads/all.py:mini \
    --config.data_dir=DATA --workdir=runs/train_heads
python -m experiments.main --config=configs/train/responses.py \
    --config.family=mini --config.num_responses.all=1000000 \
    --config.temperatures='(0.0, 1.0)' --config.num_parts=16 \
    --config.data_dir=DATA --workdir=runs/mini_responses
python -m experiments.main --config=configs/train/heads/growth.py:mini \
    --config.data_dir=DATA --workdir=runs/growth-mini

All heads start from the same weights: those that come with SmolLM2, or those of
configs/train/heads/all.py:mini. Each is trained separately, with its own
learning-rate schedule. The responses are in the same order for all heads, so
that a longer training includes the text of the shorter ones. The rows show
teacher-forced acceptance on responses that a head has not read yet;
configs/benchmark/growth.py measures acceptance in the decode loop.
"""

from configs.train.heads import losses
from specjax import registry

_STEPS = {
  'smollm2': (136, 272, 544),
  'sampled': (300, 600, 1200),
  'mini': (125, 500, 2000),
}
_RESPONSES = {
  'smollm2': 'runs/smollm2_greedy',
  'sampled': 'runs/smollm2_sampled',
  'mini': 'runs/mini_responses',
}
# Each variant's family: `sampled` are responses of SmolLM2 at temperature 1.
FAMILIES = {'smollm2': 'smollm2', 'sampled': 'smollm2', 'mini': 'mini'}
_ROW_LENGTH = 512
# The head that all others start from.
STARTS = {
  'smollm2': 'specjax/families/smollm2/heads/eagle.safetensors',
  'mini': 'runs/train_heads/eagle.safetensors',
}
# The names of the heads, by the steps of their training.
NAMES = {
  steps: f'eagle_{steps}' for lengths in _STEPS.values() for steps in lengths
}

VARIANTS = tuple(FAMILIES)


def tokens(variant):
  """Returns training tokens by head, one row per step, prompts included."""
  lengths = registry.lookup(_STEPS, 'variant', variant)
  return {NAMES[steps]: steps * _ROW_LENGTH for steps in lengths}


def get_config(variant='smollm2'):
  """Returns the config for 'smollm2', 'sampled' or 'mini'."""
  family = registry.lookup(FAMILIES, 'variant', variant)
  config = losses.get_config(family)
  recipe = config.heads.kl.recipe
  config.heads = {
    NAMES[steps]: {
      'start': STARTS[family],
      'recipe': recipe,
      'training': {'steps': steps},
    }
    for steps in _STEPS[variant]
  }
  config.responses = (f'{_RESPONSES[variant]}/responses.npz',)
  config.row_length = _ROW_LENGTH
  config.training.batch_size = 1
  return config
