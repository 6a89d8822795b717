r"""Distills the mini family's drafters from its target, all in one run.

python -m experiments.main --config=configs/train/drafters.py \
    --config.data_dir=DATA --workdir=runs/drafters
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.models',
      'data_dir': 'data',
      'tokenizer': 'runs/tokenizer/tokenizer.json',
      'responses': ('runs/responses/responses.jsonl',),
      'distill_from': 'runs/target/target.safetensors',
      'loss': 'kl',  # The loss of distillation.
      'train_on_text': True,
      'domain': 'all',
      'prompt_weight': 1.0,
      'row_length': 512,
      'seed': 0,
      'models': {
        'large': _model(num_layers=4, d_model=160, num_heads=5, d_ff=576),
        'medium': _model(num_layers=3, d_model=96, num_heads=3, d_ff=256),
        'small': _model(num_layers=2, d_model=48, num_heads=3, d_ff=192),
      },
      'training': {
        'steps': 1600,
        'batch_size': 4,
        'learning_rate': 3e-3,
        'warmup_steps': 150,
        'checkpoint_every': 100,
      },
    }
  )


def _model(num_layers, d_model, num_heads, d_ff):
  return {
    'num_layers': num_layers,
    'd_model': d_model,
    'num_heads': num_heads,
    'num_kv_heads': 1,
    'head_dim': d_model // num_heads,
    'd_ff': d_ff,
    'max_length': 1024,
  }
