"""Fused projections of one input, for GPUs: query, key and value; gate and up.

XLA for GPUs computes projections that share an input as one product. It
concatenates their kernels inside of the product, or, where it calls cuBLAS, in
memory and anew in every call. Fused parameters need no concatenation. XLA for
TPUs fuses separate projections into one kernel without one, and on CPUs
separate products are faster.

Parameters are fused once, when they are loaded, and checkpoints hold them
separately. Models take either layout: the names of the parameters decide which
products they compute.

The columns of a fused kernel are grouped. Each group holds an equal share of
the columns of every part: those of one key head and of its queries, for
example. So a device that holds whole groups computes its share of each part
alone.
"""

from collections.abc import Iterable
import functools
import itertools
import math
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp

from specjax import base
from specjax import meshes

# From the name of a fused layer to those of its parts.
PARTS = {
  'query_key_value': ('query', 'key', 'value'),
  'gate_up': ('gate', 'up'),
}
# The queries and the keys of cross-attention have different inputs.
_CROSS_ATTENTION = 'cross'
# Groups of gate and up at most, so that meshes of powers of 2 divide them.
_MAX_GROUPS = 128


def fuse(
  config: Any, params: base.Params, mesh: jax.sharding.Mesh | None = None
) -> base.Params:
  """Fuses the projections of one input in a model's parameters.

  The dict is modified in place, one layer at a time, so that memory holds one
  layer twice at most, unless the separate arrays are referenced elsewhere.

  Args:
    config: the architecture of a model or of a head.
    params: its parameters, as a nested dict.
    mesh: the devices that hold them. Projections whose groups the mesh does not
      divide stay separate.

  Returns:
    `params`.
  """
  for name in PARTS:
    if mesh is None or _divides(config, name, mesh):
      _fuse(config, params, name)
  return params


def _divides(
  config: Any,
  name: str,
  mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh,
) -> bool:
  """Returns whether a mesh divides the groups of a fused layer."""
  return num_groups(config, name) % mesh.shape[meshes.MODEL] == 0


def fuse_on_gpu(
  config: Any, params: base.Params, mesh: jax.sharding.Mesh | None = None
) -> base.Params:
  """Fuses parameters on a GPU, and returns others unchanged.

  Args:
    config: See `fuse`.
    params: See `fuse`.
    mesh: See `fuse`.
  """
  if _platform(params) != 'gpu':
    return params
  return fuse(config, params, mesh)


def _platform(params: base.Params) -> str:
  """Returns the platform of the device that holds the parameters."""
  return next(iter(jax.tree.leaves(params)[0].devices())).platform


def _fuse(config: Any, params: base.Params, name: str) -> None:
  """Fuses all layers of one name."""
  parts = PARTS[name]
  if all(part in params for part in parts):
    layers = [params.pop(part) for part in parts]
    groups = num_groups(config, name)
    params[name] = jax.tree.map(
      lambda *leaves: _concatenate(leaves, groups), *layers
    )
  for child, node in params.items():
    if isinstance(node, dict) and child != _CROSS_ATTENTION:
      _fuse(config, node, name)


def _concatenate(leaves: Iterable[jax.Array], num_groups: int) -> jax.Array:
  """Concatenates columns within each group."""
  grouped = [leaf.reshape(*leaf.shape[:-1], num_groups, -1) for leaf in leaves]
  fused = jnp.concatenate(grouped, axis=-1)
  return fused.reshape(*fused.shape[:-2], -1)


def separate(
  config: Any,
  params: base.Params,
  mesh: jax.sharding.Mesh | jax.sharding.AbstractMesh | None = None,
) -> base.Params:
  """Returns parameters as checkpoints hold them, the inverse of `fuse`.

  Args:
    config: See `fuse`.
    params: the parameters, fused or not, which may be abstract; they are not
      modified.
    mesh: if given, projections whose groups it divides stay fused.
  """
  separated: dict[str, Any] = {}
  for name, node in params.items():
    is_fused = name in PARTS
    if is_fused and (mesh is None or not _divides(config, name, mesh)):
      for kind, leaf in node.items():
        function = functools.partial(split, config, name)
        if isinstance(leaf, jax.ShapeDtypeStruct):
          function = functools.partial(jax.eval_shape, function)
        for part, columns in function(leaf).items():
          separated.setdefault(part, {})[kind] = columns
    elif is_fused or not isinstance(node, dict):
      separated[name] = node
    else:
      separated[name] = separate(config, node, mesh)
  return separated


def split(config: Any, name: str, fused: jax.Array) -> dict[str, jax.Array]:
  """Returns the parts of a fused kernel, bias or product, by their names.

  Args:
    config: See `fuse`.
    name: name of the fused layer, a key of `PARTS`.
    fused: `[..., C]`, the columns of all parts.
  """
  ratios = [1, 1]
  if name == 'query_key_value':
    fields = _transformer(config)
    ratios = [fields.num_heads // fields.num_kv_heads, 1, 1]
  grouped = fused.reshape(*fused.shape[:-1], num_groups(config, name), -1)
  unit = grouped.shape[-1] // sum(ratios)
  ends = [unit * end for end in itertools.accumulate(ratios)]
  columns = jnp.split(grouped, ends[:-1], axis=-1)
  return {
    part: group.reshape(*fused.shape[:-1], -1)
    for part, group in zip(PARTS[name], columns, strict=True)
  }


def num_groups(config: Any, name: str) -> int:
  """Returns the number of groups of a fused layer's columns.

  Args:
    config: See `fuse`.
    name: name of the fused layer, a key of `PARTS`.
  """
  fields = _transformer(config)
  if name == 'query_key_value':
    return fields.num_kv_heads
  return math.gcd(fields.d_ff, _MAX_GROUPS)


def fused_layers(params: base.Params) -> frozenset[tuple[str, ...]]:
  """Returns the paths of the fused layers in a model's parameters."""
  if not isinstance(params, dict):
    return frozenset()
  return frozenset(
    path
    for name, node in params.items()
    for path in (
      [(name,)]
      if name in PARTS
      else [(name, *inner) for inner in fused_layers(node)]
    )
  )


def fuse_modules(model: nnx.Module, layers: Iterable[tuple[str, ...]]) -> None:
  """Replaces separate projections by fused ones with undefined values.

  Args:
    model: the model, which is modified in place.
    layers: paths from `fused_layers`.
  """
  for *path, name in layers:
    module = functools.reduce(getattr, path, model)
    parts = [getattr(module, part) for part in PARTS[name]]
    fused = nnx.Linear(
      parts[0].in_features,
      sum(part.out_features for part in parts),
      use_bias=parts[0].use_bias,
      dtype=parts[0].dtype,
      dot_general=parts[0].dot_general,
      rngs=nnx.Rngs(0),
    )
    setattr(module, name, fused)
    for part in PARTS[name]:
      delattr(module, part)


def _transformer(config: Any) -> Any:
  """Returns the config of a model's layers, for any config."""
  stack = getattr(config, 'stack', None)
  return stack(1) if stack else getattr(config, 'layer', config)
