"""A decoder-only transformer in Flax NNX that covers the common families.

Llama, Mistral, Qwen, Gemma, Phi-3 and GPT-NeoX are settings of one
`TransformerConfig`. The modules hold parameters only, no state: the cache is an
argument, and the keys and values of the tokens just read are a result.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
from typing import NamedTuple

from flax import nnx
import jax
import jax.numpy as jnp

from specjax.models import config as config_lib
from specjax.models import kv_cache

Config = config_lib.TransformerConfig


class Part(NamedTuple):
  """Keys that are attended to, and their values."""

  keys: jax.Array  # [B, H, S, D]
  values: jax.Array  # [B, H, S, D]
  mask: jax.Array  # [B, T, S] true where attended
  # [B or 1, H, T, S] added to the products, or None. Only as many key heads as
  # query heads can have it.
  bias: jax.Array | None = None
  window: jax.Array | None = None  # as `KVCache.window`; None reads all

  def first(self, num: int) -> 'Part':
    """Returns the first keys."""
    return Part(
      self.keys[:, :, :num],
      self.values[:, :, :num],
      self.mask[..., :num],
      None if self.bias is None else self.bias[..., :num],
    )


_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
  'silu': jax.nn.silu,
  'gelu': functools.partial(jax.nn.gelu, approximate=False),
  'gelu_tanh': functools.partial(jax.nn.gelu, approximate=True),
}


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
  wavelengths = 2 * jnp.pi / frequencies
  low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
  kept = (scaling.original_context / wavelengths - low) / (high - low)
  kept = jnp.clip(kept, 0.0, 1.0)
  return frequencies * (kept + (1 - kept) / scaling.factor)


def rotate(x: jax.Array, angles: jax.Array) -> jax.Array:
  """Rotates the first `2 * R` entries of `x` `[B, T, H, D]` by `[B, T, R]`."""
  half = angles.shape[-1]
  cos = jnp.cos(angles)[:, :, None].astype(x.dtype)
  sin = jnp.sin(angles)[:, :, None].astype(x.dtype)
  first, second, rest = (
    x[..., :half],
    x[..., half : 2 * half],
    x[..., 2 * half :],
  )
  return jnp.concatenate(
    [first * cos - second * sin, second * cos + first * sin, rest], axis=-1
  )


def softcap(x: jax.Array, cap: float | None) -> jax.Array:
  """Returns `cap * tanh(x / cap)`, or `x` where there is no cap."""
  return x if cap is None else cap * jnp.tanh(x / cap)


# Summed in float32, whatever the type of the factors. XLA then makes no float32
# copy of bfloat16 weights on a CPU.
_product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)


def _dot_general(x, kernel, dimensions, precision=None, out_sharding=None):
  """`lax.dot_general`, as `_product` computes it."""
  y = jax.lax.dot_general(
    x,
    kernel,
    dimensions,
    precision,
    jnp.float32,
    out_sharding=out_sharding,
  )
  return y.astype(x.dtype)


_linear = functools.partial(nnx.Linear, dot_general=_dot_general)


class Norm(nnx.Module):
  """RMSNorm or LayerNorm, computed in float32."""

  def __init__(self, config: Config, size: int):
    self.config = config
    start = 0.0 if config.norm_unit_offset else 1.0
    self.scale = nnx.Param(jnp.full(size, start))
    if config.norm == 'layer':
      self.bias = nnx.Param(jnp.zeros(size))

  def __call__(self, x: jax.Array) -> jax.Array:
    config = self.config
    y = x.astype(jnp.float32)
    if config.norm == 'layer':
      y = y - y.mean(axis=-1, keepdims=True)
    y *= jax.lax.rsqrt(
      jnp.square(y).mean(-1, keepdims=True) + config.norm_epsilon
    )
    every = (None,) * (x.ndim - 1)
    scale = self.scale[every].astype(jnp.float32)
    y *= scale + float(config.norm_unit_offset)
    if config.norm == 'layer':
      y += self.bias[every].astype(jnp.float32)
    return y.astype(x.dtype)


class Attention(nnx.Module):
  """Grouped-query attention over the committed prefix and pending tokens."""

  def __init__(
    self, config: Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
  ):
    self.config = config
    linear = functools.partial(
      _linear,
      dtype=dtype,
      rngs=rngs,
      kernel_init=nnx.initializers.normal(0.02),
    )
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    # The first products are of one size, whatever they are multiplied by.
    query_std = 0.02 * config.head_dim**-0.5 / config.product_scale
    self.query = linear(
      config.d_model,
      queries,
      use_bias=config.qkv_bias,
      kernel_init=nnx.initializers.normal(query_std),
    )
    self.key = linear(config.d_model, keys, use_bias=config.qkv_bias)
    self.value = linear(config.d_model, keys, use_bias=config.qkv_bias)
    norm = lambda: Norm(config, config.head_dim) if config.qk_norm else None
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
    angles: jax.Array | None,
    prefix: Part | None,
    pending: kv_cache.KeysAndValues | None,
    mask: jax.Array,
    bias: jax.Array | None = None,
  ) -> tuple[jax.Array, kv_cache.KeysAndValues]:
    """Attends from `x` `[B, T, d_model]` to the past and to itself.

    Args:
      x: input of the layer.
      angles: `[B, T, R]` rotary angles of the `T` tokens, or None.
      prefix: what the layer sees of the cache, or None.
      pending: `(k, v)` of the pending tokens, each `[B, H, M, D]`, or None.
      mask: `[B, T, M + T]`, true where a pending or a new token is attended to.
      bias: what is added to the products with these, as in `Part`.

    Returns:
      `[B, T, d_model]`, and `(k, v)` of the `T` tokens.
    """
    new = key, value = self.keys_and_values(x, angles)
    if pending is not None:
      key = jnp.concatenate([pending[0], key], axis=2)
      value = jnp.concatenate([pending[1], value], axis=2)
    own = Part(key, value, mask, bias)
    parts = [own] if prefix is None else [prefix, own]
    return self.attend(x, angles, parts), new

  def keys_and_values(
    self, x: jax.Array, angles: jax.Array | None
  ) -> kv_cache.KeysAndValues:
    """Returns `(k, v)` of `x` `[B, T, d_model]`, each `[B, H, T, D]`."""
    key = self._rotated(self.key(x), self.key_norm, angles)
    return key.swapaxes(1, 2), self._heads(self.value(x)).swapaxes(1, 2)

  def attend(
    self, x: jax.Array, angles: jax.Array | None, parts: Sequence[Part]
  ) -> jax.Array:
    """Attends from `x` `[B, T, d_model]` to any keys.

    Args:
      x: input of the layer.
      angles: `[B, T, R]` rotary angles of the `T` tokens, or None.
      parts: sets of keys; only the first may have a window.

    Returns:
      `[B, T, d_model]`.
    """
    config = self.config
    query = self._rotated(self.query(x), self.query_norm, angles)
    batch, num_tokens, num_heads, _ = query.shape
    groups = num_heads // config.num_kv_heads
    # The queries that share a key head stand together: one matrix product.
    query = (query * config.product_scale).reshape(
      batch, num_tokens, -1, groups, config.head_dim
    )
    query = query.swapaxes(1, 2).reshape(
      batch, config.num_kv_heads, num_tokens * groups, config.head_dim
    )
    widths = [parts[0].keys.shape[2]]
    if parts[0].window is not None:
      widths = kv_cache.windows(*widths)
    branches = [
      functools.partial(_attend, groups, config.attention_softcap, width)
      for width in widths
    ]
    # A branch for each window: what lies behind it is not even read.
    mixed = (
      branches[0](query, parts)
      if len(branches) == 1
      else jax.lax.switch(parts[0].window, branches, query, parts)
    )
    mixed = mixed.reshape(
      batch, config.num_kv_heads, num_tokens, groups, config.head_dim
    ).swapaxes(1, 2)
    return self.out(mixed.reshape(batch, num_tokens, -1))

  def _heads(self, y):
    return y.reshape(*y.shape[:2], -1, self.config.head_dim)

  def _rotated(self, y, norm, angles):
    """Heads as products take them, `[B, T, H, D]`."""
    heads = self._heads(y)
    heads = heads if norm is None else norm(heads)
    return heads if angles is None else rotate(heads, angles)


def _attend(groups, cap, width, query, parts):
  """One softmax over several sets of keys, never joined in memory.

  Of the first set, `width` keys are seen.
  """
  parts = [parts[0].first(width), *parts[1:]]

  def score(part):
    products = softcap(_product('bknd,bksd->bkns', query, part.keys), cap)
    products = products if part.bias is None else products + part.bias
    mask = jnp.repeat(part.mask, groups, axis=1)[:, None]
    return jnp.where(mask, products, -jnp.inf)

  scores = [score(part) for part in parts]
  # A row of padding sees nothing; its finite maximum keeps it from NaN.
  top = jnp.maximum(
    functools.reduce(jnp.maximum, [s.max(-1, keepdims=True) for s in scores]),
    -1e30,
  )
  weights = [jnp.exp(s - jax.lax.stop_gradient(top)) for s in scores]
  total = jnp.maximum(sum(w.sum(-1, keepdims=True) for w in weights), 1e-30)
  mixed = sum(
    _product('bkns,bksd->bknd', weight.astype(part.values.dtype), part.values)
    for weight, part in zip(weights, parts, strict=True)
  )
  return (mixed / total).astype(query.dtype)


class FeedForward(nnx.Module):
  """SwiGLU, GeGLU or a plain two-layer perceptron."""

  def __init__(
    self, config: Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
  ):
    self.config = config
    linear = functools.partial(
      _linear,
      use_bias=config.mlp_bias,
      dtype=dtype,
      rngs=rngs,
      kernel_init=nnx.initializers.normal(0.02),
    )
    self.up = linear(config.d_model, config.d_ff)
    if config.gated:
      self.gate = linear(config.d_model, config.d_ff)
    self.down = linear(
      config.d_ff,
      config.d_model,
      kernel_init=nnx.initializers.normal(
        0.02 / (2 * config.num_layers) ** 0.5
      ),
    )

  def __call__(self, x: jax.Array) -> jax.Array:
    activation = _ACTIVATIONS[self.config.activation]
    if self.config.gated:
      return self.down(activation(self.gate(x)) * self.up(x))
    return self.down(activation(self.up(x)))


class Layer(nnx.Module):
  """Attention and feed-forward around one residual stream."""

  def __init__(
    self, config: Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
  ):
    self.config = config
    self.attention_norm = Norm(config, config.d_model)
    self.attention = Attention(config, dtype, rngs)
    self.feed_forward_norm = Norm(config, config.d_model)
    self.feed_forward = FeedForward(config, dtype, rngs)
    if config.post_norms:
      self.attention_post_norm = Norm(config, config.d_model)
      self.feed_forward_post_norm = Norm(config, config.d_model)

  def __call__(
    self,
    x: jax.Array,
    angles: jax.Array | None,
    prefix: Part | None,
    pending: kv_cache.KeysAndValues | None,
    mask: jax.Array,
    bias: jax.Array | None = None,
  ) -> tuple[jax.Array, kv_cache.KeysAndValues]:
    attended, new = self.attention(
      self.attention_norm(x), angles, prefix, pending, mask, bias
    )
    if self.config.post_norms:
      attended = self.attention_post_norm(attended)
    if self.config.parallel_residual:
      return x + attended + self.feed_forward(self.feed_forward_norm(x)), new
    x = x + attended
    transformed = self.feed_forward(self.feed_forward_norm(x))
    if self.config.post_norms:
      transformed = self.feed_forward_post_norm(transformed)
    return x + transformed, new


def embedding(
  config: config_lib.Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
) -> nnx.Embed:
  """Returns the table of any config, `[table_size, d_model]`."""
  return nnx.Embed(
    config.table_size,
    config.d_model,
    dtype=dtype,
    rngs=rngs,
    embedding_init=nnx.initializers.normal(0.02),
  )


def head(
  config: config_lib.Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
) -> nnx.Linear:
  """Returns the output head of any config, where it is not the table."""
  return _linear(
    config.d_model,
    getattr(config, 'head_size', None) or config.table_size,
    use_bias=False,
    dtype=dtype,
    rngs=rngs,
    kernel_init=nnx.initializers.normal(0.02),
  )


def tied_logits(table: nnx.Embed, x: jax.Array) -> jax.Array:
  """Returns `[B, T, table_size]` float32 of a table and `x` `[B, T, D]`."""
  weights = table.embedding[...].astype(table.dtype)
  if x.shape[:2] == (1, 1):
    # XLA's product of a lone row with a transposed table takes twice as long.
    return _product('vd,d->v', weights, x[0, 0])[None, None]
  return _product('btd,vd->btv', x, weights)


class Transformer(nnx.Module):
  """The whole model: tokens in, logits and pending keys and values out."""

  def __init__(
    self,
    config: Config,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initialises random float32 parameters.

    Args:
      config: the architecture.
      rngs: source of the initial values.
      dtype: type of the computations; norms, softmax and logits stay float32.
    """
    self.config = config
    self.embedding = embedding(config, dtype, rngs)
    self.layers = nnx.List(
      [Layer(config, dtype, rngs) for _ in range(config.num_layers)]
    )
    self.final_norm = Norm(config, config.d_model)
    if not config.tie_embeddings:
      self.head = head(config, dtype, rngs)
    if config.head_size is not None:
      # The first tokens, until a better choice is made.
      tokens = jnp.arange(config.vocab_size, dtype=jnp.int32)
      rows = jnp.where(tokens < config.head_size, tokens, -1)
      self.head_rows = nnx.Param(rows)

  def __call__(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None = None,
    pending: kv_cache.Pending | None = None,
  ) -> tuple[jax.Array, tuple[jax.Array, ...], kv_cache.Pending]:
    """Reads `T` tokens a row.

    Args:
      tokens: `[B, T]` int32.
      positions: `[B, T]` absolute positions; negative marks padding.
      mask: `[B or 1, T, M + T]` which of the pending and of the new tokens each
        token attends to.
      cache: `KVCache` of the committed tokens, or None.
      pending: `Pending` of `M` tokens that stand before these, or None.

    Returns:
      `(logits [B, T, V] float32, features, Pending)`; features are `[B, T,
      d_model]` what enters each layer, then the normalised input of the head.
    """
    config = self.config
    x = self.embedding(tokens)
    if config.scale_embeddings:
      x *= jnp.asarray(config.d_model**0.5, x.dtype)
    angles = {
      local: positions[..., None].astype(jnp.float32)
      * rotary_frequencies(config, local)[None, None]
      for local in (False, True)
    }
    masks = _masks(config, positions, mask, cache, pending)
    news, features = [], []
    for i, layer in enumerate(self.layers):
      features.append(x)
      seen, own = masks[config.is_local(i)]
      prefix = None
      if cache is not None:
        prefix = Part(*cache.layers[i], seen, window=cache.window)
      x, new = layer(
        x,
        angles[config.is_local(i)],
        prefix,
        None if pending is None else pending.layers[i],
        own,
      )
      news.append(new)
    features.append(self.final_norm(x))
    fresh = kv_cache.Pending(layers=tuple(news), positions=positions)
    return (
      self.logits(features[-1]),
      tuple(features),
      kv_cache.append(pending, fresh),
    )

  def logits(self, x: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` float32 of the last features `[B, T, d_model]`."""
    logits = self.head_logits(x)
    if self.config.head_size is None:
      return logits
    rows = self.head_rows[...]
    known = jnp.take(logits, jnp.maximum(rows, 0), axis=-1)
    return jnp.where((rows >= 0)[None, None], known, -jnp.inf)

  def head_logits(self, x: jax.Array) -> jax.Array:
    """As `logits`, of the head's own tokens `[B, T, head_size]`."""
    if self.config.tie_embeddings:
      logits = tied_logits(self.embedding, x)
    else:
      logits = self.head(x)
    logits = softcap(logits.astype(jnp.float32), self.config.logit_softcap)
    return logits[..., : self.config.vocab_size]


def _masks(config, positions, mask, cache, pending):
  """Prefix and pending masks, of global layers (False) and of local ones."""
  keys = positions
  if pending is not None:
    keys = jnp.concatenate([pending.positions, positions], axis=1)
  pending_mask = mask & (keys[:, None, :] >= 0)
  slots = jnp.arange(0 if cache is None else cache.size)
  prefix_mask = None
  if cache is not None:
    seen = slots[None] < cache.lengths[:, None]
    prefix_mask = jnp.broadcast_to(
      seen[:, None], (*positions.shape, cache.size)
    )
  masks = {False: (prefix_mask, pending_mask)}
  if config.sliding_window is not None:
    oldest = positions[..., None] - config.sliding_window + 1
    masks[True] = (
      None if cache is None else prefix_mask & (slots[None, None] >= oldest),
      pending_mask & (keys[:, None, :] >= oldest),
    )
  return masks
