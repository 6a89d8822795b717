"""Layers of transformers, in Flax NNX.

They hold parameters only, no state.
"""

from collections.abc import Callable
from collections.abc import Iterable
import functools
import math
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp

from specjax.models import config as config_lib
from specjax.models import fusion
from specjax.models import transposes

Config = config_lib.TransformerConfig

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
  'silu': jax.nn.silu,
  'gelu': functools.partial(jax.nn.gelu, approximate=False),
  'gelu_tanh': functools.partial(jax.nn.gelu, approximate=True),
}


def module_dict(modules: Iterable[nnx.Module]) -> nnx.Dict[nnx.Module]:
  """Returns modules by their numbers.

  The numbers are strings, since `jax.export` writes only dicts of strings.
  """
  return nnx.Dict({str(i): module for i, module in enumerate(modules)})


def module_list(modules: nnx.Dict[Any]) -> list[Any]:
  """Returns the modules of a `module_dict`, in the order of their numbers."""
  return [modules[str(i)] for i in range(len(modules))]


def softcap(x: jax.Array, cap: float | None) -> jax.Array:
  """Returns `cap * tanh(x / cap)`, or `x` if `cap` is None."""
  return x if cap is None else cap * jnp.tanh(x / cap)


# Number of parts of a kernel that are multiplied by a single row in parallel.
_PARTS = 4

# Products are summed in float32 for factors of any type. XLA then makes no
# float32 copy of bfloat16 weights on a CPU.
product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)


def _dot_general(x: jax.Array, *args: Any, **options: Any) -> jax.Array:
  """Returns the result of `_dot_general_float32` in the type of `x`."""
  return _dot_general_float32(x, *args, **options).astype(x.dtype)


def _dot_general_float32(
  x: jax.Array,
  kernel: jax.Array,
  dimensions: jax.lax.DotDimensionNumbers,
  precision: jax.lax.PrecisionLike = None,
  out_sharding: Any = None,
) -> jax.Array:
  """Returns `lax.dot_general`, summed as by `product`."""

  def multiply(x: jax.Array, kernel: jax.Array) -> jax.Array:
    return jax.lax.dot_general(
      x,
      kernel,
      dimensions,
      precision,
      jnp.float32,
      out_sharding=out_sharding,
    )

  if x.size == len(kernel) and out_sharding is None:
    # The choice depends on the platform that the program is compiled for, not
    # on the one that compiles it.
    return jax.lax.platform_dependent(
      x, kernel, cpu=_multiply_one_row, cuda=_multiply_twice, default=multiply
    )
  return multiply(x, kernel)


def _multiply_one_row(x: jax.Array, kernel: jax.Array) -> jax.Array:
  """Returns the product of one row and a kernel `[D, O]`, on a CPU.

  XLA computes the product of one row on one core. The sums of several parts run
  in parallel: a call of one token takes 0.8 to 0.9 times as long.
  """
  size = len(kernel)
  if x.dtype != jnp.float32:
    return _multiply_twice(x, kernel)
  if size % _PARTS:
    y = product('d,do->o', x.reshape(-1), kernel)
  else:
    parts = kernel.reshape(_PARTS, size // _PARTS, -1)
    y = product('pd,pdo->po', x.reshape(_PARTS, -1), parts).sum(0)
  return y.reshape(*x.shape[:-1], -1)


def _multiply_twice(x: jax.Array, kernel: jax.Array) -> jax.Array:
  """Returns the product of one row and a kernel `[D, O]` from two equal rows.

  For one row, XLA copies bfloat16 weights to float32: on CPUs, and on GPUs if
  they are small.
  """
  y = product('rd,do->ro', _two_rows(x), kernel)[0]
  return y.reshape(*x.shape[:-1], -1)


def _two_rows(x: jax.Array) -> jax.Array:
  """Returns a row as two equal rows, `[2, D]`."""
  return jnp.broadcast_to(x.reshape(-1), (2, x.size))


class Linear(nnx.Linear):
  """A linear layer that may have a transposed copy of its kernel.

  Attributes:
    transposed: see `transposes`; there is none unless a decoder has made it.
  """

  def __call__(self, x: jax.Array, out_sharding: Any = None) -> jax.Array:
    """Returns `[..., out_features]` of `x` `[..., in_features]`."""
    weights = getattr(self, transposes.NAME, None)
    num_rows = math.prod(x.shape[:-1])
    if (
      weights is None
      or self.dtype != jnp.float32
      or not transposes.is_faster(num_rows, weights)
    ):
      return super().__call__(x, out_sharding)
    rows = x.astype(jnp.float32).reshape(num_rows, -1)
    y = transposes.multiply(rows, weights[...]).reshape(*x.shape[:-1], -1)
    return y if self.bias is None else y + self.bias[(None,) * (y.ndim - 1)]


# Linear layers whose result has the type of the computations, and those whose
# result is float32, as logits are.
linear = functools.partial(Linear, dot_general=_dot_general)
logits_linear = functools.partial(Linear, dot_general=_dot_general_float32)


class Norm(nnx.Module):
  """RMSNorm or LayerNorm, computed in float32."""

  def __init__(self, config: Config, size: int):
    self.config = config
    initial = 0.0 if config.norm_unit_offset else 1.0
    self.scale = nnx.Param(jnp.full(size, initial, jnp.float32))
    if config.norm == 'layer':
      self.bias = nnx.Param(jnp.zeros(size, jnp.float32))

  def __call__(self, x: jax.Array) -> jax.Array:
    """Returns `x` `[..., size]`, normalized along its last axis."""
    config = self.config
    y = x.astype(jnp.float32)
    if config.norm == 'layer':
      y = y - y.mean(axis=-1, keepdims=True)
    y *= jax.lax.rsqrt(
      jnp.square(y).mean(-1, keepdims=True) + config.norm_epsilon
    )
    new_axes = (None,) * (x.ndim - 1)
    scale = self.scale[new_axes].astype(jnp.float32)
    y *= scale + float(config.norm_unit_offset)
    if config.norm == 'layer':
      y += self.bias[new_axes].astype(jnp.float32)
    return y.astype(x.dtype)


class FeedForward(nnx.Module):
  """A feed-forward layer: SwiGLU, GeGLU or a plain two-layer perceptron."""

  def __init__(
    self, config: Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
  ):
    self.config = config
    dense = functools.partial(
      linear,
      use_bias=config.mlp_bias,
      dtype=dtype,
      rngs=rngs,
      kernel_init=nnx.initializers.normal(0.02),
    )
    self.up = dense(config.d_model, config.d_ff)
    if config.gated:
      self.gate = dense(config.d_model, config.d_ff)
    self.down = dense(
      config.d_ff,
      config.d_model,
      kernel_init=nnx.initializers.normal(
        0.02 / (2 * config.num_layers) ** 0.5
      ),
    )

  def __call__(self, x: jax.Array) -> jax.Array:
    """Transforms `x` `[..., d_model]`."""
    activation = _ACTIVATIONS[self.config.activation]
    if not self.config.gated:
      return self.down(activation(self.up(x)))
    if hasattr(self, 'gate_up'):
      fused = fusion.split(self.config, 'gate_up', self.gate_up(x))
      gate, up = fused.values()
    else:
      gate, up = self.gate(x), self.up(x)
    return self.down(activation(gate) * up)


def embedding(
  config: config_lib.Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
) -> nnx.Embed:
  """Returns the embedding table of any config, `[table_size, d_model]`."""
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
  """Returns the output head of any config that does not tie embeddings.

  Its logits are float32 for any type of the computations.
  """
  return logits_linear(
    config.d_model,
    getattr(config, 'head_size', None) or config.table_size,
    use_bias=False,
    dtype=dtype,
    rngs=rngs,
    kernel_init=nnx.initializers.normal(0.02),
  )


def tied_logits(table: nnx.Embed, x: jax.Array) -> jax.Array:
  """Returns logits from a tied embedding table.

  Args:
    table: the embedding table.
    x: `[B, T, D]`.

  Returns:
    `[B, T, table_size]` float32.
  """
  weights = table.embedding[...].astype(table.dtype)
  multiply = functools.partial(product, 'vd,btd->btv')
  num_rows = x.shape[0] * x.shape[1]
  if num_rows == 1:
    return jax.lax.platform_dependent(
      weights, x, cpu=_tied_logits_of_one_row, default=multiply
    )
  if transposes.is_faster(num_rows, weights):
    return jax.lax.platform_dependent(
      weights, x, cpu=_tied_logits_of_few_rows, default=multiply
    )
  return multiply(weights, x)


def _tied_logits_of_one_row(weights: jax.Array, x: jax.Array) -> jax.Array:
  """Returns logits `[1, 1, table_size]` of one token, on a CPU."""
  if x.dtype != jnp.float32:
    return product('vd,rd->rv', weights, _two_rows(x))[None, :1]
  # XLA's product of one row with a transposed table takes twice as long.
  return product('vd,d->v', weights, x[0, 0])[None, None]


def _tied_logits_of_few_rows(weights: jax.Array, x: jax.Array) -> jax.Array:
  """Returns logits `[B, T, table_size]` of a few tokens, on a CPU."""
  logits = transposes.multiply(x.reshape(-1, x.shape[-1]), weights)
  return logits.reshape(*x.shape[:2], -1)


def take_logits(logits: jax.Array, rows: jax.Array) -> jax.Array:
  """Returns `[B, T, V]` logits of tokens that have rows, -inf for the others.

  Args:
    logits: `[B, T, R]`, one for each row.
    rows: `[V]` the row of each token, -1 for none.
  """
  row_logits = jnp.take(logits, jnp.maximum(rows, 0), axis=-1)
  return jnp.where((rows >= 0)[None, None], row_logits, -jnp.inf)


class TokenModel(nnx.Module):
  """Base class of models: the embedding table and, unless tied, the head."""

  def __init__(
    self, config: Config, dtype: jax.typing.DTypeLike, rngs: nnx.Rngs
  ):
    self.config = config
    self.embedding = embedding(config, dtype, rngs)
    if not config.tie_embeddings:
      self.head = head(config, dtype, rngs)
    if config.head_size is not None:
      # The head of a reduced vocabulary has R of V rows, here 3 of 6:
      #
      #     token        0     1     2     3     4     5
      #     head_rows    0    -1     1    -1    -1     2    [V], -1 for no row
      #     head        l0          l1                l2    [R]
      #     logits      l0  -inf    l1  -inf  -inf    l2    [V]
      #
      # By default, it has rows for the first tokens of the vocabulary.
      tokens = jnp.arange(config.vocab_size, dtype=jnp.int32)
      rows = jnp.where(tokens < config.head_size, tokens, -1)
      self.head_rows = nnx.Param(rows)

  def embed(self, tokens: jax.Array) -> jax.Array:
    """Returns embeddings `[B, T, d_model]` of tokens `[B, T]`."""
    x = self.embedding(tokens)
    if self.config.scale_embeddings:
      x *= jnp.asarray(self.config.d_model**0.5, x.dtype)
    return x

  def logits(self, x: jax.Array, head: nnx.Linear | None = None) -> jax.Array:
    """Returns logits `[B, T, V]` float32.

    Args:
      x: input of the output head, `[B, T, d_model]`.
      head: output head to use in place of the model's.
    """
    return self.of_all_tokens(self.head_logits(x, head))

  def of_all_tokens(self, logits: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` logits, -inf for tokens that the head lacks.

    Args:
      logits: `[B, T, head_size]` of the tokens in the output head.
    """
    if self.config.head_size is None:
      return logits
    return take_logits(logits, self.head_rows[...])

  def likeliest(
    self, logits: jax.Array, num: int
  ) -> tuple[jax.Array, jax.Array]:
    """Returns the likeliest tokens, the best first.

    Args:
      logits: from `head_logits`.
      num: number of tokens.

    Returns:
      `[..., num]` log-probabilities, -inf where the head has fewer tokens, and
      `[..., num]` tokens.
    """
    size = logits.shape[-1]
    best, index = jax.lax.top_k(logits, min(num, size))
    best -= jax.nn.logsumexp(logits, axis=-1, keepdims=True)
    tokens = index.astype(jnp.int32)
    if self.config.head_size is not None:
      rows = self.head_rows[...]
      ids = jnp.zeros(size, jnp.int32)
      ids = ids.at[jnp.where(rows >= 0, rows, size)].set(
        jnp.arange(len(rows), dtype=jnp.int32), mode='drop'
      )
      tokens = ids[tokens]
    padding = [(0, 0)] * (logits.ndim - 1) + [(0, max(num - size, 0))]
    return (
      jnp.pad(best, padding, constant_values=-jnp.inf),
      jnp.pad(tokens, padding),
    )

  def head_logits(
    self, x: jax.Array, head: nnx.Linear | None = None
  ) -> jax.Array:
    """Returns logits `[B, T, head_size]` of the tokens in the output head.

    Args:
      x: See `logits`.
      head: See `logits`.
    """
    if head is not None:
      logits = head(x)
    elif self.config.tie_embeddings:
      logits = tied_logits(self.embedding, x)
    else:
      logits = self.head(x)
    logits = softcap(logits, self.config.logit_softcap)
    return logits[..., : self.config.vocab_size]
