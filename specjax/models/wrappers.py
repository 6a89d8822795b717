"""Models that wrap other models."""

import functools

import jax
import numpy as np

from specjax import base
from specjax import components


@components.component
class ModelWrapper(base.LanguageModel):
  """A model that passes every call to another model.

  Subclasses override the methods whose results they change.

  Attributes:
    model: the wrapped model, which takes the same parameters.
  """

  model: base.LanguageModel

  @functools.cached_property
  def vocab_size(self) -> int:
    """`V`."""
    return self.model.vocab_size

  @functools.cached_property
  def feature_sizes(self) -> tuple[int, ...]:
    """`F` of each of `ModelOutput.features`."""
    return self.model.feature_sizes

  @functools.cached_property
  def start_id(self) -> int | None:
    """See `LanguageModel.start_id`."""
    return self.model.start_id

  @functools.cached_property
  def max_length(self) -> int | None:
    """See `LanguageModel.max_length`."""
    return self.model.max_length

  @functools.cached_property
  def mask_token(self) -> int | None:
    """See `LanguageModel.mask_token`."""
    return self.model.mask_token

  def init_cache(
    self, params: base.Params, batch: int, size: int
  ) -> base.Cache:
    """See `LanguageModel.init_cache`."""
    return self.model.init_cache(params, batch, size)

  def prefill(
    self,
    params: base.Params,
    cache: base.Cache,
    tokens: jax.Array,
    lengths: jax.Array,
  ) -> tuple[base.Cache, tuple[jax.Array, ...]]:
    """See `LanguageModel.prefill`."""
    return self.model.prefill(params, cache, tokens, lengths)

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
    return self.model.extend(
      params,
      cache,
      tokens,
      pending_kv=pending_kv,
      positions=positions,
      mask=mask,
    )

  def commit(
    self,
    cache: base.Cache,
    pending_kv: base.PendingKV,
    path: jax.Array,
    num: jax.Array,
  ) -> base.Cache:
    """See `LanguageModel.commit`."""
    return self.model.commit(cache, pending_kv, path, num)

  def rollback(self, cache: base.Cache, lengths: jax.Array) -> base.Cache:
    """See `LanguageModel.rollback`."""
    return self.model.rollback(cache, lengths)

  def exit(self, num_layers: int) -> base.LanguageModel:
    """See `LanguageModel.exit`."""
    return self.model.exit(num_layers)
