"""A head on the target's hidden states that drafts a block in one call: DFlash.

"DFlash: Block Diffusion for Flash Speculative Decoding" (arXiv:2602.06036). The
head reads the last token and mask tokens, all of which see each other and the
keys and values of the target's hidden states at all earlier tokens (see
`dflash_modules`). Every level of the tree has one output, whatever tokens are
drafted above it; with a Markov head (DSpark, arXiv:2607.05147), the logits of a
node's children also depend on the node's token. A row of 4 tokens and a head
whose tokens predict the next ones, for a tree of depth 3:

    position        0    1    2    3    4    5
    hidden states   h0   h1   h2   -                the cache, and the tail
    block                          d    m    m      never committed
    predicts                       1    2    3      levels
"""

import dataclasses
import functools

import jax
import numpy as np

from specjax import base
from specjax import components
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import block_reader
from specjax.drafters import lag
from specjax.drafters import static_tree
from specjax.drafters import tree_drafting


@components.component
class BlockHeadDrafter(static_tree.StaticTreeDrafter):
  """Drafts trees whose siblings are all different from one block of a head.

  Siblings are drawn without replacement. At temperature 0 they are the most
  likely tokens, and a tree that has some only has `raw_probs`. The state is the
  head's cache.

  Attributes:
    head: the head on the target's hidden states.
    topology: the tree to draft, at least one node.
    sampling: how tokens are drawn; usually the same as the target's.
    bonus_probs: see `StaticTreeDrafter`; takes one mask token more instead of a
      call.
    stop: see `StaticTreeDrafter`.

  Raises:
    ValueError: the tree has no nodes, or is deeper than the head's blocks.
  """

  head: base.BlockHead
  topology: trees.Topology = components.static()
  sampling: sampling_lib.Sampling = sampling_lib.Sampling()
  _: dataclasses.KW_ONLY
  bonus_probs: bool = components.static(default=False)
  stop: base.StopRule | None = None

  num_calls = 1

  def __post_init__(self) -> None:
    super().__post_init__()
    head = self.head
    deepest = head.block_size - head.first_output - self.bonus_probs
    if self.topology.depth > deepest:
      raise ValueError(
        f'topology must have a depth of at most {deepest}, as the head was '
        f'trained for blocks of {head.block_size} tokens, got '
        f'{self.topology.depth}.'
      )

  @functools.cached_property
  def reader(self) -> block_reader.BlockReader:
    """Reads the target's hidden states."""
    tail = lag.tail_of_draft(self.topology.depth)
    return block_reader.BlockReader(self.head, tail)

  @functools.cached_property
  def estimating_reader(self) -> block_reader.BlockReader:
    """Reads blocks that are as long as those of drafts."""
    num_outputs = 1 + self.tree_spec.read_depth
    return dataclasses.replace(self.reader, num_outputs=num_outputs)

  @functools.cached_property
  def tree_spec(self) -> tree_drafting.TreeSpec:
    """Specifies the tree."""
    return tree_drafting.TreeSpec(
      self.topology,
      self.sampling,
      self.bonus_probs,
      self.stop,
      tree_drafting.tree_siblings(self.topology, self.sampling, distinct=True),
    )

  def draft(
    self,
    keys: jax.Array,
    params: base.Params,
    state: base.Cache,
    context: base.Context,
  ) -> tuple[base.DraftTree, base.PendingKV]:
    """Reads the tail and a block, which predict all levels; see `Drafter`.

    A row of one token, without hidden states to read, has no valid nodes.
    After the drafter's own rounds, the hidden states at `depth + 1` tokens at
    most are missing. On CPUs, no more are read than that.
    """
    outputs, pending = lag.read_missing(
      (self.topology.depth + 1, self.reader.tail),
      context.of_rows(self._lag(state, context)).max(),
      functools.partial(self._read, params, state, context),
    )
    logits = self.head.predict(params, outputs)

    def predict(level, tokens):
      conditioned = self.head.condition(params, logits[:, [level]], tokens)
      prediction = tree_drafting.predict(conditioned, self.sampling)
      return tree_drafting.repeat(prediction, tokens.shape[1])

    def read_level(depth, tokens, parents, pending):
      del parents
      return predict(depth + 1, tokens), pending

    last = context.last_tokens()
    root = predict(0, last)
    return tree_drafting.draft_tree(
      self.tree_spec,
      read_level,
      keys,
      context,
      root,
      pending,
      valid=self.reader.num_entries(context) > 0,
    )

  def _read(
    self,
    params: base.Params,
    cache: base.Cache,
    context: base.Context,
    num: int,
  ) -> tuple[jax.Array, base.PendingKV]:
    """Reads up to `num` missing entries, and a block after them.

    Returns:
      `[B, M + 1, F]` the outputs of the levels, and the uncommitted KV of the
      entries.
    """
    pending = self.reader.encode(params, cache, context, num)
    outputs = self.reader.read_blocks(
      params,
      cache,
      context,
      pending,
      context.lengths[:, None] - 1,
      np.ones((1, num), bool),
      self.estimating_reader.num_outputs,
    )
    return outputs[:, 0], pending
