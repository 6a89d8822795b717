r"""Distills a drafter from any target: some of its layers, and a small head.

python -m experiments.main --config=configs/train/responses.py:short \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/short
python -m experiments.main --config=configs/train/responses.py:long \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/long
python -m experiments.main --config=configs/train/distill.py \
    --config.family=FAMILY --config.data_dir=DATA --workdir=runs/distill

The target belongs to a family or is in a checkpoint directory. A drafter is
initialized with some of its layers, and its head has the tokens that are
predicted most often. It shares the target's embedding, which is not stored with
the drafter. `--config.loss=acceptance` trains for the acceptance rate instead
of KL; docs/models.md lists all losses.
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
      'domain': 'all',  # The domain of the responses.
      'num_texts': {'all': 1500},  # By domain.
      'max_tokens': 0,  # The maximum number of training tokens; 0 is no limit.
      'teacher_batch_size': 4,  # The batch size of the target.
      'prompt_weight': 0.3,
      'row_length': 512,
      'seed': 0,
      'students': {'small': {'layers': (0, 29), 'head_size': 8000}},
      'loss': 'kl',
      'stored_as': 'int8',
      'training': {
        'steps': 6000,
        'batch_size': 1,  # Larger batches learn less per token.
        'learning_rate': 1e-3,
        'warmup_steps': 100,
        'checkpoint_every': 200,
      },
    }
  )
