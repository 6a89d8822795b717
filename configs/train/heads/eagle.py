r"""A head on any target's features: EAGLE-1's, which is that of EAGLE-2.

python -m experiments.main --config=configs/train/responses.py:short \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/long
python -m experiments.main --config=configs/train/heads/eagle.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/eagle

With `steps` above 1 in its recipe, it learns to read its own outputs, as HASS
does.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.heads',
      'data_dir': 'data',
      'family': 'smollm2',
      'responses': (
        'runs/short/responses.jsonl',
        'runs/long/responses.jsonl',
      ),
      'num_texts': {'all': 1500},  # By domain.
      'prompt_weight': 0.3,
      'row_length': 512,
      'seed': 0,
      'heads': {
        'eagle': {
          'kind': 'eagle',
          'options': {'head_size': 8000},
          'recipe': {
            'steps': 3,
            'feature_weight': 1.0,
            'token_weight': 0.1,
            'noise': 0.1,
          },
        }
      },
      'stored_as': 'int8',
      'training': {
        'steps': 6000,
        'batch_size': 1,
        'learning_rate': 1e-3,
        'warmup_steps': 100,
        'checkpoint_every': 200,
      },
    }
  )
