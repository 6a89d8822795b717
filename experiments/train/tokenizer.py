"""Trains the tokenizer of a model family."""

from specjax.data import examples as examples_lib
from specjax.data import tokenizer as tokenizer_lib


def run(config, workdir):
  """Writes `tokenizer.json`, trained on the train files of `data_dir`."""
  examples = examples_lib.read_split(config.data_dir, 'train')
  texts = (
    text for example in examples for text in (example.prompt, example.response)
  )
  tokenizer = tokenizer_lib.train(texts, config.vocab_size)
  tokenizer.save(workdir)
  print(f'Wrote {tokenizer.vocab_size} tokens to {workdir}.')
