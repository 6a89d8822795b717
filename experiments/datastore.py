"""Indexes text for the drafters that look continuations up."""

import os

import tqdm

from experiments import results
from specjax import families
from specjax.data import datastore
from specjax.data import examples as examples_lib


def run(config, workdir):
  """Writes `datastore.safetensors` of the train files, and a row about it."""
  results.start(workdir)
  tokenizer = families.load(config.family).tokenizer
  examples = examples_lib.read_split(config.data_dir, 'train')
  documents = [
    tokenizer.encode_example(example.prompt, example.response)[0]
    for example in tqdm.tqdm(examples, desc='tokens')
  ]
  store, seconds = results.timed(datastore.build, documents)
  path = os.path.join(workdir, 'datastore.safetensors')
  datastore.save(path, store)
  row = {
    'documents': len(documents),
    'tokens': sum(map(len, documents)),
    'seconds': seconds,  # To index; reading and tokens come before.
    'bytes': os.path.getsize(path),
  }
  results.log(workdir, row)
  results.write(workdir, [row])
