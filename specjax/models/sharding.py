"""Divides models among devices: which axis of which parameter is cut.

`layouts` says how caches and outputs are cut.
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
from specjax.models import head_config
from specjax.models import heads
from specjax.models import layouts

_Mesh = jax.sharding.Mesh
_P = jax.sharding.PartitionSpec
_Model = TypeVar('_Model')


class _Rule(NamedTuple):
  """Where parameters of a name are cut.

  Attributes:
    pattern: end of the name.
    axis: that is cut.
    parts: field of the config that says how many parts stand on it, none of
      which is cut; '' where these are numbers.
  """

  pattern: re.Pattern[str]
  axis: int
  parts: str


_RULES = tuple(
  _Rule(re.compile(f'({pattern})$'), axis, parts)
  for pattern, axis, parts in (
    ('query/(kernel|bias)', -1, 'num_heads'),
    ('(key|value|query_key_value)/(kernel|bias)', -1, 'num_kv_heads'),
    ('out/kernel', 0, 'num_heads'),
    ('(up|gate|gate_up)/(kernel|bias)', -1, ''),
    ('down/kernel', 0, ''),
    ('head/(kernel|bias)', -1, ''),
    ('^embedding/embedding', 0, ''),
  )
)


def shard(model: _Model, mesh: _Mesh, *, split: bool = True) -> _Model:
  """Returns a model that lies on a mesh.

  Args:
    model: anything with a config, a model and parameters: of
      `families.load`, `models.load` or `models.load_head`. Parameters may be
      abstract; those that lie there already are not copied.
    mesh: from `meshes.make`.
    split: if false, each device has all parameters, as suits a small drafter,
      but for those that a head shares with its target.

  Raises:
    ValueError: the mesh does not divide the model's heads.
  """
  given: Any = model
  if split:
    check_heads(given.config, mesh)
  params = place(given.config, given.params, mesh, split=split)
  layout = layouts.Layout(mesh, split, _makes_parts(params))
  laid_out = layouts.lay_out(given.model, layout)
  return given._replace(model=laid_out, params=params)


def _makes_parts(params):
  """Whether the matrix that makes logits is cut along the vocabulary."""
  maker = params.get('head', params.get('embedding'))
  axes = [leaf.sharding.spec for leaf in jax.tree.leaves(maker)]
  return any(meshes.MODEL in spec for spec in axes)


def check_heads(config: Any, mesh: _Mesh) -> None:
  """Refuses a mesh that does not divide a model's attention heads."""
  if not divides(config, mesh):
    raise ValueError(
      f'mesh must divide the {_transformer(config).num_heads} attention heads '
      f'of the model along {meshes.MODEL!r}, got {mesh.shape[meshes.MODEL]}; a '
      'drafter can also be whole on every device.'
    )


def divides(config: Any, mesh: _Mesh) -> bool:
  """Returns whether a model's attention heads can be divided on a mesh."""
  return _transformer(config).num_heads % mesh.shape[meshes.MODEL] == 0


def place(
  config: Any, params: base.Params, mesh: _Mesh, *, split: bool = True
) -> base.Params:
  """Returns a model's parameters, cut and laid on a mesh; as of `shard`."""
  names = checkpoint.flatten(params)
  lent = heads.shared(config) if _is_head(config) else ()
  laid = {
    name: meshes.put(
      leaf,
      of_parameter(
        config, name, leaf.shape, mesh, split or name.split('/')[0] in lent
      ),
    )
    for name, leaf in names.items()
  }
  return checkpoint.unflatten(laid, params, 'mesh')


def of_parameter(
  config: Any,
  name: str,
  shape: Sequence[int],
  mesh: _Mesh,
  split: bool = True,
) -> jax.sharding.NamedSharding:
  """Returns how a parameter is cut, as the first rule for its name says.

  One whose parts the mesh does not divide is on every device, such as those of
  fewer key heads than there are devices along 'model'. So is the head of a
  reduced vocabulary: it is small, and what is read off it is no longer cut.
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


def _is_head(config):
  return isinstance(config, head_config.HeadConfig)


def _transformer(config):
  return config.layer if _is_head(config) else config
