"""How a block head reads the target's hidden states (features) of a row.

Entry `i` holds the features at token `i`, so that a row of `n` tokens has
`n - 1` entries: those of its last token are not there yet.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import lag
from specjax.drafters import tree_drafting


@components.component
class BlockReader(lag.Reader):
  """Reads features with a block head.

  Attributes:
    model: the head.
    tail: see `lag.Reader`.
    num_outputs: number of tokens that the blocks of `read` predict; of each
      block, only the first output is used.
  """

  model: base.BlockHead
  tail: int = components.static()
  num_outputs: int = components.static(default=1)

  num_left = 1
  ahead = 1  # The outputs of a block predict what follows the last token.

  def num_entries(self, context: base.Context) -> jax.Array:
    """Returns `[B]` the number of tokens with features."""
    return context.lengths - 1

  def prefill(
    self, params: base.Params, context: base.Context, size: int
  ) -> base.Cache:
    """Reads the features at all tokens of the prompts but the last two."""
    cache = self.model.init_cache(params, len(context.tokens), size)
    if context.tokens.shape[1] < 2:  # No prompt has an entry.
      return cache
    features = tuple(states[:, :-1] for states in context.features)
    index = jnp.broadcast_to(
      np.arange(context.tokens.shape[1] - 1), context.tokens[:, 1:].shape
    )
    pending = self.model.encode(params, features, index)
    num = jnp.maximum(self.num_entries(context) - self.num_left, 0)
    return self.model.commit(cache, pending, index, num)

  def read(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    num: int,
  ) -> lag.ReadEntries:
    """Reads the next features, and a block after each of them.

    A program that only catches up computes no block.
    """
    pending = self.encode(params, cache, context, num)
    ends = cache.lengths[:, None] + self.ahead + np.arange(num)[None]
    visible = np.tri(num, dtype=bool)
    outputs = self.read_blocks(
      params, cache, context, pending, ends, visible, self.num_outputs
    )
    tokens = trees.at_entries(context.tokens, ends)
    return lag.ReadEntries(
      (outputs[:, :, 0], tokens), pending, jax.tree.leaves(pending)[0]
    )

  def encode(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    num: int,
  ) -> base.PendingKV:
    """Returns the KV of the next `num` entries; of padding, if there are fewer.

    Nothing attends to padding.
    """
    at = cache.lengths[:, None] + np.arange(num)[None]
    exists = at < self.num_entries(context)[:, None]
    features = tuple(
      jnp.where(exists[..., None], trees.at_entries(states, at), 0)
      for states in context.features
    )
    return self.model.encode(params, features, jnp.where(exists, at, -1))

  def read_blocks(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    pending: base.PendingKV,
    ends: jax.Array,
    visible: np.ndarray,
    num_outputs: int,
  ) -> jax.Array:
    """Reads one block after each of some tokens of a row.

    Args:
      params: parameters of the head.
      cache: the committed entries, which all blocks attend to.
      context: the committed text.
      pending: `M` entries after them, from `encode`.
      ends: `[B, T]` positions of the tokens with which the blocks begin.
      visible: `[T, M]` which pending entries each block attends to.
      num_outputs: number of tokens that each block predicts, `K`.

    Returns:
      `[B, T, K, F]` outputs that predict the tokens after each end.
    """
    head, num_blocks = self.model, ends.shape[1]
    size = num_outputs + head.first_output
    tokens = jnp.pad(
      trees.at_entries(context.tokens, ends)[..., None],
      ((0, 0), (0, 0), (0, size - 1)),
      constant_values=head.mask_token,
    )
    positions = ends[..., None] + np.arange(size)[None, None]
    block = np.repeat(np.arange(num_blocks), size)
    outputs, _ = head.extend(
      params,
      cache,
      tokens.reshape(len(ends), -1),
      pending_kv=pending,
      positions=positions.reshape(len(ends), -1),
      mask=np.concatenate(
        [visible[block], block[:, None] == block[None]], axis=1
      ),
    )
    outputs = outputs.reshape(*tokens.shape, -1)
    return outputs[:, :, head.first_output :]

  def predict(
    self,
    params: base.Params,
    outputs: tuple[jax.Array, jax.Array],
    sampling: sampling_lib.Sampling,
  ) -> tree_drafting.Prediction:
    """Returns the predictions of outputs `[B, W, F]`, given tokens `[B, W]`."""
    states, tokens = outputs
    logits = self.model.predict(params, states)
    conditioned = self.model.condition(params, logits, tokens)
    return tree_drafting.predict(conditioned, sampling)

  def tail_path(self, lags: jax.Array, index: np.ndarray) -> jax.Array:
    """Returns their order, as the first entry was read first."""
    return jnp.broadcast_to(index, (len(lags), index.shape[1]))
