"""How a small language model reads committed tokens."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import padding
from specjax import sampling as sampling_lib
from specjax.drafters import lag
from specjax.drafters import tree_drafting


@components.component
class ModelReader(lag.Reader):
  """Reads tokens with a language model.

  After a draft, its KV cache lacks the last committed token, and the one before
  if the draft was accepted in full: the last draft token was never read.

  Attributes:
    model: the language model.
    tail: see `lag.Reader`.
  """

  model: base.LanguageModel
  tail: int = components.static(default=2)

  num_left = 2
  ahead = 0

  def num_entries(self, context: base.Context) -> jax.Array:
    """Returns `[B]` how many tokens there are."""
    return context.lengths

  def prefill(
    self, params: base.Params, context: base.Context, size: int
  ) -> base.Cache:
    """Reads the prompts except for their tails."""
    cache = self.model.init_cache(params, len(context.tokens), size)
    lengths = jnp.maximum(context.lengths - self.num_left, 0)
    return self.model.prefill(params, cache, context.tokens, lengths)[0]

  def read(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    num: int,
  ) -> lag.ReadEntries:
    """Reads the next tokens."""
    at = cache.lengths[:, None] + np.arange(num)[None]
    tokens = jnp.take_along_axis(context.tokens, at, axis=1, mode='clip')
    output = self.model.extend(params, cache, tokens)
    # If a model has features, they spare a catch-up the product of the head.
    computed = (output.logits, *output.features)[-1]
    return lag.ReadEntries(output.logits, output.pending_kv, computed)

  def read_tail(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    depth: int,
    may_stop_early: bool,
  ) -> lag.Tail:
    """Reads the tokens that the cache lacks, last one first.

    A drafter that may stop early often reads no other token, so that one token
    less is worth a choice in the program.
    """
    del depth
    index = np.arange(self.tail)[None]
    positions = context.lengths[:, None] - 1 - index
    tokens = jnp.take_along_axis(
      context.tokens, jnp.maximum(positions, 0), axis=1
    )
    missing = positions >= cache.lengths[:, None]
    positions = jnp.where(missing, positions, -1)
    lags = context.lengths - cache.lengths

    def read(num):
      output = self.model.extend(
        params,
        cache,
        tokens[:, :num],
        positions=positions[:, :num],
        mask=np.triu(np.ones((num, num), bool)),
      )
      return output.logits[:, :1], output.pending_kv

    if may_stop_early:
      shapes = jax.eval_shape(lambda: read(self.tail))
      logits, pending = jax.lax.cond(
        (context.of_rows(lags) > 1).any(),
        lambda: read(self.tail),
        lambda: padding.pad_to(read(1), shapes),
      )
    else:
      logits, pending = read(self.tail)
    return lag.Tail(logits, pending, index < lags[:, None])

  def tail_path(self, lags: jax.Array, index: np.ndarray) -> jax.Array:
    """Returns the reverse order, as the last token was read first."""
    return lags - 1 - index

  def read_nodes(
    self,
    params: base.Params,
    cache: base.Cache,
    tokens: jax.Array,
    parents: tree_drafting.Prediction,
    pending: base.PendingKV,
    positions: jax.Array,
    mask: jax.Array,
  ) -> tuple[jax.Array, base.PendingKV]:
    """Reads the tokens of nodes; returns their logits."""
    del parents
    output = self.model.extend(
      params, cache, tokens, pending_kv=pending, positions=positions, mask=mask
    )
    return output.logits, output.pending_kv

  def predict(
    self,
    params: base.Params,
    outputs: jax.Array,
    sampling: sampling_lib.Sampling,
  ) -> tree_drafting.Prediction:
    """Returns the predictions of logits `[B, W, V]`."""
    del params
    return tree_drafting.predict(outputs, sampling)
