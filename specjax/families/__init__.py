"""Families: a target model and its drafters, by default with one tokenizer.

Families come with the package, are fetched, or are folders of the user.
"""

from collections.abc import Callable
from collections.abc import Iterator
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
from specjax.models import flax_modules
from specjax.models import fusion
from specjax.models import head_config
from specjax.models import heads
from specjax.models import loading
from specjax.models import sharding
from specjax.models import vocabularies
from specjax.models.huggingface import hub
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
  'target_embedding',
  'with_heads',
]


_SHIPPED = os.path.dirname(__file__)
_TARGET = 'target.safetensors'
_VOCABULARIES = ('shared', 'intersection')
# Name of one file of a model that is split into several.
_SPLIT_FILE = re.compile(r'-(\d{5})-of-\d{5}$')


class Model(NamedTuple):
  """A language model with its parameters.

  Attributes:
    config: the architecture.
    model: the language model.
    params: its parameters, as a nested dict.
  """

  config: config_lib.Config
  model: base.LanguageModel
  params: base.Params


class Family(NamedTuple):
  """A target model and its drafters, which draft tokens of its vocabulary.

  Attributes:
    tokenizer: encodes and decodes the texts of all models.
    target: the target model.
    drafters: draft models and heads by name; the largest comes first, and
      drafters of equal size are sorted by name.
    prompts: held-out prompts, some for each domain; may be empty.
  """

  tokenizer: tokenizer_lib.Tokenizer
  target: Model
  drafters: dict[str, Model | models.Head]
  prompts: list[examples_lib.Example]

  @property
  def models(self) -> dict[str, Model]:
    """The target and the drafters that are language models."""
    draft_models = {
      name: drafter
      for name, drafter in self.drafters.items()
      if isinstance(drafter, Model)
    }
    return {'target': self.target, **draft_models}


def load(
  family: str | os.PathLike[str] = 'mini',
  *,
  drafters: Mapping[str, str | os.PathLike[str]] | None = None,
  dtype: jax.typing.DTypeLike | None = None,
  mesh: jax.sharding.Mesh | None = None,
  split_drafters: bool = True,
  vocabulary: str = 'shared',
) -> Family:
  """Loads a family that comes with specjax, or one from a folder.

  A folder of a family holds `tokenizer.json`, `target.safetensors`, any number
  of drafters and, optionally, `prompts.jsonl`. A drafter is another
  `*.safetensors` file, or any path that `models.load` or `models.load_head`
  reads: a HuggingFace folder or a GGUF file. A subfolder may hold more drafters
  for the same target, and must hold nothing else.

  A path that `models.load` reads, or a repository on the Hugging Face Hub, is
  also a family, without drafters and prompts. Its subfolders may also contain
  drafters.

  Args:
    family: 'mini', 'mini/specialists', 'mini/heads', 'smollm2',
      'smollm2/heads', a path, or a name on the Hub. The target of SmolLM2's
      families is fetched by `python -m specjax.families.fetch smollm2`.
    drafters: paths of additional drafters, by name. A path is one of the above,
      or the folder of another family, whose target becomes the drafter.
    dtype: type of parameters, computations and KV caches, such as 'bfloat16'.
      None keeps the type of a published checkpoint, and selects float32 for
      the files of specjax.
    mesh: devices that the models are divided among, from `meshes.make`.
    split_drafters: whether drafters are also divided, if the mesh divides their
      attention heads. If false, each device holds the parameters of all
      drafters, and the KV caches of its own rows.
    vocabulary: See `join`.

  Raises:
    ValueError: there is no such family, one of its files is missing or
      corrupt, two drafters have the same name, a folder of drafters holds
      no drafter or other files, a drafter's tokenizer does not fit the
      target's, `dtype` is not a floating-point type, the mesh does not
      divide the target's attention heads, or `vocabulary` is unknown.
  """
  loading.check_dtype(dtype)
  _check_vocabulary(vocabulary)
  paths = _find_paths(os.fspath(family))
  target = _load_checkpoint(_target_path(paths), dtype, mesh)
  load_embedding = None
  if dtype is not None:
    load_embedding = functools.cache(
      functools.partial(target_embedding, family)
    )
  loaded_drafters = {
    name: _load_any_drafter(
      name, path, target, dtype, load_embedding, vocabulary
    )
    for name, path in _drafter_paths(paths, drafters or {}).items()
  }
  prompts_file = os.path.join(paths.prompts, 'prompts.jsonl')
  prompts = (
    examples_lib.read(prompts_file) if os.path.exists(prompts_file) else []
  )
  loaded = join(target, {})._replace(
    drafters=_sort_by_size(loaded_drafters), prompts=prompts
  )
  if mesh is not None:
    loaded = on_mesh(loaded, mesh, split_drafters=split_drafters)
  return loaded._replace(drafters=_share_output_heads(loaded.drafters))


def target_embedding(family: str | os.PathLike[str] = 'mini') -> base.Params:
  """Loads parameters of a family's target, at least its embedding.

  They have the type of their file, in which the embedding identifies the target
  of a head.

  Args:
    family: See `load`.
  """
  path = _target_path(_find_paths(os.fspath(family)))
  if _is_published(path):
    return loading.embedding(path)
  return checkpoint.load(os.path.join(path, _TARGET))[1]


def drafter_names(
  family: str | os.PathLike[str] = 'mini',
  drafters: Mapping[str, str | os.PathLike[str]] | None = None,
) -> list[str]:
  """Returns the names of a family's drafters, without loading it.

  Only `config.json` of a repository on the Hugging Face Hub is fetched.

  Args:
    family: See `load`.
    drafters: See `load`.

  Raises:
    ValueError: See `load`; errors inside of a model's files are not detected.
  """
  paths = _find_paths(os.fspath(family), weights=False)
  return list(_drafter_paths(paths, drafters or {}))


def with_heads() -> list[str]:
  """Returns the names of the families that come with heads."""
  return [name for name in _shipped() if os.path.basename(name) == 'heads']


def on_mesh(
  family: Family, mesh: jax.sharding.Mesh, *, split_drafters: bool = True
) -> Family:
  """Returns a family whose models are divided among devices.

  Args:
    family: the family; its parameters may be abstract.
    mesh: See `load`.
    split_drafters: See `load`.

  Raises:
    ValueError: the mesh does not divide the target's attention heads.
  """
  drafters = {
    name: sharding.shard(
      drafter,
      mesh,
      split=split_drafters and sharding.divides(drafter.config, mesh),
    )
    for name, drafter in family.drafters.items()
  }
  return family._replace(
    target=sharding.shard(family.target, mesh), drafters=drafters
  )


def join(
  target: models.Checkpoint,
  drafters: Mapping[str, models.Checkpoint | models.Head],
  *,
  vocabulary: str = 'shared',
) -> Family:
  """Returns a family of checkpoints.

  Args:
    target: the target model, from `models.load`.
    drafters: draft models, from `models.load`, and heads, from
      `models.load_head`; `decoder` takes their names.
    vocabulary: which tokenizers draft models may have. With 'shared', they
      share the target's tokenizer; their vocabularies may differ in size, since
      models are padded differently. With 'intersection', a draft model with
      another tokenizer drafts the tokens that both have: see
      `vocabularies.intersect`.

  Raises:
    ValueError: a tokenizer is missing, a drafter's tokenizer differs from the
      target's (the error lists the differences) or has no token in common with
      it, a head was trained for another target, or `vocabulary` is unknown.
  """
  _check_vocabulary(vocabulary)
  tokenizer = _tokenizer('target', target)
  checked: dict[str, Model | models.Head] = {}
  for name, drafter in drafters.items():
    if isinstance(drafter, models.Head):
      heads.check_target(name, drafter.config, target.config, target.params)
      checked[name] = drafter
    else:
      checked[name] = _draft_model(name, drafter, target, vocabulary)
  main = Model(target.config, target.model, target.params)
  return Family(tokenizer, main, _sort_by_size(checked), [])


def load_model(path: str | os.PathLike[str]) -> Model:
  """Loads a language model, such as the target of a family.

  Args:
    path: a file that `checkpoint.save` wrote.

  Raises:
    ValueError: the file is a head's; see also `checkpoint.load`.
  """
  return Model(*_load_model(path)[:3])


def load_drafter(
  path: str | os.PathLike[str],
  target: Model | models.Checkpoint,
  dtype: jax.typing.DTypeLike | None = None,
  load_embedding: Callable[[], base.Params] | None = None,
) -> Model | models.Head:
  """Loads a drafter: a draft model or a head, as the file's config says.

  Args:
    path: a file that `checkpoint.save` wrote.
    target: the target model.
    dtype: type of parameters and computations; None for float32.
    load_embedding: returns the target's parameters, or only its embedding, in
      the type of its file. Needed if the target was loaded in another type.

  Raises:
    ValueError: the head was trained for another target; see also
      `checkpoint.load`.
  """
  dtype = dtype or jnp.float32
  config, params = checkpoint.load(path, target.params, dtype)
  params = fusion.fuse_on_gpu(config, params)
  if not isinstance(config, head_config.HeadConfig):
    return Model(config, adapters.language_model(config, dtype), params)
  target_params = target.params
  if config.target and load_embedding is not None:
    target_params = load_embedding()
  heads.check_target(os.fspath(path), config, target.config, target_params)
  return models.Head(config, heads.head(config, dtype), params)


def decoder(
  family: Family,
  drafter: str | None,
  *,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  **options: Any,
) -> decoding.Decoder:
  """Builds a decoder for a family's target and one of its drafters.

  It stops at the stop tokens of the family's tokenizer.

  Args:
    family: the family, from `load`.
    drafter: a name in `family.drafters`, or None for plain decoding.
    sampling: temperature, top-k, top-p and min-p.
    **options: passed to `decoding.speculative`, for example `draft_length`.

  Raises:
    ValueError: the family has no such drafter.
  """
  draft = None
  if drafter is not None:
    draft = registry.lookup(family.drafters, 'drafter', drafter)
  return decoding.speculative(
    family.target.model,
    family.target.params,
    draft and draft.model,
    draft and draft.params,
    sampling=sampling,
    stop_tokens=family.tokenizer.stop_tokens,
    **options,
  )


def num_params(model: Model | models.Head) -> int:
  """Returns the number of a model's parameters, including shared ones."""
  return flax_modules.num_params(model.config)


def _shipped() -> list[str]:
  """Returns the names of the folders that come with the package."""
  return sorted(
    os.path.relpath(path, _SHIPPED).replace(os.sep, '/')
    for path, _, names in os.walk(_SHIPPED)
    if any(name.endswith('.safetensors') for name in names)
  )


class _FamilyPaths(NamedTuple):
  """Paths of a family's files.

  Attributes:
    package: name in `packages.PACKAGES` whose package holds the target's
      weights, or None.
    target: folder or file of the target.
    folder: folder of the family, which may be a subfolder of the target's.
    prompts: folder that may hold `prompts.jsonl`.
  """

  package: str | None
  target: str
  folder: str
  prompts: str


def _find_paths(family: str, *, weights: bool = True) -> _FamilyPaths:
  """Finds the files of a family.

  Args:
    family: See `load`.
    weights: See `hub.local_path`.
  """
  known = (*_shipped(), *packages.PACKAGES)
  package = family.partition('/')[0]
  is_shipped = family in known
  if is_shipped:
    folder = os.path.join(_SHIPPED, family)
  elif package in known:  # Not the name of an organization on the Hub.
    folder = family
  else:
    folder = hub.local_path(family, weights=weights)
  if is_shipped and package in packages.PACKAGES:
    target = os.path.join(_SHIPPED, package)
    return _FamilyPaths(package, target, folder, _SHIPPED)
  target = _find_target(folder)
  return _FamilyPaths(None, target, folder, _SHIPPED if is_shipped else target)


def _is_published(path: str) -> bool:
  """Returns whether `models.load` reads a path: HuggingFace folder or GGUF."""
  if os.path.exists(os.path.join(path, _TARGET)):
    return False
  has_model_type = checkpoint.has_field(
    os.path.join(path, 'config.json'), 'model_type'
  )
  return has_model_type or (os.path.isfile(path) and path.endswith('.gguf'))


def _load_model(
  path: str | os.PathLike[str],
  dtype: jax.typing.DTypeLike | None = None,
  mesh: jax.sharding.Mesh | None = None,
) -> models.Checkpoint:
  """Loads a model of specjax and the tokenizer in the same folder, if any."""
  dtype = dtype or jnp.float32
  config, params = checkpoint.load(path, dtype=dtype)
  if isinstance(config, head_config.HeadConfig):
    raise ValueError(f'{path} is a head, which needs a target: see load.')
  params = fusion.fuse_on_gpu(config, params, mesh)
  model = adapters.language_model(config, dtype)
  return models.Checkpoint(config, model, params, _adjacent_tokenizer(path))


def _adjacent_tokenizer(
  path: str | os.PathLike[str],
) -> tokenizer_lib.Tokenizer | None:
  """Loads the tokenizer in the folder of a file, if there is one."""
  folder = os.path.dirname(os.path.abspath(path))
  if not os.path.exists(os.path.join(folder, 'tokenizer.json')):
    return None
  return tokenizer_lib.load(folder)


def _draft_model(
  name: str,
  draft: models.Checkpoint,
  target: models.Checkpoint,
  vocabulary: str,
) -> Model:
  """Returns a checkpoint as a draft model with the target's vocabulary.

  Raises:
    ValueError: it has no tokenizer, or one that does not fit the target's.
  """
  names = f'The target and the drafter {name!r}'
  target_tokenizer = _tokenizer('target', target)
  tokenizer = _tokenizer(name, draft)
  size = target.model.vocab_size
  if vocabulary == 'shared' or not target_tokenizer.differences(tokenizer):
    target_tokenizer.check_same(tokenizer, names)
    return Model(
      draft.config, vocabularies.resize(draft.model, size), draft.params
    )
  texts, target_texts = tokenizer.token_texts(), target_tokenizer.token_texts()
  model = vocabularies.intersect(draft.model, texts, target_texts, size, names)
  return Model(draft.config, model, draft.params)


def _tokenizer(name: str, loaded: models.Checkpoint) -> tokenizer_lib.Tokenizer:
  """Returns the tokenizer of a checkpoint, or raises if it has none."""
  if loaded.tokenizer is None:
    raise ValueError(f'{name} has no tokenizer.json.')
  return loaded.tokenizer


def _target_path(paths: _FamilyPaths) -> str:
  """Returns the path of a family's target, which may be in a package."""
  if paths.package is None:
    return paths.target
  return os.fspath(packages.find(paths.package))


def _load_checkpoint(
  path: str,
  dtype: jax.typing.DTypeLike | None,
  mesh: jax.sharding.Mesh | None = None,
) -> models.Checkpoint:
  """Loads a published checkpoint, or the target in a folder of specjax."""
  if _is_published(path):
    return loading.load(path, dtype=dtype, mesh=mesh)
  return _load_model(os.path.join(path, _TARGET), dtype, mesh)


def _load_any_drafter(
  name: str,
  path: str,
  target: models.Checkpoint,
  dtype: jax.typing.DTypeLike | None,
  load_embedding: Callable[[], base.Params] | None,
  vocabulary: str,
) -> Model | models.Head:
  """Loads a drafter in any of the formats that `load` lists."""
  drafter: Model | models.Head | models.Checkpoint
  path = hub.local_path(path)
  if os.path.isfile(path) and path.endswith('.safetensors'):
    drafter = load_drafter(path, target, dtype, load_embedding)
    tokenizer = _adjacent_tokenizer(path)
    if isinstance(drafter, Model) and tokenizer is not None:
      drafter = models.Checkpoint(*drafter, tokenizer)
  elif loading.is_head(path):
    drafter = models.load_head(path, target, dtype)
  elif _is_published(path) or os.path.exists(os.path.join(path, _TARGET)):
    drafter = _load_checkpoint(path, dtype)
  else:
    raise ValueError(
      f'The drafter {name!r} must be a safetensors file or a folder of '
      'specjax, a HuggingFace folder with config.json and safetensors files, '
      f'or a GGUF file, got {path!r}.'
    )
  if isinstance(drafter, models.Checkpoint):
    return _draft_model(name, drafter, target, vocabulary)
  return drafter


def _find_target(folder: str) -> str:
  """Returns the path of the target: a folder, or the folder above it.

  Raises:
    ValueError: the path does not exist, or neither folder holds a target.
  """
  if not os.path.exists(folder):
    names = ', '.join(dict.fromkeys([*_shipped(), *packages.PACKAGES]))
    raise ValueError(f'Unknown family {folder!r}. Known: {names}, or a folder.')
  for path in (folder, os.path.dirname(os.path.abspath(folder))):
    if os.path.exists(os.path.join(path, _TARGET)) or _is_published(path):
      return path
  raise ValueError(
    f'There is no {_TARGET} and no HuggingFace config.json in {folder} or in '
    'the folder above.'
  )


def _drafter_paths(
  paths: _FamilyPaths, additional: Mapping[str, str | os.PathLike[str]]
) -> dict[str, str]:
  """Returns the paths of a family's drafters and of additional ones, by name.

  Raises:
    ValueError: a folder of drafters holds none, an additional path is not a
      path, a drafter is called 'target', or two have the same name.
  """
  pairs: list[tuple[str, str]] = []
  for folder in dict.fromkeys((paths.target, paths.folder)):
    if not os.path.isdir(folder) or _is_published(folder):
      continue
    is_target = folder == paths.target
    drafters = list(_drafters_in(folder, is_target))
    if not drafters and not is_target:
      raise ValueError(f'There is no drafter in {folder}.')
    pairs += drafters
  for name, given_path in additional.items():
    if not isinstance(given_path, str | os.PathLike):
      raise ValueError(
        f'drafters must be paths, but {name!r} is {given_path!r}.'
      )
    pairs.append((name, os.path.expanduser(given_path)))
  by_name: dict[str, str] = {}
  for name, path in pairs:
    if name == 'target':
      raise ValueError(f'A drafter must not be called target, got {path}.')
    if name in by_name:
      raise ValueError(
        f'Names of drafters must differ, but {by_name[name]} and {path} are '
        f'both called {name}.'
      )
    by_name[name] = path
  return by_name


def _drafters_in(folder: str, is_target: bool) -> Iterator[tuple[str, str]]:
  """Yields the name and the path of each drafter in a folder.

  Subfolders that hold no published model are ignored if the folder is the
  target's: they are pools of drafters. In a pool, they are yielded, so that
  loading them fails.

  Args:
    folder: the folder.
    is_target: whether it is the folder of the target.
  """
  for name in sorted(os.listdir(folder)):
    path = os.path.join(folder, name)
    stem, extension = os.path.splitext(name)
    split_file = _SPLIT_FILE.search(stem)
    if os.path.isdir(path):
      is_hidden = name.startswith(('.', '_'))
      is_published = checkpoint.has_field(
        os.path.join(path, 'config.json'),
        'model_type',
        *published_heads.FIELDS,
      )
      if is_published or not (is_target or is_hidden):
        yield name, path
    elif extension == '.gguf':
      # The first file of a split model stands for all of them.
      if split_file is None or int(split_file[1]) == 1:
        yield stem[: split_file and split_file.start()], path
    elif extension == '.safetensors' and name != _TARGET:
      yield stem, path


def _check_vocabulary(vocabulary: str) -> None:
  """Raises `ValueError` unless `vocabulary` is one that `join` takes."""
  if vocabulary not in _VOCABULARIES:
    raise ValueError(
      f'vocabulary must be one of {_VOCABULARIES}, got {vocabulary!r}.'
    )


def _share_output_heads(
  drafters: dict[str, Model | models.Head],
) -> dict[str, Model | models.Head]:
  """Keeps one array for heads that use the same rows of the target's head.

  Heads with a reduced vocabulary hold a copy of the rows of the target's output
  head that belong to their tokens.
  """
  kernels: dict[bytes, Any] = {}
  for name, drafter in drafters.items():
    if not isinstance(drafter, models.Head):
      continue
    if 'head_rows' in drafter.params and 'head' in heads.shared_names(
      drafter.config
    ):
      rows = np.asarray(drafter.params['head_rows']).tobytes()
      kernel = kernels.setdefault(rows, drafter.params['head'])
      params = {**drafter.params, 'head': kernel}
      drafters[name] = drafter._replace(params=params)
  return drafters


def _sort_by_size(
  drafters: Mapping[str, Model | models.Head],
) -> dict[str, Model | models.Head]:
  """Sorts drafters: the largest first, those of equal size by name."""
  key = lambda item: (-num_params(item[1]), item[0])
  return dict(sorted(drafters.items(), key=key))
