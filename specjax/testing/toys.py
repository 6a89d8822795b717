"""Tiny models with random weights, for tests of components."""

from collections.abc import Mapping
import dataclasses
import functools
import pathlib
from typing import Any

import jax
import tokenizers
from tokenizers import decoders
from tokenizers import models as tokenizer_models
from tokenizers import pre_tokenizers

from specjax import base
from specjax import families
from specjax import models
from specjax.data import chat
from specjax.data import prompt_format
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models import heads

VOCAB = 32

# Fields of tiny transformers, without the size of the vocabulary.
TINY: dict[str, Any] = {
  'num_layers': 1,
  'd_model': 16,
  'num_heads': 2,
  'num_kv_heads': 1,
  'head_dim': 8,
  'd_ff': 16,
}


@functools.cache
def transformer(
  seed: int = 0, num_layers: int = 2, **options: Any
) -> tuple[base.LanguageModel, base.Params]:
  """Returns a random transformer with peaked outputs, and its parameters.

  Args:
    seed: seed of the weights.
    num_layers: number of layers.
    **options: other fields of `TransformerConfig`.
  """
  config = config_lib.TransformerConfig(
    vocab_size=VOCAB,
    num_layers=num_layers,
    d_model=16,
    num_heads=4,
    num_kv_heads=2,
    head_dim=4,
    d_ff=32,
    **options,
  )
  params = jax.tree.map(
    lambda leaf: leaf * 8 if leaf.ndim > 1 else leaf,
    flax_modules.init_params(jax.random.key(seed), config),
  )
  return adapters.Transformer(config), params


@functools.cache
def markov(
  seed: int = 0, vocab_size: int = 4, horizon: int | None = None
) -> tuple[base.LanguageModel, base.Params]:
  """Returns a random Markov model and its table.

  Args:
    seed: seed of the table.
    vocab_size: `V`.
    horizon: number of positions with different tables; None for one table.
  """
  times = () if horizon is None else (horizon,)
  shape = (*times, vocab_size, vocab_size)
  logits = 2 * jax.random.normal(jax.random.key(seed), shape)
  return models.Markov(vocab_size), jax.nn.softmax(logits)


CHAT_TEMPLATE = (
  '{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}'
  '{% if add_generation_prompt %}<assistant>{% endif %}'
)


def chat_tokenizer(
  template: str | None = CHAT_TEMPLATE,
) -> tokenizer_lib.Tokenizer:
  """Returns a byte-level tokenizer with the special tokens of a template."""
  letters = sorted(pre_tokenizers.ByteLevel.alphabet())
  vocab = {letter: i for i, letter in enumerate(letters)}
  core = tokenizers.Tokenizer(tokenizer_models.BPE(vocab=vocab, merges=[]))
  core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
  core.decoder = decoders.ByteLevel()
  core.add_special_tokens(['<system>', '<user>', '<assistant>', '<end>'])
  end_id = len(vocab) + 3
  text_format = prompt_format.plain_format(core, [end_id])
  if template is not None:
    text_format = text_format._replace(template=chat.Template(template))
  return tokenizer_lib.Tokenizer(core, text_format)


def write_family(
  folder: pathlib.Path,
  drafters: dict[str, float],
  scale: float = 12.0,
  tokenizer: tokenizer_lib.Tokenizer | None = None,
) -> None:
  """Writes a tokenizer and random models of one shape.

  Args:
    folder: where to.
    drafters: by name, how far each is from the target, from 0, the target
      itself, to 1, another model.
    scale: of the weights; a large one makes for peaked distributions.
    tokenizer: the mini family's, by default.
  """
  shipped = pathlib.Path(families.__file__).parent / 'mini'
  tokenizer = tokenizer or tokenizer_lib.load(shipped)
  tokenizer.save(folder)
  vocab_size = tokenizer.vocab_size
  config = config_lib.TransformerConfig(vocab_size=vocab_size, **TINY)
  ends = [
    flax_modules.init_params(jax.random.key(seed), config) for seed in (0, 1)
  ]
  for name, share in {'target': 0.0, **drafters}.items():
    params = jax.tree.map(
      lambda leaf, other, share=share: (
        (scale if leaf.ndim > 1 else 1) * (leaf + share * (other - leaf))
      ),
      *ends,
    )
    checkpoint.save(str(folder / f'{name}.safetensors'), config, params)


def write_heads(folder: pathlib.Path, kinds: Mapping[str, str]) -> None:
  """Writes untrained heads for the target of a family.

  Args:
    folder: folder of the family; heads are written to its subfolder `heads`.
    kinds: kinds of heads by name: 'eagle', 'eagle3', 'medusa' or 'dflash'.
  """
  target = families.load(folder).target
  assert isinstance(target.config, config_lib.TransformerConfig)
  (folder / 'heads').mkdir()
  for seed, (name, kind) in enumerate(kinds.items()):
    config = dataclasses.replace(
      heads.configure(kind, target.config),
      target=heads.fingerprint(target.params),
    )
    params = heads.begin(
      jax.random.key(seed), config, target.config, target.params
    )
    path = folder / 'heads' / f'{name}.safetensors'
    checkpoint.save(path, config, heads.own_params(config, params))
