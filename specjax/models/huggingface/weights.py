"""Our parameters and HuggingFace's arrays, one array at a time."""

from collections.abc import Callable
import re
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import registry
from specjax.models import adapters
from specjax.models import checkpoint
from specjax.models import config as config_lib
from specjax.models.huggingface import families

_SUFFIXES = {
  'embedding': 'weight',
  'kernel': 'weight',
  'scale': 'weight',
  'bias': 'bias',
}
# Constants that older files hold next to the weights, copies of a table, and
# what sees.
_UNUSED = re.compile(
  r'rotary_emb\.inv_freq$|\.attention\.(masked_)?bias$'
  r'|^(en|de)coder\.embed_tokens\.weight$'
  r'|^(vision_tower|multi_modal_projector)\.'
)
_FLOATS = ('float16', 'bfloat16', 'float32', 'float64')


class Tensors(NamedTuple):
  """Named arrays that need not be in memory.

  Attributes:
    shapes: shape and type of each.
    read: returns the array of a name, or raises a `ValueError`.
  """

  shapes: dict[str, jax.ShapeDtypeStruct]
  read: Callable[[str], np.ndarray]


def read(
  config: config_lib.Config,
  family: str,
  tensors: Tensors,
  dtype: jax.typing.DTypeLike | None = None,
  place: Callable[[str, jax.Array], jax.Array] = lambda _, array: array,
) -> base.Params:
  """Returns a HuggingFace model's weights as our parameters.

  Besides what is returned, memory holds one array at a time, the largest first.

  Args:
    config: the architecture.
    family: a name of `families.FAMILIES`.
    tensors: by their HuggingFace names; a second copy of a tied table is
      ignored.
    dtype: of the parameters; None keeps the type of each array.
    place: returns a parameter of a name where it shall be.

  Raises:
    ValueError: the family is unknown, an array cannot be read, or names, shapes
      or types differ from the config's; every difference is listed.
  """
  found = {
    # The name of GPT-NeoX's head in files of transformers 4.
    re.sub(r'^embed_out\.', 'lm_head.', name): name
    for name in tensors.shapes
    if not _UNUSED.search(name)
  }
  if config.tie_embeddings:
    found.pop('lm_head.weight', None)
  if config.num_layers > len(found):  # Before so many are built.
    raise ValueError(
      f'The config has {config.num_layers} layers, but there are only '
      f'{len(found)} arrays.'
    )
  abstract = adapters.abstract_params(config)
  wanted = write(config, family, abstract).shapes
  _check({name: tensors.shapes[own] for name, own in found.items()}, wanted)
  leaves = checkpoint.flatten(abstract)
  layout = _layout(config, family, abstract)
  num_groups = _num_groups(config, family)
  arrays: dict[str, jax.Array] = {}
  for name in sorted(wanted, key=lambda name: -wanted[name].size):
    array = jnp.asarray(tensors.read(found[name]))
    parts = _divide(array, layout[name], leaves, num_groups)
    parts = [part.astype(dtype or part.dtype) for part in parts]
    parts = map(place, layout[name], parts)
    # Or what waits to be converted would pile up.
    arrays |= zip(layout[name], jax.block_until_ready([*parts]), strict=True)
  return checkpoint.unflatten(arrays, abstract, family)


def write(
  config: config_lib.Config, family: str, params: base.Params
) -> Tensors:
  """Returns our parameters under their HuggingFace names.

  The inverse of `read`, one array at a time, too. A tied table is there once,
  as in HuggingFace's files.

  Args:
    config: the architecture.
    family: a name of `families.FAMILIES`.
    params: arrays, or only their shapes and types; then so is the result.

  Raises:
    ValueError: the family is unknown, or cannot hold some of the parameters.
  """
  layout = _layout(config, family, params)
  leaves = checkpoint.flatten(params)
  num_groups = _num_groups(config, family)
  fuse = lambda leaves, name: _fuse(layout[name], leaves, num_groups)
  return Tensors(
    jax.eval_shape(
      lambda leaves: {name: fuse(leaves, name) for name in layout}, leaves
    ),
    lambda name: np.ascontiguousarray(fuse(leaves, name)),
  )


def _layout(config, family, params):
  """Returns our names of the parts of each HuggingFace array."""
  leaves = checkpoint.flatten(params)
  layout: dict[str, list[str]] = {}
  names = registry.lookup(families.FAMILIES, 'family', family).names
  for ours, theirs in names.items():
    for i in range(config.num_layers if '{}' in ours else 1):
      for leaf, suffix in _SUFFIXES.items():
        name = f'{ours.format(i)}/{leaf}'
        if leaves.pop(name, None) is not None:
          layout.setdefault(f'{theirs.format(i)}.{suffix}', []).append(name)
  if leaves:
    raise ValueError(f'A {family} model has no {", ".join(leaves)}.')
  return layout


def _num_groups(config, family):
  """In how many groups the parts of a fused array stand."""
  by_head = families.FAMILIES[family].fused_by_head
  return config.num_heads if by_head else 1


def _check(found, wanted):
  """Refuses arrays that are not those of a model; all reasons are listed."""
  problems = checkpoint.differences(found, wanted)
  problems += [
    f'{name} has the type {found[name].dtype}, not one of {", ".join(_FLOATS)}'
    for name in wanted
    if name in found and found[name].dtype.name not in _FLOATS
  ]
  if problems:
    raise ValueError(f'Weights and config do not fit: {"; ".join(problems)}.')


def _fuse(names, leaves, num_groups):
  """Makes one array of theirs of ours."""
  parts = [_turned(name, leaves[name]) for name in names]
  if len(parts) == 1:
    return parts[0]
  rest = parts[0].shape[1:]
  groups = [part.reshape(num_groups, -1, *rest) for part in parts]
  return jnp.concatenate(groups, axis=1).reshape(-1, *rest)


def _divide(array, names, leaves, num_groups):
  """Makes arrays of ours of one of theirs; undoes `_fuse`."""
  rest = array.shape[1:]
  if len(names) == 1:
    return [_turned(names[0], array)]
  sizes = [leaves[name].shape[-1] // num_groups for name in names]
  groups = array.reshape(num_groups, -1, *rest)
  parts = jnp.split(groups, np.cumsum(sizes)[:-1].tolist(), axis=1)
  return [
    _turned(name, part.reshape(-1, *rest))
    for name, part in zip(names, parts, strict=True)
  ]


def _turned(name, array):
  """Their matrices have the outputs in front."""
  return array.T if name.endswith('/kernel') else array
