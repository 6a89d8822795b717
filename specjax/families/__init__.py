"""A target and its drafters: families that are shipped, fetched or your own."""

from collections.abc import Callable
from collections.abc import Mapping
import functools
import os
import re
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
from specjax.models import fusion
from specjax.models import head_config
from specjax.models import heads
from specjax.models import loading
from specjax.models import sharding
from specjax.models import wrappers
from specjax.models.huggingface import published_heads

__all__ = [
  'Conversation',
  'Family',
  'Model',
  'decoder',
  'drafter_names',
  'join',
  'load',
  'load_drafter',
  'load_model',
  'num_params',
  'on_mesh',
  'with_heads',
]


_SHIPPED = os.path.dirname(__file__)
_TARGET = 'target.safetensors'
_SPLIT = re.compile(r'-(\d{5})-of-\d{5}$')


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
  drafters: Mapping[str, str | os.PathLike[str]] | None = None,
  dtype: jax.typing.DTypeLike | None = None,
  mesh: jax.sharding.Mesh | None = None,
  split_drafters: bool = True,
) -> Family:
  """Loads a family: one that comes with specjax, or a folder.

  A folder holds `tokenizer.json`, `target.safetensors`, any number of drafters,
  and `prompts.jsonl` or no prompts. A folder inside of it holds more drafters
  of the same target, and nothing else. A drafter is another `*.safetensors`, or
  what `models.load` or `models.load_head` reads: a folder of HuggingFace or a
  GGUF file.

  What `models.load` reads is also a family, without drafters and prompts; a
  folder inside of such a folder has some, as above.

  Args:
    family: 'mini', 'mini/specialists', 'mini/heads', 'smollm2',
      'smollm2/heads' or a path. The target of the last two is fetched by
      `python -m specjax.families.fetch smollm2`.
    drafters: paths of more drafters, by name: any of the above, or the folder
      of another family, whose target it is.
    dtype: of parameters, computations and caches, such as 'bfloat16'; None for
      float32, or what the file of a checkpoint has.
    mesh: from `meshes.make`, of devices that the models are divided among.
    split_drafters: those whose heads the mesh divides; if false, each device
      has all drafters whole, and only its own rows of their caches.

  Raises:
    ValueError: there is no such family, one of its files is missing or
      corrupt, there are two drafters of one name, a folder of drafters holds
      none or something else, a drafter's tokenizer differs from the target's,
      `dtype` is not a floating-point type, or the mesh does not divide the
      target's heads.
  """
  _check_dtype(dtype)
  places = _places(os.path.expanduser(family))
  path, home, folder = places.home, places.home, places.folder
  if places.package is not None:
    path = os.fspath(packages.find(places.package))
  target = _read(path, dtype, mesh)
  # Heads know their target by its embedding in the type of its file.
  original = functools.cache(functools.partial(_embedding, path))
  loaded = {
    name: _drafter(name, each, target, dtype, dtype and original)
    for name, each in _paths(home, folder, drafters or {}).items()
  }
  prompts = os.path.join(places.prompts, 'prompts.jsonl')
  read = examples_lib.read(prompts) if os.path.exists(prompts) else []
  found = join(target, {})._replace(drafters=_in_order(loaded), prompts=read)
  if mesh is not None:
    found = on_mesh(found, mesh, split_drafters=split_drafters)
  return found._replace(drafters=_with_common_heads(found.drafters))


def drafter_names(
  family: str | os.PathLike[str] = 'mini',
  drafters: Mapping[str, str | os.PathLike[str]] | None = None,
) -> list[str]:
  """Returns the names of a family's drafters, without loading it.

  Args:
    family: as in `load`.
    drafters: as in `load`.

  Raises:
    ValueError: as in `load`, for what is found without reading a model.
  """
  places = _places(os.path.expanduser(family))
  return list(_paths(places.home, places.folder, drafters or {}))


def with_heads() -> list[str]:
  """Returns the names of the families that come with heads."""
  return [name for name in _known() if os.path.basename(name) == 'heads']


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
    made[name] = _model(name, each, tokenizer, target)
  main = made.pop('target')
  assert isinstance(main, Model)
  return Family(tokenizer, main, _in_order(made), [])


def load_model(path: str | os.PathLike[str]) -> Model:
  """Loads a model that needs no other, such as a family's target.

  Raises:
    ValueError: as `checkpoint.load`; or it is a head.
  """
  return Model(*_load_model(path)[:3])


def load_drafter(
  path: str | os.PathLike[str],
  target: Model | models.Checkpoint,
  dtype: jax.typing.DTypeLike | None = None,
  original: Callable[[], base.Params] | None = None,
) -> Model | models.Head:
  """Loads a drafter of a target: a model or a head, as the file's config says.

  Args:
    path: of a file that `checkpoint.save` wrote.
    target: the target.
    dtype: of parameters and computations; None for float32.
    original: returns the target's parameters, or only its embedding, in the
      type of its file, where it was loaded in another one.

  Raises:
    ValueError: as `checkpoint.load`; or it is the head of another target.
  """
  dtype = dtype or jnp.float32
  config, params = checkpoint.load(path, target.params, dtype)
  params = fusion.fuse_on_gpu(config, params)
  if not isinstance(config, head_config.HeadConfig):
    return Model(config, adapters.language_model(config, dtype), params)
  known = target.params
  if config.target and original is not None:
    known = original()
  heads.check_target(os.fspath(path), config, target.config, known)
  return models.Head(config, heads.head(config, dtype), params)


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


class _Places(NamedTuple):
  """Where the files of a family are."""

  package: str | None  # that has the target
  home: str  # the target's folder or file
  folder: str  # of the family
  prompts: str  # the folder of its prompts


def _places(family):
  """Finds the files of a family; see `load`."""
  shipped = family in (*_known(), *packages.PACKAGES)
  folder = os.path.join(_SHIPPED, family) if shipped else family
  package = family.partition('/')[0]
  if shipped and package in packages.PACKAGES:
    home = os.path.join(_SHIPPED, package)
  else:
    home, package = _home(folder), None
  return _Places(package, home, folder, _SHIPPED if shipped else home)


def _is_checkpoint(path):
  """Whether `models.load` is to read a path: GGUF, or HuggingFace's folder."""
  if os.path.exists(os.path.join(path, _TARGET)):
    return False
  described = checkpoint.has_field(
    os.path.join(path, 'config.json'), 'model_type'
  )
  return described or (os.path.isfile(path) and path.endswith('.gguf'))


def _load_model(path, dtype=None, mesh=None):
  """A file of specjax that is no head, and the tokenizer beside it, if any."""
  dtype = dtype or jnp.float32
  config, params = checkpoint.load(path, dtype=dtype)
  if isinstance(config, head_config.HeadConfig):
    raise ValueError(f'{path} is a head, which needs a target: see load.')
  params = fusion.fuse_on_gpu(config, params, mesh)
  functions = adapters.language_model(config, dtype)
  return models.Checkpoint(config, functions, params, _tokenizer_beside(path))


def _tokenizer_beside(path):
  folder = os.path.dirname(os.path.abspath(path))
  if not os.path.exists(os.path.join(folder, 'tokenizer.json')):
    return None
  return tokenizer_lib.load(folder)


def _model(name, loaded, tokenizer, target):
  """A drafter that is a checkpoint, with the tokens of its target."""
  names = f'The target and the drafter {name!r}'
  tokenizer.check_same(_tokenizer(name, loaded), names)
  functions = wrappers.resize_vocabulary(
    loaded.functions, target.functions.vocab_size
  )
  return Model(loaded.config, functions, loaded.params)


def _tokenizer(name, loaded):
  """The tokenizer of a checkpoint, which has one."""
  if loaded.tokenizer is None:
    raise ValueError(f'{name} has no tokenizer.json.')
  return loaded.tokenizer


def _read(path, dtype, mesh=None):
  """The checkpoint at a path; a folder of specjax is its target."""
  if _is_checkpoint(path):
    return loading.load(path, dtype=dtype, mesh=mesh)
  return _load_model(os.path.join(path, _TARGET), dtype, mesh)


def _embedding(path):
  """The embedding of what `_read` reads, in the type of its file."""
  if _is_checkpoint(path):
    return loading.embedding(path)
  return checkpoint.load(os.path.join(path, _TARGET))[1]


def _drafter(name, path, target, dtype, original):
  """A drafter of any kind."""
  found: Any
  if os.path.isfile(path) and path.endswith('.safetensors'):
    found = load_drafter(path, target, dtype, original)
    tokenizer = _tokenizer_beside(path)
    if isinstance(found, Model) and tokenizer is not None:
      found = models.Checkpoint(*found, tokenizer)
  elif loading.is_head(path):
    found = models.load_head(path, target, dtype)
  elif _is_checkpoint(path) or os.path.exists(os.path.join(path, _TARGET)):
    found = _read(path, dtype)
  else:
    raise ValueError(
      f'The drafter {name!r} must be a safetensors file or a folder of '
      'specjax, a folder of HuggingFace, with config.json and safetensors, or '
      f'a GGUF file, got {path!r}.'
    )
  if isinstance(found, models.Checkpoint):
    found = _model(name, found, _tokenizer('target', target), target)
  return found


def _home(folder):
  """The folder of the target, or its file: this one, or the folder above."""
  if not os.path.exists(folder):
    names = ', '.join(dict.fromkeys([*_known(), *packages.PACKAGES]))
    raise ValueError(f'Unknown family {folder!r}. Known: {names}, or a folder.')
  for home in (folder, os.path.dirname(os.path.abspath(folder))):
    if os.path.exists(os.path.join(home, _TARGET)) or _is_checkpoint(home):
      return home
  raise ValueError(
    f'There is no {_TARGET} and no config.json of HuggingFace in {folder}, nor '
    'in the folder above.'
  )


def _paths(home, folder, named):
  """Paths of drafters: of the folders of a family, and those that are named."""
  found: list[tuple[str, str]] = []
  for each in dict.fromkeys((home, folder)):
    if not os.path.isdir(each) or _is_checkpoint(each):
      continue
    inside = list(_inside(each, is_home=each == home))
    if not inside and each != home:
      raise ValueError(f'There is no drafter in {each}.')
    found += inside
  for name, path in named.items():
    if not isinstance(path, str | os.PathLike):
      raise ValueError(f'drafters must be paths, but {name!r} is {path!r}.')
    found.append((name, os.path.expanduser(path)))
  paths: dict[str, str] = {}
  for name, path in found:
    if name == 'target':
      raise ValueError(f'A drafter must have another name than target: {path}.')
    if name in paths:
      raise ValueError(f'Two drafters are {name}: {paths[name]} and {path}.')
    paths[name] = path
  return paths


def _inside(folder, is_home):
  """Yields name and path of each drafter in a folder.

  Other folders are ignored only inside of a target's, whose pools they are.
  """
  for name in sorted(os.listdir(folder)):
    path = os.path.join(folder, name)
    stem, end = os.path.splitext(name)
    split = _SPLIT.search(stem)  # Of several files, the first names the others.
    if os.path.isdir(path):
      hidden = name.startswith(('.', '_'))
      published = checkpoint.has_field(
        os.path.join(path, 'config.json'),
        'model_type',
        *published_heads.FIELDS,
      )
      if published or not (is_home or hidden):
        yield name, path
    elif end == '.gguf' and (split is None or int(split[1]) == 1):
      yield stem[: split and split.start()], path
    elif end == '.safetensors' and name != _TARGET:
      yield stem, path


def _check_dtype(dtype):
  try:
    known = dtype is None or jnp.issubdtype(jnp.dtype(dtype), jnp.floating)
  except TypeError:
    known = False
  if not known:
    raise ValueError(
      f'dtype must be of floating point, such as bfloat16, got {dtype!r}.'
    )


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
