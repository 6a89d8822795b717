"""The heads of Medusa in Flax NNX, which predict several tokens in parallel."""

from collections.abc import Callable

from flax import nnx
import jax
import jax.numpy as jnp

from specjax.models import head_config
from specjax.models import layers as layers_lib


class Medusa(layers_lib.TokenModel):
  """`K` heads of residual blocks, with a common output head or one for each."""

  def __init__(
    self,
    config: head_config.MedusaConfig,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initializes heads whose predictions are those of the output head.

    Args:
      config: the architecture.
      rngs: source of the initial values.
      dtype: type of the computations; logits stay float32.
    """
    super().__init__(config.layer, dtype, rngs)
    self.steps = layers_lib.module_dict(
      _Step(config, dtype, rngs) for _ in range(config.num_steps)
    )
    self.more_heads = layers_lib.module_dict(
      layers_lib.head(config.layer, dtype, rngs)
      for _ in range(config.num_steps - 1)
      if config.own_heads
    )

  def __call__(self, features: tuple[jax.Array, ...]) -> jax.Array:
    """Returns `[B, T, K, V]` float32 logits of one feature `[B, T, F]`."""
    return self._predict(features, self.logits)

  def predict_drafted(self, features: tuple[jax.Array, ...]) -> jax.Array:
    """Returns `[B, T, K, H]` logits of the `H` tokens that can be drafted."""
    return self._predict(features, self.head_logits)

  def _predict(
    self, features: tuple[jax.Array, ...], logits: Callable[..., jax.Array]
  ) -> jax.Array:
    """Returns the logits of all heads, stacked along the axis `K`."""
    more_heads = layers_lib.module_list(self.more_heads)
    heads = [getattr(self, 'head', None), *more_heads]
    predicted = []
    for i, step in enumerate(layers_lib.module_list(self.steps)):
      x = step(features[0])
      options = {'head': heads[i]} if more_heads else {}
      predicted.append(logits(x, **options))
    return jnp.stack(predicted, axis=2)


class _Step(nnx.Module):
  """The residual blocks of one head."""

  def __init__(
    self,
    config: head_config.MedusaConfig,
    dtype: jax.typing.DTypeLike,
    rngs: nnx.Rngs,
  ):
    size = config.layer.d_model
    self.blocks = layers_lib.module_dict(
      layers_lib.linear(
        size,
        size,
        dtype=dtype,
        rngs=rngs,
        kernel_init=nnx.initializers.zeros,
      )
      for _ in range(config.num_blocks)
    )

  def __call__(self, x: jax.Array) -> jax.Array:
    """Transforms the target's feature `[B, T, F]`."""
    for block in layers_lib.module_list(self.blocks):
      x = x + jax.nn.silu(block(x))
    return x
