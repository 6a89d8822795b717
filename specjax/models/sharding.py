"""Divides models among devices: the sharding of their parameters.

`layouts` defines the sharding of KV caches and outputs.
"""

from collections.abc import Sequence
import re
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import jax

from specjax import base
from specjax import meshes
from specjax.models import checkpoint
from specjax.models import fusion
from specjax.models import head_config
from specjax.models import heads
from specjax.models import layouts

_Mesh = jax.sharding.Mesh
_P = jax.sharding.PartitionSpec
_Model = TypeVar('_Model')


class _Rule(NamedTuple):
  """The axis along which parameters of some names are sharded.

  Attributes:
    pattern: matches the end of the name.
    axis: the sharded axis.
    parts: field of the config with the number of parts of the axis, such as
      heads, which are never divided; '' if every index is a part.
  """

  pattern: re.Pattern[str]
  axis: int
  parts: str


_RULES = tuple(
  _Rule(re.compile(f'{pattern}$'), axis, parts)
  for pattern, axis, parts in (
    (r'\bquery/(kernel|bias)', -1, 'num_heads'),
    (r'\b(key|value|query_key_value)/(kernel|bias)', -1, 'num_kv_heads'),
    (r'\bout/kernel', 0, 'num_heads'),
    (r'\b(up|gate|gate_up)/(kernel|bias)', -1, ''),
    (r'\bdown/kernel', 0, ''),
    (r'\bhead/(kernel|bias)', -1, ''),
    ('^embedding/embedding', 0, ''),
  )
)


def shard(model: _Model, mesh: _Mesh, *, split: bool = True) -> _Model:
  """Returns a model that is sharded over a mesh.

  Args:
    model: a model or a head with its config and parameters, from
      `families.load`, `models.load` or `models.load_head`. Parameters may be
      abstract; those with the right sharding are not copied. Fused projections
      whose groups the mesh does not divide are separated.
    mesh: from `meshes.make`.
    split: whether parameters are divided. If false, they are replicated, which
      suits a small drafter, except for those that a head shares with its
      target.

  Raises:
    ValueError: the mesh does not divide the model's attention heads.
  """
  fields: Any = model
  params = fields.params
  if split:
    check_heads(fields.config, mesh)
    # A drafter may have been fused before its mesh was known.
    params = fusion.separate(fields.config, params, mesh)
  params = shard_params(fields.config, params, mesh, split=split)
  layout = layouts.Layout(mesh, split, _is_output_split(params))
  sharded = layouts.lay_out(fields.model, layout)
  return fields._replace(model=sharded, params=params)


def _is_output_split(params: base.Params) -> bool:
  """Returns whether the output head is sharded along the vocabulary."""
  head = params.get('head', params.get('embedding'))
  specs = [leaf.sharding.spec for leaf in jax.tree.leaves(head)]
  return any(meshes.MODEL in spec for spec in specs)


def check_heads(config: Any, mesh: _Mesh) -> None:
  """Raises `ValueError` unless a mesh divides a model's attention heads."""
  if not divides(config, mesh):
    raise ValueError(
      f'mesh must divide the {_transformer(config).num_heads} attention heads '
      f'of the model along {meshes.MODEL!r}, got {mesh.shape[meshes.MODEL]}; a '
      'drafter can also be replicated on every device.'
    )


def divides(config: Any, mesh: _Mesh) -> bool:
  """Returns whether a model's attention heads can be divided on a mesh."""
  return _transformer(config).num_heads % mesh.shape[meshes.MODEL] == 0


def shard_params(
  config: Any, params: base.Params, mesh: _Mesh, *, split: bool = True
) -> base.Params:
  """Returns a model's parameters, sharded over a mesh.

  Args:
    config: the architecture of a model or of a head.
    params: its parameters.
    mesh: See `shard`.
    split: See `shard`.
  """
  leaves = checkpoint.flatten(params)
  shared = heads.shared_names(config) if _is_head(config) else ()
  sharded = {
    name: meshes.put(
      leaf,
      parameter_sharding(
        config, name, leaf.shape, mesh, split or name.split('/')[0] in shared
      ),
    )
    for name, leaf in leaves.items()
  }
  return checkpoint.unflatten(sharded, params, 'mesh')


def parameter_sharding(
  config: Any,
  name: str,
  shape: Sequence[int],
  mesh: _Mesh,
  split: bool = True,
) -> jax.sharding.NamedSharding:
  """Returns the sharding of a parameter, by the first rule for its name.

  A parameter is replicated if the mesh does not divide its parts, for example
  if there are fewer key heads than devices along 'model'. So is the output head
  of a reduced vocabulary: it is small, and its logits are gathered anyway.

  Args:
    config: the architecture of a model or of a head.
    name: name of the parameter, from `checkpoint.flatten`.
    shape: shape of the parameter.
    mesh: See `shard`.
    split: whether the parameter is divided.
  """
  axes: list[str | None] = [None] * len(shape)
  rule = next((rule for rule in _RULES if rule.pattern.search(name)), None)
  fields = _transformer(config)
  reduced = getattr(fields, 'head_size', None) and name.startswith('head/')
  if rule is not None and split and not reduced:
    parts = getattr(fields, rule.parts, None) or (
      fields.num_heads if rule.parts else shape[rule.axis]
    )
    if parts % mesh.shape[meshes.MODEL] == 0:
      axes[rule.axis] = meshes.MODEL
  return jax.sharding.NamedSharding(mesh, _P(*axes))


def _is_head(config: Any) -> bool:
  """Returns whether a config describes a head."""
  return isinstance(config, head_config.HeadConfig)


def _transformer(config: Any) -> Any:
  """Returns the config of a model's or head's layers."""
  return config.layer if _is_head(config) else config
