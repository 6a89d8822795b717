"""Models that wrap other models."""

import functools

import jax
import jax.numpy as jnp
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


@components.component
class ResizedVocabulary(ModelWrapper):
  """A model with a larger or smaller vocabulary than the wrapped model.

  Additional tokens have probability 0, and the wrapped model reads its last
  token in their place. The mass of removed tokens goes to the others.

  Attributes:
    model: the wrapped model.
    vocab_size: `V`.
  """

  vocab_size: int = components.static()

  def prefill(
    self,
    params: base.Params,
    cache: base.Cache,
    tokens: jax.Array,
    lengths: jax.Array,
  ) -> tuple[base.Cache, tuple[jax.Array, ...]]:
    """See `LanguageModel.prefill`."""
    return self.model.prefill(params, cache, self._known(tokens), lengths)

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
      self._known(tokens),
      pending_kv=pending_kv,
      positions=positions,
      mask=mask,
    )
    num_added = max(0, self.vocab_size - self.model.vocab_size)
    logits = jnp.pad(
      output.logits[..., : self.vocab_size],
      ((0, 0), (0, 0), (0, num_added)),
      constant_values=-jnp.inf,
    )
    return output._replace(logits=logits)

  def exit(self, num_layers: int) -> base.LanguageModel:
    """See `LanguageModel.exit`."""
    return ResizedVocabulary(self.model.exit(num_layers), self.vocab_size)

  def _known(self, tokens: jax.Array) -> jax.Array:
    """Returns the tokens that the wrapped model reads."""
    return jnp.minimum(tokens, self.model.vocab_size - 1)


def resize_vocabulary(
  model: base.LanguageModel, vocab_size: int
) -> base.LanguageModel:
  """Returns the model, or a `ResizedVocabulary` if the sizes differ.

  Models that share a tokenizer may pad their vocabularies to different sizes.

  Args:
    model: a model with the same tokens, except for padding.
    vocab_size: `V` of the result.
  """
  if vocab_size == model.vocab_size:
    return model
  return ResizedVocabulary(model, vocab_size)
