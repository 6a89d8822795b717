"""A target and its drafters: families that are shipped, fetched or your own."""

from collections.abc import Mapping
import os
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import decoding
from specjax import models
from specjax import registry
from specjax import sampling as sampling_lib
from specjax.data import examples as examples_lib
from specjax.data import tokenizer as tokenizer_lib
from specjax.families import packages
from specjax.families.conversation import Conversation
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import head_config
from specjax.models import heads
from specjax.models import loading
from specjax.models import sharding

__all__ = [
  'Conversation',
  'Family',
  'Model',
  'decoder',
  'join',
  'load',
  'load_drafter',
  'load_model',
  'num_params',
  'on_mesh',
]


_SHIPPED = os.path.dirname(__file__)
_TARGET = 'target.safetensors'


class Model(NamedTuple):
  """A language model with its parameters."""

  config: config_lib.Config
  functions: base.LanguageModel
  params: base.Params


class Family(NamedTuple):
  """A target and its drafters, which share a tokenizer."""

  tokenizer: tokenizer_lib.Tokenizer
  target: Model
  drafters: dict[str, Model | models.Head]  # largest first, then by name
  prompts: list[examples_lib.Example]  # held out, some for each domain

  @property
  def models(self) -> dict[str, Model]:
    """The target, and those drafters that are language models."""
    drafters = {
      name: each
      for name, each in self.drafters.items()
      if isinstance(each, Model)
    }
    return {'target': self.target, **drafters}


def load(
  family: str | os.PathLike[str] = 'mini',
  *,
  dtype: jax.typing.DTypeLike | None = None,
  mesh: jax.sharding.Mesh | None = None,
  split_drafters: bool = True,
) -> Family:
  """Loads a family: one that comes with specjax, or a folder.

  A folder holds `tokenizer.json`, `target.safetensors`, any number of other
  `*.safetensors` (the drafters), and `prompts.jsonl` or no prompts. A folder
  inside of it holds more drafters of the same target, and nothing else.

  What `models.load` reads, a folder of HuggingFace or a GGUF file, is a family
  without drafters and prompts; a folder inside of such a folder has some, as
  above. See `join` for drafters that are checkpoints, too.

  Args:
    family: 'mini', 'mini/specialists', 'mini/heads', 'smollm2',
      'smollm2/heads' or a path. The target of the last two is fetched by
      `python -m specjax.families.fetch smollm2`.
    dtype: of parameters, computations and caches, such as 'bfloat16'; None for
      float32, or what the file of a checkpoint has.
    mesh: from `meshes.make`, of devices that the models are divided among.
    split_drafters: those whose heads the mesh divides; if false, each device
      has all drafters whole, and only its own rows of their caches.

  Raises:
    ValueError: there is no such family, one of its files is missing or
      corrupt, there are two drafters of one name, the type is none of floating
      point, or the mesh does not divide the target's heads.
  """
  _check_dtype(dtype)
  family = os.fspath(family)
  shipped = family in (*_known(), *packages.PACKAGES)
  folder = os.path.join(_SHIPPED, family) if shipped else family
  package = family.partition('/')[0]
  if shipped and package in packages.PACKAGES:
    home = os.path.join(_SHIPPED, package)
    made = join(models.load(packages.find(package), mesh=mesh), {})
  else:
    home = _home(folder)
    made = _of_home(home, mesh)
  folders = [each for each in (home, folder) if not _is_checkpoint(each)]
  prompts = os.path.join(_SHIPPED if shipped else home, 'prompts.jsonl')
  drafters = _drafters(dict.fromkeys(folders), made.target)
  loaded = {'target': made.target, **drafters}
  if dtype is not None:
    loaded = _in_dtype(loaded, dtype)
  target = loaded.pop('target')
  read = examples_lib.read(prompts) if os.path.exists(prompts) else []
  found = Family(made.tokenizer, target, _in_order(loaded), read)
  if mesh is not None:
    found = on_mesh(found, mesh, split_drafters=split_drafters)
  return found._replace(drafters=_with_common_heads(found.drafters))


def on_mesh(
  family: Family, mesh: jax.sharding.Mesh, *, split_drafters: bool = True
) -> Family:
  """Returns a family that is divided among devices.

  Args:
    family: its parameters may be abstract.
    mesh: as of `load`.
    split_drafters: likewise.

  Raises:
    ValueError: the mesh does not divide the target's heads.
  """
  drafters = {
    name: sharding.shard(
      each, mesh, split=split_drafters and sharding.divides(each.config, mesh)
    )
    for name, each in family.drafters.items()
  }
  return family._replace(
    target=sharding.shard(family.target, mesh), drafters=drafters
  )


def join(
  target: models.Checkpoint,
  drafters: Mapping[str, models.Checkpoint | models.Head],
) -> Family:
  """Makes a family of checkpoints that share a tokenizer.

  Their vocabularies may be of different sizes, as models pad them differently.

  Args:
    target: from `models.load`.
    drafters: by name, as `decoder` takes it; heads from `models.load_head`.

  Raises:
    ValueError: a tokenizer is missing, or a drafter's differs from the
      target's; it says in what. Or a head is another target's.
  """
  tokenizer = _tokenizer('target', target)
  made: dict[str, Model | models.Head] = {}
  for name, each in {'target': target, **drafters}.items():
    if isinstance(each, models.Head):
      heads.check_target(name, each.config, target.config, target.params)
      made[name] = each
      continue
    names = f'The target and the drafter {name!r}'
    tokenizer.check_same(_tokenizer(name, each), names)
    functions = adapters.resize_vocabulary(
      each.functions, target.functions.vocab_size
    )
    made[name] = Model(each.config, functions, each.params)
  main = made.pop('target')
  assert isinstance(main, Model)
  return Family(tokenizer, main, _in_order(made), [])


def load_model(path: str | os.PathLike[str]) -> Model:
  """Loads a model that needs no other, such as a family's target.

  Raises:
    ValueError: as `checkpoint.load`; or it is a head.
  """
  config, params = checkpoint.load(path)
  if isinstance(config, head_config.HeadConfig):
    raise ValueError(f'{path} is a head, which needs a target: see load.')
  return _model(config, params)


def load_drafter(
  path: str | os.PathLike[str], target: Model
) -> Model | models.Head:
  """Loads a drafter of a target: a model or a head, as the file's config says.

  Raises:
    ValueError: as `checkpoint.load`; or it is the head of another target.
  """
  config, params = checkpoint.load(path, target.params)
  if not isinstance(config, head_config.HeadConfig):
    return _model(config, params)
  heads.check_target(os.fspath(path), config, target.config, target.params)
  return models.Head(config, heads.functions(config), params)


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


def _known():
  """Names of the folders that come with the package."""
  return sorted(
    os.path.relpath(path, _SHIPPED).replace(os.sep, '/')
    for path, _, names in os.walk(_SHIPPED)
    if any(name.endswith('.safetensors') for name in names)
  )


def _is_checkpoint(path):
  """Whether `models.load` is to read a path: GGUF, or HuggingFace's folder."""
  if os.path.exists(os.path.join(path, _TARGET)):
    return False
  described = checkpoint.has_model_type(os.path.join(path, 'config.json'))
  return described or (os.path.isfile(path) and path.endswith('.gguf'))


def _model(config, params):
  return Model(config, adapters.language_model(config), params)


def _tokenizer(name, loaded):
  """The tokenizer of a checkpoint, which has one."""
  if loaded.tokenizer is None:
    raise ValueError(f'{name} has no tokenizer.json.')
  return loaded.tokenizer


def _of_home(home, mesh):
  """The family of a target, without drafters."""
  if _is_checkpoint(home):
    return join(models.load(home, mesh=mesh), {})
  target = load_model(os.path.join(home, _TARGET))
  return Family(tokenizer_lib.load(home), target, {}, [])


def _home(folder):
  """The folder of the target, or its file: this one, or the folder above."""
  if not os.path.exists(folder):
    names = ', '.join(dict.fromkeys([*_known(), *packages.PACKAGES]))
    raise ValueError(f'Unknown family {folder!r}. Known: {names}, or a folder.')
  for home in (folder, os.path.dirname(os.path.abspath(folder))):
    if os.path.exists(os.path.join(home, _TARGET)) or _is_checkpoint(home):
      return home
  raise ValueError(
    f'There is no {_TARGET} in {folder}, nor in the folder above.'
  )


def _drafters(folders, target):
  """Models and heads of folders; they may share the target's parameters."""
  paths: dict[str, str] = {}
  for folder in folders:
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
      stem, end = os.path.splitext(name)
      if end != '.safetensors' or name == _TARGET:
        continue
      path = os.path.join(folder, name)
      if stem in paths:
        raise ValueError(f'Two drafters are {stem}: {paths[stem]} and {path}.')
      paths[stem] = path
  return {name: load_drafter(path, target) for name, path in paths.items()}


def _check_dtype(dtype):
  try:
    known = dtype is None or jnp.issubdtype(jnp.dtype(dtype), jnp.floating)
  except TypeError:
    known = False
  if not known:
    raise ValueError(
      f'dtype must be of floating point, such as bfloat16, got {dtype!r}.'
    )


def _in_dtype(loaded, dtype):
  """Models in another type; what they share they go on sharing."""
  casts: dict[int, Any] = {}

  def cast(leaf):
    if id(leaf) not in casts:
      casts[id(leaf)] = loading.in_dtype(leaf, dtype)
    return casts[id(leaf)]

  made = {}
  for name, each in loaded.items():
    functions = (
      heads.functions(each.config, dtype)
      if isinstance(each, models.Head)
      else adapters.language_model(each.config, dtype)
    )
    params = jax.tree.map(cast, each.params)
    made[name] = each._replace(functions=functions, params=params)
  return made


def _with_common_heads(drafters):
  """Output heads that are the same part of the target's, as one array."""
  parts: dict[bytes, Any] = {}
  for name, each in drafters.items():
    if not isinstance(each, models.Head) or 'head_rows' not in each.params:
      continue
    if 'head' in heads.shared(each.config):
      rows = np.asarray(each.params['head_rows']).tobytes()
      part = parts.setdefault(rows, each.params['head'])
      drafters[name] = each._replace(params={**each.params, 'head': part})
  return drafters


def _in_order(drafters):
  """The largest first, then by name."""
  key = lambda item: (-num_params(item[1]), item[0])
  return dict(sorted(drafters.items(), key=key))


def num_params(model: Model | models.Head) -> int:
  """Returns the number of a model's parameters, with those that it shares."""
  return adapters.num_params(model.config)
