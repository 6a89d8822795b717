"""The head of DFlash in Flax NNX: layers on a block and the target's features.

The target's features at a token are joined and normalized. From the result,
every layer computes keys and values for its attention, as if it were the
layer's own input; nothing else is computed for these tokens. A block, the last
token and mask tokens, passes through all layers, and each of its tokens attends
to those keys and values and to the whole block (DFlash, arXiv:2602.06036):

    position        0    1    2    3    4    5    6      n = 4 tokens
    features        h0   h1   h2   -                     KV only, in the cache
    block                          d    m    m    m
    predicts                       4    5    6    7      if it predicts the next

The modules hold parameters only, no state.
"""

from flax import nnx
import jax
import jax.numpy as jnp

from specjax.models import attention as attention_lib
from specjax.models import head_config
from specjax.models import kv_cache
from specjax.models import layers as layers_lib
from specjax.models import transformer_modules


class DFlash(layers_lib.TokenModel):
  """The head of DFlash, optionally with DSpark's Markov head.

  The Markov head (arXiv:2607.05147) adds `W2 W1[token]` to the logits, where
  `token` is the one before: a bigram model of low rank.
  """

  def __init__(
    self,
    config: head_config.DFlashConfig,
    rngs: nnx.Rngs,
    dtype: jax.typing.DTypeLike = jnp.float32,
  ):
    """Initializes random float32 parameters; see `Transformer`."""
    layer, size = config.layer, config.layer.d_model
    super().__init__(layer, dtype, rngs)
    self.join = layers_lib.linear(
      len(config.taps) * size,
      size,
      use_bias=False,
      dtype=dtype,
      rngs=rngs,
      kernel_init=nnx.initializers.normal(0.02),
    )
    self.join_norm = layers_lib.Norm(layer, size)
    self.layers = layers_lib.module_dict(
      transformer_modules.Layer(layer, dtype, rngs)
      for _ in range(config.num_layers)
    )
    self.final_norm = layers_lib.Norm(layer, size)
    if config.markov_rank:
      self.markov_in = nnx.Embed(
        layer.vocab_size,
        config.markov_rank,
        dtype=dtype,
        rngs=rngs,
        embedding_init=nnx.initializers.normal(0.02),
      )
      # A new head has no preference.
      self.markov_out = layers_lib.logits_linear(
        config.markov_rank,
        layer.head_size or layer.vocab_size,
        use_bias=False,
        dtype=dtype,
        rngs=rngs,
        kernel_init=nnx.initializers.zeros,
      )

  def encode(
    self, features: tuple[jax.Array, ...], positions: jax.Array
  ) -> kv_cache.PendingKV:
    """Returns keys and values of features `[B, T, d_model]`, for all layers."""
    x = self.join_norm(self.join(jnp.concatenate(features, axis=-1)))
    rotations = attention_lib.rotations(self.config, positions)
    keys_and_values = tuple(
      layer.attention.keys_and_values(x, rotations[self.config.is_local(i)])
      for i, layer in enumerate(layers_lib.module_list(self.layers))
    )
    return kv_cache.PendingKV(keys_and_values, positions)

  def __call__(
    self,
    tokens: jax.Array,
    positions: jax.Array,
    mask: jax.Array,
    cache: kv_cache.KVCache | None = None,
    pending_kv: kv_cache.PendingKV | None = None,
  ) -> tuple[jax.Array, kv_cache.PendingKV]:
    """Reads `T` tokens of blocks per row.

    Args:
      tokens: `[B, T]` int32.
      positions: `[B, T]` absolute positions.
      mask: `[B or 1, T, M + T]`, true where a token attends to a pending entry
        or to a token.
      cache: `KVCache` of the committed features, or None.
      pending_kv: `PendingKV` of `M` features from `encode`, or None.

    Returns:
      Outputs `[B, T, d_model]`, the inputs of the output head, and the
      `PendingKV` of the `M + T` entries.
    """
    x = self.embed(tokens)
    context = transformer_modules.LayerContext(
      self.config, positions, mask, cache, pending_kv
    )
    keys_and_values = []
    for i, layer in enumerate(layers_lib.module_list(self.layers)):
      x, new = layer(x, *context.attention_arguments(i))
      keys_and_values.append(new)
    new_kv = kv_cache.PendingKV(tuple(keys_and_values), positions)
    return self.final_norm(x), kv_cache.append(pending_kv, new_kv)

  def predict(self, outputs: jax.Array) -> jax.Array:
    """Returns `[B, T, V]` float32 logits of outputs `[B, T, d_model]`."""
    return self.logits(outputs)

  def predict_drafted(self, outputs: jax.Array, tokens: jax.Array) -> jax.Array:
    """Returns `[B, T, H]` logits of the `H` tokens that can be drafted.

    Args:
      outputs: `[B, T, d_model]`.
      tokens: `[B, T]` the token before each predicted one.
    """
    logits = self.head_logits(outputs)
    return logits + self._markov_logits(tokens) if self.has_markov else logits

  def condition(self, logits: jax.Array, tokens: jax.Array) -> jax.Array:
    """Returns logits given the tokens before `[B, T]`; see `BlockHead`."""
    if not self.has_markov:
      return logits
    return logits + self.of_all_tokens(self._markov_logits(tokens))

  @property
  def has_markov(self) -> bool:
    """Whether logits depend on the token before."""
    return hasattr(self, 'markov_in')

  def _markov_logits(self, tokens: jax.Array) -> jax.Array:
    """Returns `[B, T, H]` what the tokens before add to the logits."""
    return self.markov_out(self.markov_in(tokens))
