"""Layers that transformers are made of, in Flax NNX.

They hold parameters only, no state.
"""

from collections.abc import Callable
from collections.abc import Iterable
import functools
from typing import Any

from flax import nnx
import jax
import jax.numpy as jnp

from specjax.models import config as config_lib
from specjax.models import fusion

Config = config_lib.TransformerConfig

_ACTIVATIONS: dict[str, Callable[[jax.Array], jax.Array]] = {
  'silu': jax.nn.silu,
  'gelu': functools.partial(jax.nn.gelu, approximate=False),
  'gelu_tanh': functools.partial(jax.nn.gelu, approximate=True),
}


def numbered(modules: Iterable[nnx.Module]) -> nnx.Dict[nnx.Module]:
  """Returns modules by their numbers, as text: what `jax.export` can write."""
  return nnx.Dict({str(i): each for i, each in enumerate(modules)})


def in_order(modules: nnx.Dict[Any]) -> list[Any]:
  """Returns the modules of `numbered`, from the first on."""
  return [modules[str(i)] for i in range(len(modules))]


def softcap(x: jax.Array, cap: float | None) -> jax.Array:
  """Returns `cap * tanh(x / cap)`, or `x` where there is no cap."""
  return x if cap is None else cap * jnp.tanh(x / cap)


# Of a lone row, which are multiplied side by side.
_PARTS = 4

# Summed in float32, whatever the type of the factors. XLA then makes no float32
# copy of bfloat16 weights on a CPU.
product = functools.partial(jnp.einsum, preferred_element_type=jnp.float32)


def _dot_general(x, kernel, dimensions, precision=None, out_sharding=None):
  """`lax.dot_general`, as `product` computes it."""

  def usual(x, kernel):
    y = jax.lax.dot_general(
      x,
      kernel,
      dimensions,
      precision,
      jnp.float32,
      out_sharding=out_sharding,
    )
    return y.astype(x.dtype)

  if x.size == len(kernel) and out_sharding is None:
    # What the program is compiled for counts, not where it is.
    return jax.lax.platform_dependent(
      x, kernel, cpu=_lone_row, cuda=_doubled_row, default=usual
    )
  return usual(x, kernel)


def _lone_row(x, kernel):
  """The product of one row on a CPU, where XLA leaves it to one core.

  Sums of parts are computed side by side: a call of one token takes 0.8 to 0.9
  times as long.
  """
  size = len(kernel)
  if x.dtype != jnp.float32:
    return _doubled_row(x, kernel)
  if size % _PARTS:
    y = product('d,do->o', x.reshape(-1), kernel)
  else:
    parts = kernel.reshape(_PARTS, size // _PARTS, -1)
    y = product('pd,pdo->po', x.reshape(_PARTS, -1), parts).sum(0)
  return y.reshape(*x.shape[:-1], -1)


def _doubled_row(x, kernel):
  """The product of one row as that of two.

  For one, XLA copies bfloat16 weights to float32 on CPUs, and on GPUs, too, if
  they are small.
  """
  y = product('rd,do->ro', _two_rows(x), kernel)[0]
  return y.reshape(*x.shape[:-1], -1).astype(x.dtype)


def _two_rows(x):
  return jnp.broadcast_to(x.reshape(-1), (2, x.size))


# A linear layer of such products.
linear = functools.partial(nnx.Linear, dot_general=_dot_general)


class Norm(nnx.Module):
  """RMSNorm or LayerNorm, computed in float32."""

  def __init__(self, config: Config, size: int):
    self.config = config
    start = 0.0 if config.norm_unit_offset else 1.0
    self.scale = nnx.Param(jnp.full(size, start, jnp.float32))
    if config.norm == 'layer':
      self.bias = nnx.Param(jnp.zeros(size, jnp.float32))

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


class FeedForward(nnx.Module):
  """SwiGLU, GeGLU or a plain two-layer perceptron."""

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
  return linear(
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
  usual = functools.partial(product, 'vd,btd->btv')
  if x.shape[:2] == (1, 1):
    return jax.lax.platform_dependent(
      weights, x, cpu=_lone_logits, default=usual
    )
  return usual(weights, x)


def _lone_logits(weights, x):
  """The logits of one row on a CPU."""
  if x.dtype != jnp.float32:
    return product('vd,rd->rv', weights, _two_rows(x))[None, :1]
  # XLA's product of a lone row with a transposed table takes twice as long.
  return product('vd,d->v', weights, x[0, 0])[None, None]


class TokenModel(nnx.Module):
  """What reads and emits tokens: the table, and the head, if it has its own."""

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
      # It has the first tokens, until a better choice is made.
      tokens = jnp.arange(config.vocab_size, dtype=jnp.int32)
      rows = jnp.where(tokens < config.head_size, tokens, -1)
      self.head_rows = nnx.Param(rows)

  def embed(self, tokens: jax.Array) -> jax.Array:
    """Returns `[B, T, d_model]` of tokens `[B, T]`."""
    x = self.embedding(tokens)
    if self.config.scale_embeddings:
      x *= jnp.asarray(self.config.d_model**0.5, x.dtype)
    return x

  def logits(self, x: jax.Array, head: nnx.Linear | None = None) -> jax.Array:
    """Returns `[B, T, V]` float32 of the last features `[B, T, d_model]`.

    Args:
      x: features.
      head: another one than the model's own.
    """
    logits = self.head_logits(x, head)
    if self.config.head_size is None:
      return logits
    rows = self.head_rows[...]
    known = jnp.take(logits, jnp.maximum(rows, 0), axis=-1)
    return jnp.where((rows >= 0)[None, None], known, -jnp.inf)

  def likeliest(
    self, logits: jax.Array, num: int
  ) -> tuple[jax.Array, jax.Array]:
    """Returns log-probabilities and tokens `[..., num]` of `head_logits`.

    The likeliest first; -inf where the head has no more tokens.
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
    more = [(0, 0)] * (logits.ndim - 1) + [(0, max(num - size, 0))]
    return (
      jnp.pad(best, more, constant_values=-jnp.inf),
      jnp.pad(tokens, more),
    )

  def head_logits(
    self, x: jax.Array, head: nnx.Linear | None = None
  ) -> jax.Array:
    """As `logits`, of the head's own tokens `[B, T, head_size]`."""
    if head is not None:
      logits = head(x)
    elif self.config.tie_embeddings:
      logits = tied_logits(self.embedding, x)
    else:
      logits = self.head(x)
    logits = softcap(logits.astype(jnp.float32), self.config.logit_softcap)
    return logits[..., : self.config.vocab_size]
