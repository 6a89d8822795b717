r"""Trains encoder-decoders for translation and summarization.

The workdir becomes a family with the drafter `small`.

python -m experiments.main --config=configs/train/encoder_decoder.py \
    --config.data_dir=DATA --workdir=runs/encoder_decoder

This takes an hour on one CPU core. There are few pairs: if it is trained only
on translations to English and on summaries, the target memorizes them, so that
it also reads other English text.
"""

import ml_collections


def get_config():
  return ml_collections.ConfigDict(
    {
      'experiment': 'train.models',
      'data_dir': 'data',
      'tokenizer': 'specjax/families/mini/tokenizer.json',
      'responses': (),
      'distill_from': '',
      'loss': 'kl',  # The loss of distillation.
      'train_on_text': True,
      # With other English text, as the pairs would be memorized.
      'domain': (
        'translation_de-en',
        'translation_fr-en',
        'translation_ja-en',
        'translation_ru-en',
        'translation_zh-en',
        'summarization',
        'instruct',
        'lm',
        'qa',
      ),
      'row_length': 128,  # Tokens of the encoder; abstracts are truncated.
      'target_length': 64,
      'seed': 0,
      'models': {
        'target': _model(
          encoder_layers=2, decoder_layers=3, d_model=320, num_heads=5, d_ff=768
        ),
        'small': _model(
          encoder_layers=2, decoder_layers=1, d_model=128, num_heads=2, d_ff=320
        ),
      },
      'training': {
        'steps': 5000,
        'batch_size': 8,
        'learning_rate': 7e-4,
        'warmup_steps': 200,
        'checkpoint_every': 100,
      },
    }
  )


def _model(**sizes):
  return {**sizes, 'head_dim': 64, 'attention_scale': 0.125}
