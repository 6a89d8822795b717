"""Translates between our parameters and HuggingFace's arrays."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import registry
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models import flax_modules
from specjax.models.huggingface import architectures

_SUFFIXES = {
  'embedding': 'weight',
  'kernel': 'weight',
  'scale': 'weight',
  'bias': 'bias',
}
# Arrays that transformers ignores, too: constants that older files hold next to
# the weights, an unused table of T5, and modules for images.
_UNUSED = re.compile(
  r'rotary_emb\.inv_freq$|\.attention\.(masked_)?bias$'
  r'|\.EncDecAttention\.relative_attention_bias\.weight$'
  r'|^(model\.)?(vision_tower|multi_modal_projector)\.'
)
_HEAD = 'lm_head.weight'
_FLOATS = ('float16', 'bfloat16', 'float32', 'float64')


class Tensors(NamedTuple):
  """Named arrays that may not be in memory.

  Attributes:
    shapes: shape and type of each array, by name.
    read: returns the array of a name, or raises a `ValueError`.
  """

  shapes: dict[str, jax.ShapeDtypeStruct]
  read: Callable[[str], np.ndarray]


def resolve(
  config: config_lib.Config, model_type: str, tensors: Tensors
) -> tuple[config_lib.Config, Tensors]:
  """Returns the arrays of a file under their canonical names.

  These are the names that `write` gives them. Arrays that the model does not
  use are dropped. Copies of the embedding are dropped only if they are equal to
  it: a model whose config ties its output head, but whose file has a different
  one, becomes untied, as in transformers.

  Args:
    config: the architecture, from `config.json`.
    model_type: a name of `architectures.ARCHITECTURES`.
    tensors: the arrays, with any of the names that occur in files.

  Returns:
    The config, whose `tie_embeddings` may have changed, and the arrays.

  Raises:
    ValueError: the architecture is unknown, two arrays have the same canonical
      name, an array cannot be read, or a copy of the embedding differs from it
      in an architecture that must tie them.
  """
  names = _file_names(model_type, tensors)
  table = _table(model_type)
  copies = _lookup(model_type).embedding_copies
  for copy in (*copies, *([_HEAD] * config.tie_embeddings)):
    if copy not in names:
      continue
    if table not in names:  # A copy replaces the embedding.
      names[table] = names.pop(copy)
    elif _equal(tensors, names[table], names[copy]):
      del names[copy]
    elif not copies:
      config = dataclasses.replace(config, tie_embeddings=False)
    else:
      raise ValueError(
        f'{names[copy]} must be equal to {names[table]}, since {model_type} '
        'models with several embedding tables are not supported.'
      )
  shapes = {name: tensors.shapes[names[name]] for name in names}
  return config, Tensors(shapes, lambda name: tensors.read(names[name]))


def read(
  config: config_lib.Config,
  model_type: str,
  tensors: Tensors,
  dtype: jax.typing.DTypeLike | None = None,
  place: Callable[[str, jax.Array], jax.Array] = lambda _, array: array,
) -> base.Params:
  """Returns a HuggingFace model's weights as our parameters.

  Memory holds the result and one array at a time, the largest first.

  Args:
    config: the architecture.
    model_type: a name of `architectures.ARCHITECTURES`.
    tensors: from `resolve`.
    dtype: type of the parameters; None keeps the type of each array.
    place: `(name, parameter) -> parameter`, moves a parameter to its devices.

  Raises:
    ValueError: the architecture is unknown, an array cannot be read, or names,
      shapes or types differ from the config's; every difference is listed.
  """
  num_arrays = len(tensors.shapes)
  # Checked before so many layers are traced.
  if config.num_layers > num_arrays:
    raise ValueError(
      f'The config has {config.num_layers} layers, but there are only '
      f'{num_arrays} arrays.'
    )
  abstract = flax_modules.abstract_params(config)
  shapes = write(config, model_type, abstract).shapes
  check(tensors.shapes, shapes)
  leaves = checkpoint.flatten(abstract)
  layout = _layout(config, model_type, abstract)
  num_groups = _num_groups(config, model_type)
  arrays: dict[str, jax.Array] = {}
  for name in sorted(shapes, key=lambda name: -shapes[name].size):
    array = jnp.asarray(tensors.read(name))
    parts = _divide(array, layout[name], leaves, num_groups)
    parts = [part.astype(dtype or part.dtype) for part in parts]
    parts = [*map(place, layout[name], parts)]
    # Waits, so that arrays to be converted do not accumulate in memory.
    arrays |= zip(layout[name], jax.block_until_ready(parts), strict=True)
  return checkpoint.unflatten(arrays, abstract, model_type)


def embedding(model_type: str, tensors: Tensors) -> np.ndarray:
  """Returns only the embedding.

  Args:
    model_type: a name of `architectures.ARCHITECTURES`.
    tensors: from `resolve`.
  """
  return tensors.read(_table(model_type))


def write(
  config: config_lib.Config, model_type: str, params: base.Params
) -> Tensors:
  """Returns our parameters with HuggingFace's names; inverts `read`.

  Arrays are converted one at a time. A tied table occurs once, as in
  HuggingFace's files.

  Args:
    config: the architecture.
    model_type: a name of `architectures.ARCHITECTURES`.
    params: arrays, or their shapes and types; only `shapes` of the result can
      then be used.

  Raises:
    ValueError: the architecture is unknown, or it cannot hold some of the
      parameters.
  """
  layout = _layout(config, model_type, params)
  leaves = checkpoint.flatten(params)
  num_groups = _num_groups(config, model_type)
  fuse = lambda leaves, name: _fuse(layout[name], leaves, num_groups)
  return Tensors(
    jax.eval_shape(
      lambda leaves: {name: fuse(leaves, name) for name in layout}, leaves
    ),
    lambda name: np.ascontiguousarray(fuse(leaves, name)),
  )


def check(
  shapes: Mapping[str, jax.ShapeDtypeStruct],
  expected: Mapping[str, jax.ShapeDtypeStruct],
) -> None:
  """Raises `ValueError` unless arrays are those of a model.

  All differences of names, shapes and types are listed.

  Args:
    shapes: the arrays.
    expected: the arrays of the model.
  """
  problems = checkpoint.differences(shapes, expected)
  problems += [
    f'{name} has the type {shapes[name].dtype}, not one of {", ".join(_FLOATS)}'
    for name in expected
    if name in shapes and not _are_floats(shapes[name])
  ]
  if problems:
    raise ValueError(f'Weights and config do not match: {"; ".join(problems)}.')


def _lookup(model_type: str) -> architectures.Architecture:
  """Returns the description of an architecture."""
  return registry.lookup(architectures.ARCHITECTURES, 'model_type', model_type)


def _table(model_type: str) -> str:
  """Returns the name of the embedding table."""
  return f'{_lookup(model_type).names["embedding"]}.weight'


def _file_names(model_type: str, tensors: Tensors) -> dict[str, str]:
  """Returns the names in a file by canonical names, for arrays in use."""
  architecture = _lookup(model_type)
  file_names: dict[str, str] = {}
  for file_name in tensors.shapes:
    if _UNUSED.search(file_name):
      continue
    # GPT-NeoX's head has this name in files of transformers 4.
    name = re.sub(r'^embed_out\.', 'lm_head.', file_name)
    # The text model of a multimodal one is around `model` or inside of it.
    if architecture.is_multimodal:
      name = re.sub(r'(^|\.)language_model\.', r'\1', name)
    if name in file_names:
      raise ValueError(
        f'{file_name} and {file_names[name]} are two names of one array.'
      )
    file_names[name] = file_name
  # Files of a model without an output head lack the outermost module.
  outer, dot, _ = architecture.names.get('final_norm', '').rpartition('.')
  if dot and not any(name.startswith(f'{outer}.') for name in file_names):
    file_names = {
      name if name == _HEAD else f'{outer}.{name}': file_name
      for name, file_name in file_names.items()
    }
  return file_names


def _are_floats(*arrays: jax.ShapeDtypeStruct) -> bool:
  """Returns whether all arrays have a type that weights may have."""
  return all(array.dtype.name in _FLOATS for array in arrays)


def _equal(tensors: Tensors, name: str, other: str) -> bool:
  """Returns whether two arrays hold the same floating-point numbers."""
  pair = tensors.shapes[name], tensors.shapes[other]
  if pair[0].shape != pair[1].shape or not _are_floats(*pair):
    return False
  return np.array_equal(tensors.read(name), tensors.read(other))


def _layout(
  config: config_lib.Config, model_type: str, params: base.Params
) -> dict[str, list[str]]:
  """Returns our names of the parts of each HuggingFace array, by its name."""
  leaves = checkpoint.flatten(params)
  layout: dict[str, list[str]] = {}
  for module, hf_module in _lookup(model_type).names.items():
    for i in range(config.num_layers if '{}' in module else 1):
      for leaf, suffix in _SUFFIXES.items():
        name, hf_name = f'{module.format(i)}/{leaf}', hf_module.format(i)
        if leaves.pop(name, None) is not None:
          layout.setdefault(f'{hf_name}.{suffix}', []).append(name)
  if leaves:
    raise ValueError(f'A {model_type} model has no {", ".join(leaves)}.')
  return layout


def _num_groups(config: config_lib.Config, model_type: str) -> int:
  """Returns the number of groups that a fused array interleaves."""
  by_head = architectures.ARCHITECTURES[model_type].fused_by_head
  return config.num_heads if by_head else 1


def _fuse(
  names: list[str], leaves: Mapping[str, jax.Array], num_groups: int
) -> jax.Array:
  """Returns one HuggingFace array, made of our parameters."""
  parts = [_transpose(name, leaves[name]) for name in names]
  if len(parts) == 1:
    return parts[0]
  row_shape = parts[0].shape[1:]
  groups = [part.reshape(num_groups, -1, *row_shape) for part in parts]
  return jnp.concatenate(groups, axis=1).reshape(-1, *row_shape)


def _divide(
  array: jax.Array,
  names: list[str],
  leaves: Mapping[str, jax.Array | jax.ShapeDtypeStruct],
  num_groups: int,
) -> list[jax.Array]:
  """Returns our parameters in one HuggingFace array; inverts `_fuse`."""
  row_shape = array.shape[1:]
  if len(names) == 1:
    return [_transpose(names[0], array)]
  sizes = [leaves[name].shape[-1] // num_groups for name in names]
  groups = array.reshape(num_groups, -1, *row_shape)
  parts = jnp.split(groups, np.cumsum(sizes)[:-1].tolist(), axis=1)
  return [
    _transpose(name, part.reshape(-1, *row_shape))
    for name, part in zip(names, parts, strict=True)
  ]


def _transpose(name: str, array: jax.Array) -> jax.Array:
  """Transposes kernels; HuggingFace's have the outputs as first axis."""
  return array.T if name.endswith('/kernel') else array
