"""Indexes text for retrieval drafters."""

import os

import tqdm

from experiments.common import prompts as prompts_lib
from specjax.data import datastore
from specjax.data import examples as examples_lib
from specjax.decoding import timing


def run(config, workdir):
  """Writes `datastore.safetensors` from the train files; returns its row."""
  tokenizer = prompts_lib.load_family(config).tokenizer
  examples = examples_lib.read_split(config.data_dir, 'train')
  documents = [
    tokenizer.encode_example(example.prompt, example.response)[0]
    for example in tqdm.tqdm(examples, desc='tokens', disable=None)
  ]
  store, seconds = timing.timed(lambda: datastore.build(documents))
  path = os.path.join(workdir, 'datastore.safetensors')
  datastore.save(path, store)
  return [
    {
      'documents': len(documents),
      'tokens': sum(map(len, documents)),
      'seconds': seconds,  # Only indexing, without reading and tokenizing.
      'bytes': os.path.getsize(path),
    }
  ]
