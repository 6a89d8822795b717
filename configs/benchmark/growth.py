r"""Acceptance of heads that were trained on more and more responses.

python -m experiments.main --config=configs/benchmark/growth.py \
    --config.data_dir=DATA --workdir=runs/growth_compared
python -m experiments.main --config=configs/benchmark/growth.py:sampled \
    --config.data_dir=DATA --workdir=runs/growth_compared-sampled
python -m experiments.main --config=configs/benchmark/growth.py:mini \
    --config.data_dir=DATA --workdir=runs/growth_compared-mini

The heads are those of configs/train/heads/growth.py; `start` is the head that
all others start from. Chains of four tokens, on held-out prompts, at
temperature 0 and 1.
"""

from configs.benchmark import losses
from configs.train.heads import growth
from specjax import registry

_FOLDERS = {
  'smollm2': 'runs/growth',
  'sampled': 'runs/growth-sampled',
  'mini': 'runs/growth-mini',
}

VARIANTS = tuple(_FOLDERS)


def get_config(variant='smollm2'):
  """Returns the config for 'smollm2', 'sampled' or 'mini'."""
  family = registry.lookup(growth.FAMILIES, 'variant', variant)
  config = losses.get_config(family)
  del config.paper
  tokens = growth.tokens(variant)
  paths = {name: f'{_FOLDERS[variant]}/{name}.safetensors' for name in tokens}
  config.drafters = {'start': growth.STARTS[family], **paths}
  config.sources = tuple(
    (path, 'configs/train/heads/growth.py') for path in paths.values()
  )
  if family == 'mini':
    config.sources += ((growth.STARTS[family], 'configs/train/heads/all.py'),)
  config.methods = tuple(
    {
      'arm': f'feature_head({name}):{losses.LENGTH}',
      'label': name,
      'columns': {'training_tokens': num},
    }
    for name, num in {'start': 0, **tokens}.items()
  )
  config.columns = (
    losses.TEMPERATURE,
    'method',
    'training_tokens',
    'block_efficiency',
    'first_acceptance',
    'acceptance_by_depth',
  )
  return config
