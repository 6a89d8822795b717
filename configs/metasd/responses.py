r"""Responses of the mini target in each domain, for its specialized drafters.

python -m experiments.main --config=configs/metasd/responses.py \
    --config.data_dir=DATA --workdir=runs/specialist_responses

The target is that of configs/train/target.py, in runs/target. Temperatures are
those of MetaSD (Kim et al. 2026), Appendix F.1. The numbers of prompts give
about equally many tokens per domain.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.responses',
      'data_dir': 'data',
      'family': 'runs/target',
      'num_responses': {
        'code': 512,
        'math': 512,
        'qa': 2048,
        'summarization': 512,
        'translation_de-en': 1024,
        'translation_fr-en': 1024,
        'translation_ja-en': 1024,
        'translation_ru-en': 1024,
        'translation_zh-en': 1024,
      },
      'max_prompt_tokens': 384,
      'max_new_tokens': 128,
      'batch_size': 32,
      'temperatures': (0.0, 0.3, 0.7, 1.0),
      'num_parts': 1,
      'as_text': True,  # Whether responses.jsonl is also written.
      'sampling': {'top_p': 1.0},
      'seed': 0,
    }
  )
