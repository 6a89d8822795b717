"""Models whose outputs are sharded over a mesh of devices.

They constrain how KV caches, hidden states and logits are sharded, and XLA
divides the whole decode loop accordingly: nothing else refers to devices.
"""

import dataclasses
import functools
from typing import Any
from typing import TypeVar

import jax
import numpy as np

from specjax import base
from specjax import components
from specjax import meshes
from specjax.models import wrappers

_P = jax.sharding.PartitionSpec
_Tree = TypeVar('_Tree')


@dataclasses.dataclass(frozen=True)
class Layout:
  """How the outputs of a model are sharded.

  The first axis of every array is rows. A batch of one row, such as a prompt
  that replaces a finished row, is replicated on every device.

  Attributes:
    mesh: from `meshes.make`.
    split_cache: whether keys and values are also sharded along heads.
    split_logits: whether logits are computed in parts, with a sharded matrix.
  """

  mesh: jax.sharding.Mesh
  split_cache: bool = True
  split_logits: bool = True

  def rows(self, tree: _Tree) -> _Tree:
    """Returns arrays that are sharded along rows."""
    return jax.tree.map(self._cut, tree)

  def cache(self, tree: _Tree) -> _Tree:
    """Returns arrays sharded along rows and, if `[B, H, S, D]`, along heads."""
    return jax.tree.map(
      lambda leaf: (
        self._cut(leaf, axis=1)
        if self.split_cache and leaf.ndim == 4
        else self._cut(leaf)
      ),
      tree,
    )

  def logits(self, logits: jax.Array) -> jax.Array:
    """Returns logits `[B, T, V]` that are sharded along rows only.

    Verification then needs no communication. They are computed in parts first:
    otherwise, XLA gathers the output head on every device.
    """
    if self.split_logits and self._divides(logits, axis=2):
      logits = self._cut(logits, axis=2)
    return self._cut(logits)

  def _cut(self, leaf: jax.Array, axis: int | None = None) -> jax.Array:
    """Shards an array along rows, and along an axis if the mesh divides it.

    Raises:
      ValueError: there are several rows, and the mesh does not divide them.
    """
    num_rows = self.mesh.shape[meshes.DATA]
    if leaf.shape[0] % num_rows and leaf.shape[0] != 1:
      raise ValueError(
        f'A batch must be one row or a multiple of {num_rows}, the size of '
        f'{meshes.DATA!r} in the mesh, got {leaf.shape[0]} rows.'
      )
    spec = [None if leaf.shape[0] == 1 else meshes.DATA]
    if axis is not None and self._divides(leaf, axis):
      spec += [None] * (axis - 1) + [meshes.MODEL]
    return jax.lax.with_sharding_constraint(
      leaf, jax.sharding.NamedSharding(self.mesh, _P(*spec))
    )

  def _divides(self, leaf: jax.Array, axis: int) -> bool:
    """Returns whether the mesh divides an axis of an array."""
    return leaf.shape[axis] % self.mesh.shape[meshes.MODEL] == 0


@components.component
class ShardedModel(wrappers.ModelWrapper):
  """A language model whose outputs are sharded over a mesh.

  Attributes:
    model: the model.
    layout: how its outputs are sharded.
  """

  layout: Layout = components.static()

  def init_cache(
    self, params: base.Params, batch: int, size: int
  ) -> base.Cache:
    """See `LanguageModel.init_cache`."""
    return self.layout.cache(self.model.init_cache(params, batch, size))

  def prefill(
    self,
    params: base.Params,
    cache: base.Cache,
    tokens: jax.Array,
    lengths: jax.Array,
  ) -> tuple[base.Cache, tuple[jax.Array, ...]]:
    """See `LanguageModel.prefill`."""
    cache, features = self.model.prefill(params, cache, tokens, lengths)
    return self.layout.cache(cache), self.layout.rows(features)

  def extend(
    self,
    params: base.Params,
    cache: base.Cache | None,
    tokens: jax.Array,
    *,
    pending_kv: base.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> base.ModelOutput:
    """See `LanguageModel.extend`."""
    output = self.model.extend(
      params,
      cache,
      tokens,
      pending_kv=pending_kv,
      positions=positions,
      mask=mask,
    )
    return base.ModelOutput(
      self.layout.logits(output.logits),
      self.layout.rows(output.features),
      self.layout.cache(output.pending_kv),
    )

  def commit(
    self,
    cache: base.Cache,
    pending_kv: base.PendingKV,
    path: jax.Array,
    num: jax.Array,
  ) -> base.Cache:
    """See `LanguageModel.commit`."""
    return self.layout.cache(self.model.commit(cache, pending_kv, path, num))

  def rollback(self, cache: base.Cache, lengths: jax.Array) -> base.Cache:
    """See `LanguageModel.rollback`."""
    return self.layout.cache(self.model.rollback(cache, lengths))

  def exit(self, num_layers: int) -> base.LanguageModel:
    """See `LanguageModel.exit`."""
    return ShardedModel(self.model.exit(num_layers), self.layout)


class _HeadWrapper:
  """Base class of sharded heads; takes its attributes from the head."""

  head: base.AnyHead

  @functools.cached_property
  def taps(self) -> tuple[int, ...]:
    """See `FeatureHead.taps`."""
    return self.head.taps

  @functools.cached_property
  def feature_size(self) -> int:
    """See `FeatureHead.feature_size`."""
    return self.head.feature_size

  @functools.cached_property
  def vocab_size(self) -> int:
    """`V`."""
    return self.head.vocab_size


class _CachedHeadWrapper(_HeadWrapper):
  """Base class of sharded heads with a KV cache."""

  head: base.FeatureHead | base.BlockHead
  layout: Layout

  @functools.cached_property
  def max_length(self) -> int | None:
    """See `FeatureHead.max_length`."""
    return self.head.max_length

  def init_cache(
    self, params: base.Params, batch: int, size: int
  ) -> base.Cache:
    """See `FeatureHead.init_cache`."""
    return self.layout.cache(self.head.init_cache(params, batch, size))

  def predict(self, params: base.Params, outputs: jax.Array) -> jax.Array:
    """See `FeatureHead.predict`."""
    return self.layout.logits(self.head.predict(params, outputs))

  def commit(
    self,
    cache: base.Cache,
    pending_kv: base.PendingKV,
    path: jax.Array,
    num: jax.Array,
  ) -> base.Cache:
    """See `FeatureHead.commit`."""
    return self.layout.cache(self.head.commit(cache, pending_kv, path, num))

  def rollback(self, cache: base.Cache, lengths: jax.Array) -> base.Cache:
    """See `FeatureHead.rollback`."""
    return self.layout.cache(self.head.rollback(cache, lengths))


@components.component
class ShardedFeatureHead(_CachedHeadWrapper, base.FeatureHead):
  """A `FeatureHead` whose outputs are sharded over a mesh.

  Attributes:
    head: the head.
    layout: how its outputs are sharded.
  """

  head: base.FeatureHead
  layout: Layout = components.static()

  def fuse(
    self, params: base.Params, features: tuple[jax.Array, ...]
  ) -> jax.Array:
    """See `FeatureHead.fuse`."""
    return self.layout.rows(self.head.fuse(params, features))

  def extend(
    self,
    params: base.Params,
    cache: base.Cache | None,
    tokens: jax.Array,
    inputs: jax.Array,
    *,
    pending_kv: base.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> tuple[jax.Array, base.PendingKV]:
    """See `FeatureHead.extend`."""
    outputs, pending_kv = self.head.extend(
      params,
      cache,
      tokens,
      inputs,
      pending_kv=pending_kv,
      positions=positions,
      mask=mask,
    )
    return self.layout.rows(outputs), self.layout.cache(pending_kv)

  def likeliest(
    self, params: base.Params, outputs: jax.Array, num: int
  ) -> tuple[jax.Array, jax.Array]:
    """See `FeatureHead.likeliest`."""
    return self.layout.rows(self.head.likeliest(params, outputs, num))


@components.component
class ShardedParallelHead(_HeadWrapper, base.ParallelHead):
  """A `ParallelHead` whose outputs are sharded over a mesh.

  Attributes:
    head: the heads.
    layout: how their outputs are sharded.
  """

  head: base.ParallelHead
  layout: Layout = components.static()

  @functools.cached_property
  def num_steps(self) -> int:
    """`K`."""
    return self.head.num_steps

  def predict(
    self, params: base.Params, features: tuple[jax.Array, ...]
  ) -> jax.Array:
    """See `ParallelHead.predict`."""
    return self.layout.rows(self.head.predict(params, features))

  def likeliest(
    self, params: base.Params, features: tuple[jax.Array, ...], num: int
  ) -> tuple[jax.Array, jax.Array]:
    """See `ParallelHead.likeliest`."""
    return self.layout.rows(self.head.likeliest(params, features, num))


@components.component
class ShardedBlockHead(_CachedHeadWrapper, base.BlockHead):
  """A `BlockHead` whose outputs are sharded over a mesh.

  Attributes:
    head: the head.
    layout: how its outputs are sharded.
  """

  head: base.BlockHead
  layout: Layout = components.static()

  @functools.cached_property
  def block_size(self) -> int:
    """See `BlockHead.block_size`."""
    return self.head.block_size

  @functools.cached_property
  def mask_token(self) -> int:
    """See `BlockHead.mask_token`."""
    return self.head.mask_token

  @functools.cached_property
  def first_output(self) -> int:
    """See `BlockHead.first_output`."""
    return self.head.first_output

  def encode(
    self,
    params: base.Params,
    features: tuple[jax.Array, ...],
    positions: jax.Array,
  ) -> base.PendingKV:
    """See `BlockHead.encode`."""
    return self.layout.cache(self.head.encode(params, features, positions))

  def extend(
    self,
    params: base.Params,
    cache: base.Cache | None,
    tokens: jax.Array,
    *,
    pending_kv: base.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> tuple[jax.Array, base.PendingKV]:
    """See `BlockHead.extend`."""
    outputs, pending_kv = self.head.extend(
      params,
      cache,
      tokens,
      pending_kv=pending_kv,
      positions=positions,
      mask=mask,
    )
    return self.layout.rows(outputs), self.layout.cache(pending_kv)

  def condition(
    self, params: base.Params, logits: jax.Array, tokens: jax.Array
  ) -> jax.Array:
    """See `BlockHead.condition`."""
    return self.layout.logits(self.head.condition(params, logits, tokens))


_SHARDED = (
  ShardedModel,
  ShardedFeatureHead,
  ShardedParallelHead,
  ShardedBlockHead,
)


def lay_out(model: Any, layout: Layout) -> Any:
  """Returns a model or a head whose outputs are sharded over a mesh.

  If the outputs are sharded already, the new layout replaces the old one, so
  that no output is constrained twice.

  Args:
    model: a language model or a head.
    layout: how its outputs are sharded.
  """
  if isinstance(model, _SHARDED):
    return dataclasses.replace(model, layout=layout)
  if isinstance(model, base.FeatureHead):
    return ShardedFeatureHead(model, layout)
  if isinstance(model, base.ParallelHead):
    return ShardedParallelHead(model, layout)
  if isinstance(model, base.BlockHead):
    return ShardedBlockHead(model, layout)
  return ShardedModel(model, layout)
