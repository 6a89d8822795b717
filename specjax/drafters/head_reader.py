"""The EAGLE cache: how heads read pairs of a hidden state and a token.

Pair `i` consists of the target's hidden states at token `i` and of token
`i + 1`, so that a row of `n` tokens has `n - 1` pairs: the hidden states of its
last token are not there yet.

    position        0    1    2    3    4      n = 5
    token           a    b    c    d    e
    hidden states   h0   h1   h2   h3   -
    pairs           h0b  h1c  h2d  h3e         n - 1 = 4

A draft reads the pairs that its cache lacks; the output of the last one
predicts the first drafted token. Drafted nodes are read with the head's own
outputs in place of hidden states and are never committed.
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
class HeadReader(lag.Reader):
  """Reads pairs with a head on the target's hidden states.

  Attributes:
    model: the head.
    tail: see `lag.Reader`.
  """

  model: base.FeatureHead
  tail: int = components.static()

  num_left = 1
  ahead = 1  # A pair predicts what follows its token, which is the next one.

  def num_entries(self, context: base.Context) -> jax.Array:
    """Returns `[B]` how many pairs there are."""
    return context.lengths - 1

  def prefill(
    self, params: base.Params, context: base.Context, size: int
  ) -> base.Cache:
    """Reads the prompts' pairs except for the last one."""
    tokens, features = context.tokens[:, 1:], context.features
    cache = self.model.init_cache(params, len(tokens), size)
    if tokens.shape[1] < 2:  # No prompt has two pairs.
      return cache
    inputs = self.model.fuse(params, tuple(state[:, :-1] for state in features))
    _, pending = self.model.extend(params, None, tokens, inputs)
    path = jnp.broadcast_to(np.arange(tokens.shape[1]), tokens.shape)
    num = jnp.maximum(self.num_entries(context) - self.num_left, 0)
    return self.model.commit(cache, pending, path, num)

  def read(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    num: int,
  ) -> lag.ReadEntries:
    """Reads the next pairs; where there are fewer, zeros that no pair sees."""
    at = cache.lengths[:, None] + np.arange(num)[None]
    exists = at < self.num_entries(context)[:, None]
    features = tuple(
      jnp.where(exists[..., None], trees.at_entries(states, at), 0)
      for states in context.features
    )
    tokens = jnp.where(exists, trees.at_entries(context.tokens, at + 1), 0)
    outputs, pending = self.model.extend(
      params,
      cache,
      tokens,
      self.model.fuse(params, features),
      positions=jnp.where(exists, at, -1),
    )
    return lag.ReadEntries(outputs, pending, outputs)

  def read_tail(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    depth: int,
    may_stop_early: bool,
  ) -> lag.Tail:
    """Reads the pairs that the cache lacks, first one first.

    After the drafter's own rounds, at most `depth + 1` pairs are missing, and
    on CPUs no more are read than that; often one, if it may stop early.
    Elsewhere, a few pairs take as long as one does, and a choice in the program
    would take longer.
    """
    shortest = (1,) if may_stop_early else ()
    num_entries = self.num_entries(context)
    lags = (num_entries - cache.lengths)[:, None]

    def read(num):
      entries = self.read(params, cache, context, num)
      return entries.outputs, entries.pending

    widths = *shortest, depth + 1, self.tail
    outputs, pending = lag.read_missing(
      widths, context.of_rows(lags).max(), read
    )
    last = trees.at_entries(outputs, lags - 1)
    exists = np.arange(self.tail)[None] < lags
    return lag.Tail(last, pending, exists, num_entries > 0)

  def tail_path(self, lags: jax.Array, index: np.ndarray) -> jax.Array:
    """Returns their order, as the first pair was read first."""
    return jnp.broadcast_to(index, (len(lags), index.shape[1]))

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
    """Reads nodes, each with the output from which it was drawn."""
    return self.model.extend(
      params,
      cache,
      tokens,
      parents.outputs,
      pending_kv=pending,
      positions=positions,
      mask=mask,
    )

  def predict(
    self,
    params: base.Params,
    outputs: jax.Array,
    sampling: sampling_lib.Sampling,
  ) -> tree_drafting.Prediction:
    """Returns the predictions of outputs `[B, W, F]`, with the outputs."""
    logits = self.model.predict(params, outputs)
    return tree_drafting.predict(logits, sampling, outputs)


def make_reader(head: base.FeatureHead, depth: int) -> HeadReader:
  """Returns the reader of a drafter whose trees have a depth."""
  return HeadReader(head, lag.tail_of_draft(depth))
