r"""Trains the mini family's target, with 8.2M parameters.

python -m experiments.main --config=configs/train/target.py \
    --config.data_dir=DATA --workdir=runs/target
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.models',
      'data_dir': 'data',
      'tokenizer': 'runs/tokenizer/tokenizer.json',
      'responses': (),
      'distill_from': '',
      'loss': 'kl',  # The loss of distillation.
      'train_on_text': True,
      'domain': 'all',
      'prompt_weight': 1.0,
      'row_length': 512,
      'seed': 0,
      'models': {
        'target': {
          'num_layers': 4,
          'd_model': 384,
          'num_heads': 6,
          'num_kv_heads': 2,
          'head_dim': 64,
          'd_ff': 1088,
          'max_length': 1024,
        },
      },
      'training': {
        'steps': 2800,
        'batch_size': 4,
        'learning_rate': 1.5e-3,
        'warmup_steps': 150,
        'checkpoint_every': 100,
      },
    }
  )
