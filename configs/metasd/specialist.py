r"""Distills a drafter of the mini family further, on one domain.

for name in all code math qa summarization translation \
    translation_{de,fr,ja,ru,zh}-en; do
  python -m experiments.main --config=configs/metasd/specialist.py:$name \
      --workdir=runs/specialists/$name
done

'all' is the general drafter: it has the same size and initialization, and is
trained on all of these domains with three times the steps. The runs of
configs/train/tokenizer.py, target.py and drafters.py (docs/models.md), and of
configs/metasd/responses.py, are required in their workdirs.
"""

import ml_collections

VARIANTS = ('all', 'code')  # Any domain is valid.


def get_config(name='code'):
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.models',
      'data_dir': '',  # Of the eval files, for bits per byte; or none.
      'tokenizer': 'runs/tokenizer/tokenizer.json',
      'responses': ('runs/specialist_responses/responses.jsonl',),
      'distill_from': 'runs/target/target.safetensors',
      'loss': 'kl',  # The loss of distillation.
      'train_on_text': False,
      'domain': name,
      'prompt_weight': 0.25,
      'row_length': 512,
      'seed': 0,
      'models': {name: 'runs/drafters/medium.safetensors'},
      'training': {
        'steps': 900 if name == 'all' else 300,
        'batch_size': 4,
        'learning_rate': 2e-3,
        'warmup_steps': 20,
        'checkpoint_every': 100,
      },
    }
  )
