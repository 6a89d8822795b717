r"""A drafter for any target, distilled: some of its layers, a small head.

python -m experiments.main --config=configs/train/responses.py:short \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/long
python -m experiments.main --config=configs/train/distill.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/distill

The target is a family's or a checkpoint directory's. A drafter begins as some
of its layers, and has a head of the tokens that are predicted most often. It
reads its target's embedding, which is not stored with it.
"""

import ml_collections

SMOKE = {'students.small': {'layers': (0,), 'head_size': 64}}


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.distill',
      'data_dir': 'data',
      'family': 'smollm2',
      'responses': (
        'runs/short/responses.jsonl',
        'runs/long/responses.jsonl',
      ),
      'domain': 'all',  # Of the responses.
      'num_texts': {'all': 1500},  # By domain.
      'max_tokens': 0,  # The most tokens of text in all; 0 is no limit.
      'teacher_batch_size': 4,  # Rows that the target reads together.
      'prompt_weight': 0.3,
      'row_length': 512,
      'seed': 0,
      'students': {'small': {'layers': (0, 29), 'head_size': 8000}},
      'stored_as': 'int8',
      'training': {
        'steps': 6000,
        'batch_size': 1,  # Of 4, a token teaches less.
        'learning_rate': 1e-3,
        'warmup_steps': 100,
        'checkpoint_every': 200,
      },
    }
  )
