"""The heads of Medusa in Flax NNX: each predicts a later token at once."""

from flax import nnx
import jax
import jax.numpy as jnp

from specjax.models import head_config
from specjax.models import layers as layers_lib


class Medusa(layers_lib.TokenModel):
  """`K` heads of residual blocks, with one output head or one for each."""

  def __init__(
    self,
    config: head_config.MedusaConfig,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initialises heads that predict what the output head alone does.

    Args:
      config: the architecture.
      rngs: source of the initial values.
      dtype: type of the computations; logits stay float32.
    """
    super().__init__(config.layer, dtype, rngs)
    self.steps = layers_lib.numbered(
      _Step(config, dtype, rngs) for _ in range(config.num_steps)
    )
    self.more_heads = layers_lib.numbered(
      layers_lib.head(config.layer, dtype, rngs)
      for _ in range(config.num_steps - 1)
      if config.own_heads
    )

  def __call__(self, features: tuple[jax.Array, ...]) -> jax.Array:
    """Returns `[B, T, K, V]` float32 logits of one feature `[B, T, F]`."""
    return self._each(features, self.logits)

  def predict_drafted(self, features: tuple[jax.Array, ...]) -> jax.Array:
    """As `__call__`, of the tokens that can be drafted, `[B, T, K, H]`."""
    return self._each(features, self.head_logits)

  def _each(self, features, logits):
    more = layers_lib.in_order(self.more_heads)
    heads = [getattr(self, 'head', None), *more]
    predicted = []
    for i, step in enumerate(layers_lib.in_order(self.steps)):
      x = step(features[0])
      own = {'head': heads[i]} if more else {}
      predicted.append(logits(x, **own))
    return jnp.stack(predicted, axis=2)


class _Step(nnx.Module):
  """Residual blocks on the target's feature."""

  def __init__(self, config, dtype, rngs):
    size = config.layer.d_model
    self.blocks = layers_lib.numbered(
      layers_lib.linear(
        size,
        size,
        dtype=dtype,
        rngs=rngs,
        kernel_init=nnx.initializers.zeros,
      )
      for _ in range(config.num_blocks)
    )

  def __call__(self, x):
    for block in layers_lib.in_order(self.blocks):
      x = x + jax.nn.silu(block(x))
    return x
