"""Distils drafters from any target: some of its layers, and a small head."""

import os

import numpy as np

from experiments.common import prompts as prompts_lib
from specjax.data import examples as examples_lib
from specjax.data import packing
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import cutting
from specjax.training import loop
from specjax.training import losses
from specjax.training import teacher

# Parameters of a drafter that are its target's, or never change.
_SHARED = ('embedding',)
_FIXED = (*_SHARED, 'head_rows')


def run(config, workdir):
  """Writes `NAME.safetensors` for each drafter."""
  family = prompts_lib.load_family(config)
  rows = _rows(config, family.tokenizer)
  target = family.target
  taught = teacher.teach(
    target.functions, target.params, rows, os.path.join(workdir, 'teacher')
  )
  for name, fields in config.drafters.items():
    folder = os.path.join(workdir, name)
    draft_config, params = _fit(config, target, taught, fields, folder)
    checkpoint.save(
      os.path.join(workdir, f'{name}.safetensors'),
      draft_config,
      {key: each for key, each in params.items() if key not in _SHARED},
      np.dtype(config.stored_as),
    )


def _rows(config, tokenizer):
  """Packs the text that is learnt."""
  examples = _chosen(config)
  for path in config.responses:
    examples += examples_lib.read(path)
  sequences = [tokenizer.encode_example(e.prompt, e.response) for e in examples]
  rows = packing.pack(
    sequences, config.row_length, config.seed, before=config.prompt_weight
  )
  print(f'{len(examples)} examples in {len(rows.tokens)} rows.')
  return rows


def _chosen(config):
  """Some of the training text, `config.num_texts` of each domain."""
  if not config.num_texts:
    return []
  examples = examples_lib.read_split(config.data_dir, 'train')
  rng = np.random.default_rng(config.seed)
  chosen = []
  for domain, num in config.num_texts.items():
    own = examples_lib.of_domain(examples, domain)
    chosen += [own[i] for i in rng.permutation(len(own))[:num]]
  return chosen


def _fit(config, target, taught, fields, folder):
  """Trains a drafter that begins as a part of its target."""
  tokens = _frequent(taught, target.config.vocab_size, fields['head_size'])
  narrow = cutting.narrow_head(target.config, target.params, tokens)
  draft_config, start = cutting.keep_layers(*narrow, fields['layers'])
  fixed = {name: start[name] for name in _FIXED}
  own = {name: start[name] for name in start if name not in _FIXED}
  functions = adapters.transformer(draft_config)
  draft_head, head = map(adapters.head_logits, (draft_config, narrow[0]))

  def forced(params, fixed, batch):
    params = {**params, **fixed}
    features = adapters.read_packed(functions, params, batch).features[-1]
    return draft_head(params, features)

  loss_fn = losses.taught(forced, head)
  params = loop.fit(
    loss_fn,
    own,
    (fixed, narrow[1]),
    taught,
    loop.TrainingConfig(seed=config.seed, **config.training),
    folder,
  )
  return draft_config, {**params, **fixed}


def _frequent(rows, vocab_size, num):
  """The tokens that are to be predicted most often, in the order of ids."""
  weights = rows.weights[:, :-1].ravel()
  counts = np.bincount(
    rows.tokens[:, 1:].ravel(), weights, minlength=vocab_size
  )
  return np.sort(np.argsort(-counts, kind='stable')[:num])
