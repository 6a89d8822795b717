"""Grouped-query attention with rotary embeddings, over a KV cache.

The KV cache is an argument; the keys and values of new tokens are returned.
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

# Up to this many queries per key head, programs for CPUs multiply with the keys
# as the left factor.
_FEW_QUERIES = 32


class Part(NamedTuple):
  """A part of the keys that queries attend to, and its values.

  Attributes:
    keys: `[B, H, S, D]`.
    values: `[B, H, S, D]`.
    mask: `[B, T, S]`, true where a query attends to a key.
    bias: `[B or 1, H, T, S]`, added to the query-key products, or None. It
      requires as many key heads as query heads.
    window: See `KVCache.window`; None reads all keys.
  """

  keys: jax.Array
  values: jax.Array
  mask: jax.Array
  bias: jax.Array | None = None
  window: jax.Array | None = None

  def first(self, num: int) -> 'Part':
    """Returns the first `num` keys."""
    return Part(
      self.keys[:, :, :num],
      self.values[:, :, :num],
      self.mask[..., :num],
      None if self.bias is None else self.bias[..., :num],
    )


def rotary_frequencies(config: Config, local: bool = False) -> jax.Array:
  """Returns `[rotary_dim / 2]` radians per position.

  Args:
    config: the architecture.
    local: whether they are for local layers.
  """
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
  """The rotation of queries and keys, computed once for all layers.

  Attributes:
    cos: `[B, T, 1, R]`, cosines of the angles of `R` pairs of entries.
    sin: `[B, T, 1, R]`, sines of the same angles.
  """

  cos: jax.Array
  sin: jax.Array


def rotation(
  config: Config, positions: jax.Array, local: bool = False
) -> Rotation:
  """Returns the rotation for some positions.

  Args:
    config: the architecture.
    positions: `[B, T]`.
    local: whether it is for local layers.
  """
  frequencies = rotary_frequencies(config, local)[None, None]
  angles = positions[..., None].astype(jnp.float32) * frequencies
  return Rotation(jnp.cos(angles)[:, :, None], jnp.sin(angles)[:, :, None])


def rotations(config: Config, positions: jax.Array) -> dict[bool, Rotation]:
  """Returns the rotations of global layers (False) and local layers (True)."""
  return {local: rotation(config, positions, local) for local in (False, True)}


def rotate(x: jax.Array, rotation: Rotation) -> jax.Array:
  """Returns `x` `[B, T, H, D]` with its first `2 * R` entries rotated in pairs.

  The entries of a pair are `R` apart.
  """
  cos, sin = rotation.cos.astype(x.dtype), rotation.sin.astype(x.dtype)
  half = cos.shape[-1]
  first, second = x[..., :half], x[..., half : 2 * half]
  unrotated = x[..., 2 * half :]
  return jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin, unrotated], axis=-1
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
    """Initializes the projections.

    Args:
      config: the architecture.
      dtype: type of the computations.
      rngs: source of the initial values.
      input_size: width of the input; `config.d_model` by default.
    """
    self.config = config
    width = input_size or config.d_model
    linear = functools.partial(
      layers.linear,
      dtype=dtype,
      rngs=rngs,
      kernel_init=nnx.initializers.normal(0.02),
    )
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    # The initial products have the same size for any `product_scale`.
    query_std = 0.02 * config.head_dim**-0.5 / config.product_scale
    self.query = linear(
      width,
      queries,
      use_bias=config.qkv_bias,
      kernel_init=nnx.initializers.normal(query_std),
    )
    self.key = linear(width, keys, use_bias=config.qkv_bias)
    self.value = linear(width, keys, use_bias=config.qkv_bias)
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
      rotation: rotation of the `T` tokens, or None.
      prefix: keys and values in the KV cache, or None.
      pending: `(k, v)` of the pending tokens, each `[B, H, M, D]`, or None.
      mask: `[B, T, M + T]`, true where a token attends to a pending or a new
        one.
      bias: bias of the products with pending and new keys; see `Part`.

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
    suffix = Part(key, value, mask, bias)
    parts = [suffix] if prefix is None else [prefix, suffix]
    return self._attend(query, parts), new

  def keys_and_values(
    self, x: jax.Array, rotation: Rotation | None
  ) -> kv_cache.KeysAndValues:
    """Returns `(k, v)` of `x` `[B, T, d_model]`, each `[B, H, T, D]`."""
    if hasattr(self, 'query_key_value'):
      return self._split(self.query_key_value(x), rotation)[1]
    key = self._rotated(self.key(x), self.key_norm, rotation)
    value = self._heads(_untouched(self.value(x)))
    return key.swapaxes(1, 2), value.swapaxes(1, 2)

  def attend(
    self, x: jax.Array, rotation: Rotation | None, parts: Sequence[Part]
  ) -> jax.Array:
    """Attends from `x` `[B, T, d_model]` to any keys.

    Args:
      x: input of the layer.
      rotation: rotation of the `T` tokens, or None.
      parts: keys and values; only the first part may have a window.

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
      rotation: rotation of the `T` tokens, or None.
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
    # Queries that share a key head are adjacent, for one matrix product.
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

  def _heads(self, y: jax.Array) -> jax.Array:
    """Returns the heads `[B, T, H, D]` of a projection `[B, T, H * D]`."""
    return y.reshape(*y.shape[:2], -1, self.config.head_dim)

  def _rotated(
    self, y: jax.Array, norm: layers.Norm | None, rotation: Rotation | None
  ) -> jax.Array:
    """Returns the normalized and rotated heads `[B, T, H, D]`."""
    if norm is None and rotation is None:
      return self._heads(_untouched(y))
    heads = self._heads(y)
    heads = heads if norm is None else norm(heads)
    return heads if rotation is None else rotate(heads, rotation)


def _untouched(y: jax.Array) -> jax.Array:
  """Returns a product of which only the shape will change.

  Without the barrier, XLA transposes the kernel, so that the product comes out
  in the order of the heads, and keeps the transposed copy throughout the decode
  loop; or it transposes the KV cache.
  """
  return jax.lax.optimization_barrier(y)


def _row_major(values: jax.Array) -> jax.Array:
  """Returns cached values in the layout of the cache.

  With fused projections, XLA for GPUs would otherwise transpose the values of
  the whole cache before the loop.
  """
  axes = tuple(range(values.ndim))
  return layout.with_layout_constraint(values, layout.Layout(axes))


def _attend_within(
  groups: int, cap: float | None, query: jax.Array, parts: Sequence[Part]
) -> jax.Array:
  """Returns the result of `_attend` within the window of the first part."""
  branches = [
    lambda query, parts, width=width: _attend(
      groups, cap, query, [parts[0].first(width), *parts[1:]]
    )
    for width in kv_cache.windows_of_layers(parts[0].keys.shape[2])
  ]
  return jax.lax.switch(parts[0].window, branches, query, parts)


def _attend(
  groups: int, cap: float | None, query: jax.Array, parts: Sequence[Part]
) -> jax.Array:
  """Attends with one softmax over several parts, never concatenated in memory.

  Args:
    groups: number of queries per key head, `G`.
    cap: soft cap of the query-key products, or None.
    query: `[B, H, T * G, D]`, scaled.
    parts: keys and values.

  Returns:
    `[B, H, T * G, D]`.
  """
  # Each part has a copy of the query: XLA for GPUs joins products that share
  # one operand, and copies the KV cache to do so.
  copies = [jax.lax.optimization_barrier(query) for _ in parts[1:]]

  def score(query: jax.Array, part: Part) -> jax.Array:
    products = layers.softcap(_query_key_products(query, part.keys), cap)
    products = products if part.bias is None else products + part.bias
    mask = jnp.repeat(part.mask, groups, axis=1)[:, None]
    return jnp.where(mask, products, -jnp.inf)

  scores = list(map(score, [query, *copies], parts))
  # Padding attends to nothing; the finite maximum prevents NaN.
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


def _query_key_products(query: jax.Array, keys: jax.Array) -> jax.Array:
  """Returns the products `[B, H, N, S]` of queries and keys.

  Args:
    query: `[B, H, N, D]`.
    keys: `[B, H, S, D]`.
  """
  if query.shape[2] > _FEW_QUERIES:
    return _queries_first(query, keys)
  # The choice depends on the platform that the program is compiled for.
  return jax.lax.platform_dependent(
    query, keys, cpu=_keys_first, default=_queries_first
  )


def _queries_first(query: jax.Array, keys: jax.Array) -> jax.Array:
  """Returns `_query_key_products`, with the queries as the left factor."""
  return layers.product('bknd,bksd->bkns', query, keys)


def _keys_first(query: jax.Array, keys: jax.Array) -> jax.Array:
  """Returns `_query_key_products`, with the keys as the left factor.

  XLA for CPUs then takes half the time for a few queries. The barrier keeps it
  from exchanging the factors.
  """
  products = layers.product('bksd,bknd->bksn', keys, query)
  return jax.lax.optimization_barrier(products).swapaxes(2, 3)
