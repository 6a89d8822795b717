"""A small language model that drafts all levels in one call: PARD.

"PARD: Accelerating LLM Inference with Low-Cost Parallel Draft Model Adaptation"
(arXiv:2504.18583). The model reads the tokens that its KV cache lacks, followed
by mask tokens. The last token predicts the first level of the tree, and the
`k`-th mask token predicts level `k + 1`, whatever tokens are drafted above it.
Mask tokens are forgotten, so that accepted tokens are read with the next draft.
A row that drafts a tree of depth 4:

    tokens     0 1 2 3 4 5 6 7        8 tokens
    cache      0 1 2 3                lengths = 4
    read       7 6 5 4 . m m m        the tail, last token first, and the masks
    predicts   1         2 3 4        levels
    commit     4 5 6 7                the tail
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components
from specjax.drafters import autoregressive
from specjax.drafters import lag
from specjax.drafters import model_reader
from specjax.drafters import tree_drafting


@components.component
class Parallel(autoregressive.Autoregressive):
  """Samples all levels of a tree from one call of a small language model.

  All nodes of a level have the same distribution. Its state is the model's KV
  cache.

  Attributes:
    model: the draft model, trained to predict what follows mask tokens.
    topology: the tree to draft; the empty one only with `bonus_probs`.
    sampling: see `Autoregressive`.
    bonus_probs: see `StaticTreeDrafter`; takes one mask token more instead of a
      call.
    stop: see `StaticTreeDrafter`.
    distinct: see `Autoregressive`.
    mask_token: the token that is read in place of the tokens to predict; None
      for that of the model.

  Raises:
    ValueError: the model has no mask token and none is given, the mask token is
      not in the vocabulary, or the tree is empty.
  """

  mask_token: int | None = components.static(kw_only=True, default=None)

  num_calls = 1
  num_levels = 0  # Accepted tokens were read as mask tokens.

  def __post_init__(self) -> None:
    super().__post_init__()
    if self.mask_token is None:
      object.__setattr__(self, 'mask_token', self.model.mask_token)
    if self.mask_token is None:
      raise ValueError(
        'mask_token must be given for a model that was not trained to predict '
        'mask tokens, got None.'
      )
    checks.check_integers(
      'mask_token', self.mask_token, 0, self.model.vocab_size - 1
    )

  @functools.cached_property
  def reader(self) -> model_reader.ModelReader:
    """Reads the committed tokens, up to a whole draft of which are missing."""
    tail = lag.tail_of_draft(self.topology.depth)
    return model_reader.ModelReader(self.model, tail)

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: base.Cache,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.PendingKV]:
    """Predicts all levels at once; see `Drafter.draft`.

    After the drafter's own rounds, at most `depth + 1` tokens are missing, and
    often two. On CPUs, no more are read than are missing; elsewhere, a few
    tokens take as long as one does.
    """
    logits, pending = lag.read_missing(
      (2, self.topology.depth + 1, self.reader.tail),
      context.of_rows(self._lag(state, context)).max(),
      functools.partial(self._read, params, state, context),
    )
    levels = [
      tree_drafting.predict(logits[:, depth, None], self.sampling)
      for depth in range(logits.shape[1])
    ]

    def read_level(depth, tokens, parents, pending):
      del parents
      width = tokens.shape[1]
      return tree_drafting.repeat(levels[depth + 1], width), pending

    return tree_drafting.draft_tree(
      self.tree_spec, read_level, keys, context, levels[0], pending
    )

  def _read(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    num: int,
  ) -> tuple[jax.Array, base.PendingKV]:
    """Reads up to `num` missing tokens, last one first, and the mask tokens.

    Returns:
      `[B, M + 1, V]` the logits of the levels, and the uncommitted KV.
    """
    masks = 1 + np.arange(self.tree_spec.read_depth)
    offsets = np.concatenate([-np.arange(num), masks])
    positions = context.lengths[:, None] - 1 + offsets[None]
    tokens = jnp.take_along_axis(
      context.tokens, jnp.maximum(positions, 0), axis=1, mode='clip'
    )
    output = self.model.extend(
      params,
      cache,
      jnp.where(offsets[None] > 0, jnp.asarray(self.mask_token), tokens),
      positions=jnp.where(positions >= cache.lengths[:, None], positions, -1),
      mask=offsets[None] <= offsets[:, None],
    )
    logits = jnp.concatenate(
      [output.logits[:, :1], output.logits[:, num:]], axis=1
    )
    return logits, output.pending_kv
