r"""SpecTr's Appendix E: a 97M target with drafters of 2M, 6M and 20M.

The drafters small, medium and large have 2.3M, 5.7M and 20.5M parameters at
16384 tokens, the target 97.5M. As in the paper, small and large have half and
twice the layers, the width, the MLP and the heads of medium.

Sized for one accelerator; 0.7G tokens of text, such as LM1B. DATA holds it as
`*.train.jsonl` and `*.eval.jsonl`: how a text begins is its `prompt`, the rest
of it is the `response`.

python -m experiments.main --config=configs/train/tokenizer.py \
    --config.data_dir=DATA --config.vocab_size=16384 \
    --workdir=runs/lm1b_tokenizer
python -m experiments.main --config=configs/spectr/lm1b_97m.py \
    --config.data_dir=DATA --workdir=runs/lm1b
python -m experiments.main --config=configs/spectr/decode.py \
    --config.family=runs/lm1b --config.data_dir=DATA \
    --config.prompts_per_domain=1000 --workdir=runs/lm1b_decode
python -m experiments.main --config=configs/spectr/latency.py \
    --config.family=runs/lm1b --workdir=runs/lm1b_latency
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.models',
      'data_dir': 'data',
      'tokenizer': 'runs/lm1b_tokenizer/tokenizer.json',
      'responses': (),
      'distill_from': '',
      'loss': 'kl',  # The loss of distillation.
      'train_on_text': True,
      'domain': 'all',
      'prompt_weight': 1.0,
      'row_length': 512,
      'seed': 0,
      'models': {
        'target': _model(num_layers=12, d_model=768, num_heads=12, d_ff=2048),
        'large': _model(num_layers=4, d_model=512, num_heads=8, d_ff=1280),
        'medium': _model(num_layers=2, d_model=256, num_heads=4, d_ff=640),
        'small': _model(num_layers=1, d_model=128, num_heads=2, d_ff=320),
      },
      'training': {
        'steps': 20000,
        'batch_size': 64,
        'learning_rate': 6e-4,
        'warmup_steps': 1000,
        'checkpoint_every': 500,
      },
    }
  )


def _model(num_layers, d_model, num_heads, d_ff):
  return {
    'num_layers': num_layers,
    'd_model': d_model,
    'num_heads': num_heads,
    'num_kv_heads': num_heads,
    'head_dim': d_model // num_heads,
    'd_ff': d_ff,
    'max_length': 1024,
  }
