"""Loads and saves published checkpoints: HuggingFace folders and GGUF files."""

import collections
from collections.abc import Iterator
import contextlib
import os
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import json_files
from specjax import meshes
from specjax.data import prompt_format
from specjax.data import tokenizer as tokenizer_lib
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import fusion
from specjax.models import head_config
from specjax.models import heads
from specjax.models import sharding
from specjax.models.gguf import model as gguf
from specjax.models.huggingface import architectures
from specjax.models.huggingface import hub
from specjax.models.huggingface import published_heads
from specjax.models.huggingface import servers
from specjax.models.huggingface import shards
from specjax.models.huggingface import weights

# Types of the computations of models.
_DTYPES = 'float16', 'bfloat16', 'float32', 'float64'


class Checkpoint(NamedTuple):
  """A language model with its parameters and its tokenizer.

  Attributes:
    config: the architecture.
    model: the model.
    params: its parameters, as a nested dict.
    tokenizer: its tokenizer, or None if the checkpoint has none.
    stop_tokens: ids at which a text ends.
  """

  config: config_lib.Config
  model: base.LanguageModel
  params: base.Params
  tokenizer: tokenizer_lib.Tokenizer | None = None
  stop_tokens: tuple[int, ...] = ()

  @property
  def chat_template(self) -> str | None:
    """Jinja source of the chat template, or None."""
    template = self.tokenizer and self.tokenizer.template
    return template.source if template else None


class LazyCheckpoint(NamedTuple):
  """A checkpoint whose arrays are not in memory.

  Attributes:
    config: the architecture.
    model_type: its name in `architectures.ARCHITECTURES`, which defines the
      names of the arrays.
    tensors: the arrays, from `weights.resolve`.
    tokenizer: See `Checkpoint`.
    stop_tokens: See `Checkpoint`.
  """

  config: config_lib.Config
  model_type: str
  tensors: weights.Tensors
  tokenizer: tokenizer_lib.Tokenizer | None
  stop_tokens: tuple[int, ...]


def load(
  path: str | os.PathLike[str],
  *,
  dtype: jax.typing.DTypeLike | None = None,
  mesh: jax.sharding.Mesh | None = None,
) -> Checkpoint:
  """Loads a checkpoint.

  Arrays are read one at a time, so that memory holds little more than the
  result.

  Args:
    path: a HuggingFace folder with `config.json`, safetensors files and, unless
      prompts are token ids, `tokenizer.json`; or a `.gguf` file of llama.cpp,
      which requires the extra `gguf`. For a model that is split into several
      files, it is the first of them. `~` is the home directory, here and in all
      paths below. `organization/name` is a repository on the Hugging Face Hub,
      which requires the extra `hub`; see `hub.local_path`.
    dtype: type of parameters and computations; None keeps the type of the file.
      Norms, softmax and logits are always computed in float32.
    mesh: devices that the model is divided among, from `meshes.make`. Each
      device receives only its part of an array.

  Returns:
    The checkpoint.

  Raises:
    ValueError: a file is missing, truncated or corrupt; the weights are
      pickled; the architecture, some of its fields, or names, shapes or types
      of arrays are not supported, all of which are listed; or a repository
      cannot be fetched.
  """
  check_dtype(dtype)
  local_path = hub.local_path(path)
  with _error_context(path):
    source = _open(local_path)
    params = _params(source, dtype, mesh)
    params = fusion.fuse_on_gpu(source.config, params, mesh)
  model = adapters.language_model(source.config, dtype or _main_dtype(params))
  checkpoint = Checkpoint(
    source.config, model, params, source.tokenizer, source.stop_tokens
  )
  return checkpoint if mesh is None else sharding.shard(checkpoint, mesh)


def read_config(path: str | os.PathLike[str]) -> config_lib.Config:
  """Reads the architecture of a checkpoint, without its weights.

  Ties between embedding and output head are those of the config, which weights
  with a separate output head may contradict.

  Args:
    path: See `load`; the weights may be missing.

  Raises:
    ValueError: a file is missing or corrupt, or the architecture or some of its
      fields are not supported.
  """
  local_path = hub.local_path(path, weights=False)
  with _error_context(path):
    if local_path.endswith('.gguf'):
      return gguf.read(local_path).config
    return architectures.read_config(_hf_config(local_path))


def save(checkpoint: Checkpoint, folder: str | os.PathLike[str]) -> None:
  """Writes a HuggingFace folder, which transformers loads with equal logits.

  Args:
    checkpoint: from `load`, or any model with its config and parameters.
    folder: a new or empty folder.

  Raises:
    ValueError: the folder contains files, or no HuggingFace architecture
      matches the config.
  """
  hf_config = architectures.write_config(checkpoint.config)
  model_type = hf_config['model_type']
  params = fusion.separate(checkpoint.config, checkpoint.params)
  tensors = weights.write(checkpoint.config, model_type, params)
  path = _new_folder(folder)
  shards.save(path, tensors)
  if checkpoint.tokenizer is not None:
    checkpoint.tokenizer.save(path)
  stop_tokens = [*checkpoint.stop_tokens]
  token_ids = {
    'bos_token_id': None,
    'eos_token_id': stop_tokens or None,
    'pad_token_id': stop_tokens[0] if stop_tokens else None,
  }
  if 'decoder_start_token_id' in hf_config:
    token_ids['decoder_start_token_id'] = hf_config['decoder_start_token_id']
  dtype = _main_dtype(checkpoint.params).name
  fields = {**hf_config, **token_ids, 'torch_dtype': dtype}
  json_files.write(path, 'config.json', fields)
  json_files.write(path, 'generation_config.json', token_ids)


class Head(NamedTuple):
  """A head that drafts from its target's features, with its parameters.

  Attributes:
    config: the architecture.
    model: the head.
    params: its parameters; some are arrays of the target.
  """

  config: head_config.HeadConfig
  model: base.AnyHead
  params: base.Params


def load_head(
  path: str | os.PathLike[str],
  target: Checkpoint,
  dtype: jax.typing.DTypeLike | None = None,
) -> Head:
  """Loads a published head: EAGLE, EAGLE-3, Medusa, DFlash or DSpark.

  Args:
    path: a folder with `config.json` and safetensors files, in the formats of
      the heads' authors, of the library speculators or, for Medusa, of vLLM, or
      a repository on the Hub, as in `load`. Pickled weights are never read.
    target: the model that the head was trained for.
    dtype: type of the computations and of the parameters that are not shared
      with the target; None for the target's type.

  Raises:
    ValueError: a file is missing, truncated or corrupt, or it is not a head
      of a known kind for this target.
  """
  check_dtype(dtype)
  folder = hub.local_path(path)
  with _error_context(path):
    config, params = published_heads.read(
      _hf_config(folder),
      shards.load(folder, *published_heads.FILES),
      target.config,
      target.params,
    )
    heads.check_target(str(path), config, target.config, target.params)
  dtype = dtype or _main_dtype(target.params)
  own_params = heads.own_params(config, params)
  params |= jax.tree.map(lambda leaf: in_dtype(leaf, dtype), own_params)
  params = fusion.fuse_on_gpu(config, params)
  return Head(config, heads.head(config, dtype), params)


def is_head(path: str | os.PathLike[str]) -> bool:
  """Returns whether a path is a folder that `load_head` should read."""
  path = hub.local_path(path)
  fields = json_files.read(path, 'config.json')
  if not fields or any(name in fields for name in published_heads.FIELDS):
    return bool(fields)
  try:
    tensors = shards.load(path, *published_heads.FILES)
  except ValueError:  # Loading the folder raises it again.
    return False
  return published_heads.is_head(fields, tensors)


def embedding(path: str | os.PathLike[str]) -> base.Params:
  """Loads only the embedding of a checkpoint, in the type of the file.

  Args:
    path: See `load`.
  """
  local_path = hub.local_path(path)
  with _error_context(path):
    checkpoint = _open(local_path)
    table = weights.embedding(checkpoint.model_type, checkpoint.tensors)
  return {'embedding': {'embedding': table}}


def check_dtype(dtype: jax.typing.DTypeLike | None) -> None:
  """Raises `ValueError` unless a type is None or one that models have."""
  try:
    is_valid = dtype is None or jnp.dtype(dtype).name in _DTYPES
  except TypeError:
    is_valid = False
  if not is_valid:
    raise ValueError(
      f'dtype must be one of {", ".join(_DTYPES)}, got {dtype!r}.'
    )


def in_dtype(leaf: jax.Array, dtype: jax.typing.DTypeLike) -> jax.Array:
  """Returns an array in another floating-point type; integers are unchanged."""
  return leaf.astype(dtype) if jnp.issubdtype(leaf.dtype, jnp.inexact) else leaf


def save_head(
  head: Head,
  folder: str | os.PathLike[str],
  *,
  server: str | None = None,
  target: str | None = None,
  draft_length: int | None = None,
  num_target_layers: int | None = None,
) -> None:
  """Writes a head in a published format, which `load_head` reads.

  Args:
    head: from `load_head` or `families.load`.
    folder: a new or empty folder.
    server: 'vllm', 'sglang' or 'llama.cpp', which will load the folder (see
      docs/serving.md); None for the format of the head's authors.
    target: only for 'vllm' and EAGLE-3: name on the Hugging Face Hub, or path,
      of the target that `vllm serve FOLDER` loads.
    draft_length: only for 'vllm' and EAGLE-3: number of draft tokens per round.
    num_target_layers: only for servers and heads of DFlash or DSpark: number of
      layers of the target.

  Raises:
    ValueError: the folder contains files, published formats cannot express the
      layer of the head, the server is unknown or cannot load the head, or an
      argument is missing or has no place in the format.
  """
  params = fusion.separate(head.config, head.params)
  fields, arrays = published_heads.write(
    head.config,
    params,
    server,
    servers.Arguments(target, draft_length, num_target_layers),
  )
  layer_fields = fields.get('transformer_layer_config', fields)
  layer_fields['torch_dtype'] = _main_dtype(arrays).name
  path = _new_folder(folder)
  shards.save(
    path,
    weights.Tensors(jax.eval_shape(lambda: arrays), arrays.__getitem__),
  )
  json_files.write(path, 'config.json', fields)


@contextlib.contextmanager
def _error_context(path: str | os.PathLike[str]) -> Iterator[None]:
  """Prefixes errors with the path that cannot be loaded."""
  try:
    yield
  except ValueError as error:
    raise ValueError(f'Cannot load {path}: {error}') from error


def _new_folder(folder: str | os.PathLike[str]) -> str:
  """Creates a folder; raises `ValueError` if it contains files."""
  path = os.path.expanduser(folder)
  if os.path.isdir(path) and os.listdir(path):
    raise ValueError(f'folder must be new or empty, got {path}.')
  os.makedirs(path, exist_ok=True)
  return path


def _open(path: str) -> LazyCheckpoint:
  """Reads all but the arrays."""
  return _open_gguf(path) if path.endswith('.gguf') else _open_folder(path)


def _open_gguf(path: str) -> LazyCheckpoint:
  """Reads all but the arrays of a GGUF file."""
  contents = gguf.read(path)
  config, tensors = weights.resolve(
    contents.config, contents.model_type, contents.tensors
  )
  tokenizer = contents.tokenizer
  return LazyCheckpoint(
    config, contents.model_type, tensors, tokenizer, tokenizer.stop_tokens
  )


def _hf_config(path: str) -> dict[str, Any]:
  """Reads `config.json`; raises `ValueError` if there is none."""
  hf_config = json_files.read(path, 'config.json')
  if not hf_config:
    raise ValueError(f'{path} has no config.json.')
  return hf_config


def _open_folder(path: str) -> LazyCheckpoint:
  """Reads all but the arrays of a HuggingFace folder."""
  if not os.path.isdir(path):
    raise ValueError(f'There is no directory {path}.')
  hf_config = _hf_config(path)
  tokenizer = None
  stop_tokens = tuple(prompt_format.token_ids(path, 'eos_token_id'))
  if os.path.isfile(os.path.join(path, 'tokenizer.json')):
    tokenizer = tokenizer_lib.load(path)
    stop_tokens = tokenizer.stop_tokens
  config = architectures.read_config(hf_config)
  model_type = hf_config['model_type']
  tensors = shards.load(path)
  if published_heads.is_head(hf_config, tensors):
    raise ValueError(
      'it is a head, which needs a target: models.load_head reads it.'
    )
  config, tensors = weights.resolve(config, model_type, tensors)
  return LazyCheckpoint(config, model_type, tensors, tokenizer, stop_tokens)


def _params(
  checkpoint: LazyCheckpoint,
  dtype: jax.typing.DTypeLike | None,
  mesh: jax.sharding.Mesh | None,
) -> base.Params:
  """Reads the parameters, each directly to its devices in the mesh."""
  config = checkpoint.config
  arguments = config, checkpoint.model_type, checkpoint.tensors, dtype
  if mesh is None:
    return weights.read(*arguments)
  sharding.check_heads(config, mesh)

  def put(name: str, leaf: jax.Array) -> jax.Array:
    """Divides a parameter among the devices."""
    layout = sharding.parameter_sharding(config, name, leaf.shape, mesh)
    return meshes.put(leaf, layout)

  # Before it is divided, a parameter is in the host's memory.
  with jax.default_device(jax.local_devices(backend='cpu')[0]):
    return weights.read(*arguments, put)


def _main_dtype(params: base.Params) -> np.dtype[Any]:
  """Returns the type of the majority of the parameters."""
  sizes: collections.Counter[Any] = collections.Counter()
  for leaf in jax.tree.leaves(params):
    sizes[leaf.dtype] += leaf.size
  return sizes.most_common(1)[0][0]
