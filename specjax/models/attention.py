"""Grouped-query attention with rotary embeddings, over what a cache holds.

The cache is an argument; the keys and values of the tokens just read are a
result.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

from flax import nnx
import jax
from jax.experimental import layout
import jax.numpy as jnp

from specjax.models import config as config_lib
from specjax.models import kv_cache
from specjax.models import layers

Config = config_lib.TransformerConfig


class Part(NamedTuple):
  """Keys that are attended to, and their values."""

  keys: jax.Array  # [B, H, S, D]
  values: jax.Array  # [B, H, S, D]
  mask: jax.Array  # [B, T, S] true where attended
  # [B or 1, H, T, S] added to the products, or None. Only as many key heads as
  # query heads can have it.
  bias: jax.Array | None = None
  window: jax.Array | None = None  # as `KVCache.window`

  def first(self, num: int) -> 'Part':
    """Returns the first keys."""
    return Part(
      self.keys[:, :, :num],
      self.values[:, :, :num],
      self.mask[..., :num],
      None if self.bias is None else self.bias[..., :num],
    )


def rotary_frequencies(config: Config, local: bool = False) -> jax.Array:
  """Returns `[rotary_dim / 2]` radians per position, of one kind of layers."""
  dim = config.rotary_dim
  exponents = jnp.arange(0, dim, 2, dtype=jnp.float32) / dim
  if local and config.local_rope_theta is not None:
    return config.local_rope_theta**-exponents
  frequencies = config.rope_theta**-exponents
  scaling = config.rope_scaling
  if scaling is None:
    return frequencies
  if scaling.kind == 'linear':
    return frequencies / scaling.factor
  if scaling.kind == 'factors':
    return frequencies / (scaling.factor * jnp.asarray(scaling.factors))
  wavelengths = 2 * jnp.pi / frequencies
  low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
  kept = (scaling.original_context / wavelengths - low) / (high - low)
  kept = jnp.clip(kept, 0.0, 1.0)
  return frequencies * (kept + (1 - kept) / scaling.factor)


class Rotation(NamedTuple):
  """By what queries and keys are turned: computed once for all layers.

  Attributes:
    cos: `[B, T, 1, R]`, of each pair of entries.
    sin: likewise.
  """

  cos: jax.Array
  sin: jax.Array


def rotation(
  config: Config, positions: jax.Array, local: bool = False
) -> Rotation:
  """Returns the rotation of positions `[B, T]`, for one kind of layers."""
  frequencies = rotary_frequencies(config, local)[None, None]
  angles = positions[..., None].astype(jnp.float32) * frequencies
  return Rotation(jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None])


def rotate(x: jax.Array, rotation: Rotation) -> jax.Array:
  """Rotates the first `2 * R` entries of `x` `[B, T, H, D]`, in pairs.

  The entries of a pair are `R` apart.
  """
  cos, sin = (each.astype(x.dtype) for each in rotation)
  half = cos.shape[-1]
  first, second, rest = (
    x[..., :half],
    x[..., half : 2 * half],
    x[..., 2 * half :],
  )
  return jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin, rest], axis=-1
  )


class Attention(nnx.Module):
  """Grouped-query attention over the committed prefix and pending tokens."""

  def __init__(
    self,
    config: Config,
    dtype: jax.typing.DTypeLike,
    rngs: nnx.Rngs,
    input_size: int | None = None,
  ):
    """Initialises the projections.

    Args:
      config: the architecture.
      dtype: type of the computations.
      rngs: source of the initial values.
      input_size: width of what is read; that of the model by default.
    """
    self.config = config
    read = input_size or config.d_model
    linear = functools.partial(
      layers.linear,
      dtype=dtype,
      rngs=rngs,
      kernel_init=nnx.initializers.normal(0.02),
    )
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    # The first products are of one size, whatever they are multiplied by.
    query_std = 0.02 * config.head_dim**-0.5 / config.product_scale
    self.query = linear(
      read,
      queries,
      use_bias=config.qkv_bias,
      kernel_init=nnx.initializers.normal(query_std),
    )
    self.key = linear(read, keys, use_bias=config.qkv_bias)
    self.value = linear(read, keys, use_bias=config.qkv_bias)
    norm = lambda: (
      layers.Norm(config, config.head_dim) if config.qk_norm else None
    )
    self.query_norm, self.key_norm = norm(), norm()
    self.out = linear(
      queries,
      config.d_model,
      use_bias=config.out_bias,
      kernel_init=nnx.initializers.normal(
        0.02 / (2 * config.num_layers) ** 0.5
      ),
    )

  def __call__(
    self,
    x: jax.Array,
    rotation: Rotation | None,
    prefix: Part | None,
    pending: kv_cache.KeysAndValues | None,
    mask: jax.Array,
    bias: jax.Array | None = None,
  ) -> tuple[jax.Array, kv_cache.KeysAndValues]:
    """Attends from `x` `[B, T, d_model]` to the past and to itself.

    Args:
      x: input of the layer.
      rotation: of the `T` tokens, or None.
      prefix: what the layer sees of the cache, or None.
      pending: `(k, v)` of the pending tokens, each `[B, H, M, D]`, or None.
      mask: `[B, T, M + T]`, true where a pending or a new token is attended to.
      bias: what is added to the products with these, as in `Part`.

    Returns:
      `[B, T, d_model]`, and `(k, v)` of the `T` tokens.
    """
    if hasattr(self, 'query_key_value'):
      fused = self.query_key_value(x)
      query, new = self._split(fused, rotation)
      if prefix is not None:
        prefix = prefix._replace(values=_row_major(prefix.values))
    else:
      query = self._rotated(self.query(x), self.query_norm, rotation)
      new = self.keys_and_values(x, rotation)
    key, value = new
    if pending is not None:
      key = jnp.concatenate([pending[0], key], axis=2)
      value = jnp.concatenate([pending[1], value], axis=2)
    own = Part(key, value, mask, bias)
    parts = [own] if prefix is None else [prefix, own]
    return self._attend(query, parts), new

  def keys_and_values(
    self, x: jax.Array, rotation: Rotation | None
  ) -> kv_cache.KeysAndValues:
    """Returns `(k, v)` of `x` `[B, T, d_model]`, each `[B, H, T, D]`."""
    key = self._rotated(self.key(x), self.key_norm, rotation)
    value = self._heads(_untouched(self.value(x)))
    return key.swapaxes(1, 2), value.swapaxes(1, 2)

  def attend(
    self, x: jax.Array, rotation: Rotation | None, parts: Sequence[Part]
  ) -> jax.Array:
    """Attends from `x` `[B, T, d_model]` to any keys.

    Args:
      x: input of the layer.
      rotation: of the `T` tokens, or None.
      parts: sets of keys; only the first may have a window.

    Returns:
      `[B, T, d_model]`.
    """
    query = self._rotated(self.query(x), self.query_norm, rotation)
    return self._attend(query, parts)

  def _split(
    self, fused: jax.Array, rotation: Rotation | None
  ) -> tuple[jax.Array, kv_cache.KeysAndValues]:
    """Returns queries `[B, T, H, D]`, and `(k, v)` as `keys_and_values` does.

    Queries and keys are rotated together, which is one kernel fewer on GPUs.

    Args:
      fused: `[B, T, C]`, the product of all three; see `fusion`.
      rotation: of the `T` tokens, or None.
    """
    batch, num_tokens, _ = fused.shape
    grouped = batch, num_tokens, self.config.num_kv_heads, -1
    heads = fused.reshape(*grouped, self.config.head_dim)
    rotated, value = heads[..., :-1, :], _untouched(heads[..., -1, :])
    if self.query_norm is not None and self.key_norm is not None:
      query = self.query_norm(rotated[..., :-1, :])
      key = self.key_norm(rotated[..., -1:, :])
      rotated = jnp.concatenate([query, key], axis=-2)
    rotated = self._rotated(
      rotated.reshape(batch, num_tokens, -1), None, rotation
    ).reshape(*grouped, self.config.head_dim)
    query = rotated[..., :-1, :].reshape(
      batch, num_tokens, -1, self.config.head_dim
    )
    return query, (rotated[..., -1, :].swapaxes(1, 2), value.swapaxes(1, 2))

  def _attend(self, query: jax.Array, parts: Sequence[Part]) -> jax.Array:
    """Attends from queries `[B, T, H, D]`; see `attend`."""
    config = self.config
    batch, num_tokens, num_heads, _ = query.shape
    groups = num_heads // config.num_kv_heads
    # The queries that share a key head stand together: one matrix product.
    query = (query * config.product_scale).reshape(
      batch, num_tokens, -1, groups, config.head_dim
    )
    query = query.swapaxes(1, 2).reshape(
      batch, config.num_kv_heads, num_tokens * groups, config.head_dim
    )
    attend = _attend if parts[0].window is None else _attend_within
    mixed = attend(groups, config.attention_softcap, query, parts)
    mixed = mixed.reshape(
      batch, config.num_kv_heads, num_tokens, groups, config.head_dim
    ).swapaxes(1, 2)
    return self.out(mixed.reshape(batch, num_tokens, -1))

  def _heads(self, y):
    """Heads of a product, `[B, T, H, D]`."""
    return y.reshape(*y.shape[:2], -1, self.config.head_dim)

  def _rotated(self, y, norm, rotation):
    """Heads as products take them, `[B, T, H, D]`."""
    if norm is None and rotation is None:
      return self._heads(_untouched(y))
    heads = self._heads(y)
    heads = heads if norm is None else norm(heads)
    return heads if rotation is None else rotate(heads, rotation)


def _untouched(y):
  """A product that nothing but a reshape follows.

  Without the barrier, XLA turns its kernel around, so that heads come out in
  their places, and keeps a copy of it beside the loop, or turns the cache.
  """
  return jax.lax.optimization_barrier(y)


def _row_major(values: jax.Array) -> jax.Array:
  """Returns cached values in the layout of the cache.

  With fused projections, XLA for GPUs would otherwise transpose the values of
  the whole cache before the loop.
  """
  axes = tuple(range(values.ndim))
  return layout.with_layout_constraint(values, layout.Layout(axes))


def _attend_within(groups, cap, query, parts):
  """As `_attend`, over the first keys of the first set: those of its window."""
  branches = [
    lambda query, parts, width=width: _attend(
      groups, cap, query, [parts[0].first(width), *parts[1:]]
    )
    for width in kv_cache.windows_of_layers(parts[0].keys.shape[2])
  ]
  return jax.lax.switch(parts[0].window, branches, query, parts)


def _attend(groups, cap, query, parts):
  """One softmax over several sets of keys, never joined in memory."""
  # Each set has a query of its own: products that share one side are joined by
  # XLA for GPUs, which copies the cache for it.
  own = [jax.lax.optimization_barrier(query) for _ in parts[1:]]

  def score(query, part):
    products = layers.softcap(
      layers.product('bknd,bksd->bkns', query, part.keys), cap
    )
    products = products if part.bias is None else products + part.bias
    mask = jnp.repeat(part.mask, groups, axis=1)[:, None]
    return jnp.where(mask, products, -jnp.inf)

  scores = list(map(score, [query, *own], parts))
  # A row of padding sees nothing; its finite maximum keeps it from NaN.
  top = jnp.maximum(
    functools.reduce(jnp.maximum, [s.max(-1, keepdims=True) for s in scores]),
    -1e30,
  )
  weights = [jnp.exp(s - jax.lax.stop_gradient(top)) for s in scores]
  total = jnp.maximum(sum(w.sum(-1, keepdims=True) for w in weights), 1e-30)
  mixed = sum(
    layers.product(
      'bkns,bksd->bknd', weight.astype(part.values.dtype), part.values
    )
    for weight, part in zip(weights, parts, strict=True)
  )
  return (mixed / total).astype(query.dtype)
