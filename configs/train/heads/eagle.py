r"""Trains an EAGLE-1 head for any target, which EAGLE-2 also uses.

python -m experiments.main --config=configs/train/responses.py:short \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/long
python -m experiments.main --config=configs/train/heads/eagle.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/eagle

It is trained as in EAGLE-1, and then on its own outputs as in HASS, but only
with the loss on tokens, which takes longer per token. Heads for the mini family
are trained on its responses:

python -m experiments.main --config=configs/train/responses.py \
    --config.family=mini --config.data_dir=DATA --workdir=runs/responses
python -m experiments.main --config=configs/train/heads/eagle.py:mini \
    --config.data_dir=DATA --workdir=runs/mini_eagle
"""

import ml_collections

from configs.train import distill

MINI = {
  'family': 'mini',
  'responses': ('runs/responses/responses.jsonl',),
  'num_texts': {'all': 3000},
}
# Steps of EAGLE-1's recipe, and of the training on its own outputs.
_STEPS = {'smollm2': (4000, 2000), 'mini': (1000, 500)}
# Only the loss on tokens, for three steps of the draft.
ITS_OWN_OUTPUTS = {
  'steps': 3,
  'feature_weight': 0.0,
  'token_weight': 1.0,
  'noise': 0.0,
  'loss': 'kl',
}
_EAGLE_1 = {
  'steps': 1,
  'feature_weight': 1.0,
  'token_weight': 0.1,
  'noise': 0.1,
  'loss': 'kl',
}

VARIANTS = tuple(_STEPS)
SMOKE = {'heads.eagle_first.options.head_size': 64}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  return head_config(family, 'eagle', _EAGLE_1)


def head_config(family, kind, recipe):
  """Returns the config of a head: a recipe, and then its own outputs."""
  if family not in _STEPS:
    raise ValueError(
      f'family must be one of {list(_STEPS)}, got {family!r}; set other '
      'families by --config.family.'
    )
  config = distill.get_config()  # The same text.
  config.experiment = 'train.heads'
  del config.students, config.loss
  if family == 'mini':
    config.update(MINI)
  config.training.steps, later_steps = _STEPS[family]
  first = f'{kind}_first'
  every_token = ml_collections.config_dict.placeholder(int)
  head_size = every_token if family == 'mini' else 8000
  # As in EAGLE-1; vLLM needs a projection without a bias.
  options = {'bias': True} if kind == 'eagle' else {}
  config.heads = {
    first: {
      'kind': kind,
      'options': {'head_size': head_size, **options},
      'recipe': recipe,
    },
    kind: {
      'start': first,
      'recipe': ITS_OWN_OUTPUTS,
      'training': {'steps': later_steps, 'learning_rate': 5e-4},
    },
  }
  return config
