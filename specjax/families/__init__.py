"""Trained model families that come with the package."""

import os
from typing import Any
from typing import NamedTuple

from specjax import base
from specjax import decoding
from specjax import registry
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib

__all__ = [
  'Family',
  'Model',
  'decoder',
  'load',
  'load_model',
  'num_params',
]


class Model(NamedTuple):
  """A language model with its parameters."""

  config: config_lib.Config
  functions: base.LanguageModel
  params: base.Params


class Family(NamedTuple):
  """A target and its drafters, which share a tokenizer."""

  tokenizer: tokenizer_lib.Tokenizer
  target: Model
  drafters: dict[str, Model]  # largest first, then by name
  prompts: list[examples_lib.Example]  # held out, some for each domain


def load(family: str = 'mini') -> Family:
  """Loads a family: a name of the package's own, or a folder.

  A folder holds `tokenizer.json`, `target.safetensors`, any number of other
  `*.safetensors` (the drafters), and `prompts.jsonl` or no prompts. A folder
  inside of it holds other drafters of the same target, and nothing else.

  Args:
    family: 'mini', 'mini/specialists' or a path.

  Raises:
    ValueError: there is no such family, or one of its files is missing,
      corrupt or not one of specjax, as in a folder of HuggingFace.
  """
  shipped = os.path.dirname(__file__)
  known = sorted(
    os.path.relpath(path, shipped).replace(os.sep, '/')
    for path, _, names in os.walk(shipped)
    if any(name.endswith('.safetensors') for name in names)
  )
  folder = os.path.join(shipped, family) if family in known else family
  if not os.path.isdir(folder):
    raise ValueError(
      f'Unknown family {family!r}. Known: {", ".join(known)}, or a folder.'
    )
  models = {
    name.removesuffix('.safetensors'): load_model(os.path.join(folder, name))
    for name in os.listdir(folder)
    if name.endswith('.safetensors')
  }
  home = folder
  if 'target' not in models:
    home = os.path.dirname(os.path.abspath(folder))
    if not os.path.exists(os.path.join(home, 'target.safetensors')):
      raise ValueError(
        f'There is no target.safetensors in {folder}, nor in the folder above.'
      )
    models['target'] = load_model(os.path.join(home, 'target.safetensors'))
  target = models.pop('target')
  prompts = os.path.join(home, 'prompts.jsonl')
  return Family(
    tokenizer=tokenizer_lib.load(home),
    target=target,
    drafters=dict(
      sorted(models.items(), key=lambda item: (-num_params(item[1]), item[0]))
    ),
    prompts=examples_lib.read(prompts) if os.path.exists(prompts) else [],
  )


def load_model(path: str | os.PathLike[str]) -> Model:
  """Loads one model of a family; errors as in `checkpoint.load`."""
  config, params = checkpoint.load(path)
  return Model(config, adapters.language_model(config), params)


def decoder(
  family: Family,
  drafter: str | None,
  *,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  **options: Any,
) -> decoding.Decoder:
  """Builds a decoder of a family's models that stops where its texts end.

  Args:
    family: from `load`.
    drafter: a name of `family.drafters`; None decodes plainly.
    sampling: how tokens are drawn.
    **options: of `decoding.speculative`, such as `draft_length`.
  """
  draft = None
  if drafter is not None:
    draft = registry.lookup(family.drafters, 'drafter', drafter)
  return decoding.speculative(
    family.target.functions,
    family.target.params,
    draft and draft.functions,
    draft and draft.params,
    sampling=sampling,
    stop_tokens=family.tokenizer.stop_tokens,
    **options,
  )


def num_params(model: Model) -> int:
  """Returns the number of a model's parameters."""
  return adapters.num_params(model.config)
