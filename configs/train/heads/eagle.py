r"""A head on any target's features: EAGLE-1's, which is that of EAGLE-2.

python -m experiments.main --config=configs/train/responses.py:short \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/long
python -m experiments.main --config=configs/train/heads/eagle.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/eagle

It learns as EAGLE-1 does, and then to read its own outputs, as HASS, but from
tokens alone; that takes longer for each token. Heads of the mini family, of its
own responses:

python -m experiments.main --config=configs/train/responses.py \
    --config.family=mini --config.data_dir=DATA --workdir=runs/responses
python -m experiments.main --config=configs/train/heads/eagle.py:mini \
    --config.data_dir=DATA --workdir=runs/mini_eagle
"""

from configs.train import distill

_MINI = {
  'family': 'mini',
  'responses': ('runs/responses/responses.jsonl',),
  'num_texts': {'all': 3000},
}
# Steps of EAGLE-1's recipe, and of what comes behind it.
_STEPS = {'smollm2': (4000, 2000), 'mini': (1000, 500)}
# Tokens alone, at three steps of the draft.
ITS_OWN_OUTPUTS = {
  'steps': 3,
  'feature_weight': 0.0,
  'token_weight': 1.0,
  'noise': 0.0,
}
_EAGLE_1 = {
  'steps': 1,
  'feature_weight': 1.0,
  'token_weight': 0.1,
  'noise': 0.1,
}

VARIANTS = tuple(_STEPS)
SMOKE = {'heads.eagle_first.options.head_size': 64}


def get_config(family='smollm2'):
  """Returns the config for 'smollm2' or 'mini'."""
  return of_kind(family, 'eagle', _EAGLE_1)


def of_kind(family, kind, recipe):
  """Returns the config of a head that learns by a recipe, and goes on."""
  if family not in _STEPS:
    raise ValueError(
      f'family must be one of {list(_STEPS)}, got {family!r}; others are set '
      'by --config.family.'
    )
  config = distill.get_config()  # The same text.
  config.experiment = 'train.heads'
  del config.students
  if family == 'mini':
    config.update(_MINI)
  config.training.steps, more = _STEPS[family]
  first = f'{kind}_first'
  config.heads = {
    first: {
      'kind': kind,
      'options': {'head_size': None if family == 'mini' else 8000},
      'recipe': recipe,
    },
    kind: {
      'start': first,
      'recipe': ITS_OWN_OUTPUTS,
      'training': {'steps': more, 'learning_rate': 5e-4},
    },
  }
  return config
