"""Models over many devices: which axis of which array is cut.

Models say how their parameters, caches and outputs lie on a mesh, and XLA cuts
the loop accordingly: nothing else knows of devices.
"""

from collections.abc import Sequence
import functools
import re
from typing import Any
from typing import NamedTuple
from typing import TypeVar

import jax

from specjax import base
from specjax import meshes
from specjax import registry
from specjax.models import checkpoint
from specjax.models import head_config
from specjax.models import heads

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
    ('(key|value)/(kernel|bias)', -1, 'num_kv_heads'),
    ('out/kernel', 0, 'num_heads'),
    ('(up|gate)/(kernel|bias)', -1, ''),
    ('down/kernel', 0, ''),
    ('head/(kernel|bias)', -1, ''),
    ('^embedding/embedding', 0, ''),
  )
)


def shard(model: _Model, mesh: _Mesh, *, split: bool = True) -> _Model:
  """Returns a model that lies on a mesh.

  Args:
    model: anything with a config, functions and parameters: of
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
  functions = lay_out(
    given.functions, mesh, split=split, parts=_makes_parts(params)
  )
  return given._replace(functions=functions, params=params)


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


# Functions.

# Outputs of which the first axis is cut, which is of rows; and those of which
# the heads of keys and values `[B, H, S, D]` are cut, too. Logits are whole in
# the end, but computed in parts: else, XLA gathers the table that makes them.
_ROWS, _CACHE, _LOGITS = 'rows', 'cache', 'logits'
# Of a layout and a number of axes, the axis along which parts stand.
_CUT = {(_CACHE, 4): 1, (_LOGITS, 3): 2}
# By the names of functions: all of the output, or each of its parts.
_LAYOUTS: dict[type, dict[str, str | tuple[str, ...]]] = {
  base.LanguageModel: {
    'init_cache': _CACHE,
    'prefill': (_CACHE, _ROWS),
    'extend': (_LOGITS, _ROWS, _CACHE),
    'commit': _CACHE,
    'rollback': _CACHE,
  },
  base.FeatureHead: {
    'init_cache': _CACHE,
    'fuse': _ROWS,
    'extend': (_ROWS, _CACHE),
    'predict': _LOGITS,
    'likeliest': _ROWS,
    'commit': _CACHE,
    'rollback': _CACHE,
  },
  base.ParallelHead: {'predict': _ROWS, 'likeliest': _ROWS},
}


@registry.component
def lay_out(
  functions: Any, mesh: _Mesh, *, split: bool = True, parts: bool = True
) -> Any:
  """Returns a model's functions, whose outputs lie on a mesh.

  Logits are whole on each device of a row: verification needs nothing else of
  other devices.

  Args:
    functions: of a language model or a head.
    mesh: from `meshes.make`.
    split: whether caches are cut along heads, too.
    parts: whether logits are computed in parts, as by a matrix that is cut.
  """
  laid = {
    name: _laid_out(getattr(functions, name), layout, mesh, split, parts)
    for name, layout in _LAYOUTS[type(functions)].items()
  }
  leave = getattr(functions, 'exit', None)
  if leave is not None:
    laid['exit'] = lambda num_layers: lay_out(
      leave(num_layers), mesh, split=split, parts=parts
    )
  return functions._replace(**laid)


def _laid_out(function, layout, mesh, split, in_parts):
  """One function, whose output lies as a layout says."""
  is_cut = {_ROWS: False, _CACHE: split, _LOGITS: in_parts}
  cut = lambda tree, layout: _cut(tree, layout, mesh, is_cut[layout])

  @functools.wraps(function)
  def laid_out(*args, **options):
    output = function(*args, **options)
    if isinstance(layout, str):
      return cut(output, layout)
    parts = (cut(part, each) for part, each in zip(output, layout, strict=True))
    return type(output)(*parts) if hasattr(output, '_fields') else tuple(parts)

  return laid_out


def _cut(tree, layout, mesh, split):
  """Says how arrays with an axis of rows in front are cut, but a lone row."""
  num_rows, num_parts = mesh.shape[meshes.DATA], mesh.shape[meshes.MODEL]
  lie = lambda leaf, spec: jax.lax.with_sharding_constraint(
    leaf, jax.sharding.NamedSharding(mesh, spec)
  )

  def cut(leaf):
    is_lone = leaf.shape[0] == 1  # A prompt that is read for a row of a batch.
    if leaf.shape[0] % num_rows and not is_lone:
      raise ValueError(
        f'A batch must be one row or a multiple of {num_rows}, the size of '
        f'{meshes.DATA!r} in the mesh, got {leaf.shape[0]} rows.'
      )
    rows = _P(None if is_lone else meshes.DATA)
    axis = _CUT.get((layout, leaf.ndim))
    if not split or axis is None or leaf.shape[axis] % num_parts:
      return lie(leaf, rows)
    leaf = lie(leaf, _P(*rows, *[None] * (axis - 1), meshes.MODEL))
    return leaf if layout == _CACHE else lie(leaf, rows)

  return jax.tree.map(cut, tree)


def _is_head(config):
  return isinstance(config, head_config.HeadConfig)


def _transformer(config):
  return config.layer if _is_head(config) else config
