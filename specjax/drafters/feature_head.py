"""A head on the target's hidden states that drafts level by level: EAGLE.

What it has computed for drafted tokens, with its own outputs in place of hidden
states, is thrown away: accepted ones are read again with the target's (EAGLE,
Li et al. 2024).
"""

import dataclasses
import functools

from specjax import base
from specjax import components
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import head_reader
from specjax.drafters import static_tree
from specjax.drafters import tree_drafting


@components.component
class FeatureHeadDrafter(static_tree.StaticTreeDrafter):
  """Drafts trees whose siblings are all different with a feature head.

  Siblings are drawn without replacement. At temperature 0 they are the most
  likely tokens, and a tree that has some only has `raw_probs`. A prompt of one
  token gets no draft in the first round, as no hidden state is known yet. The
  state is the head's cache.

  Attributes:
    head: the head on the target's hidden states.
    topology: the tree to draft, at least one node.
    sampling: how tokens are drawn; usually the same as the target's.
    bonus_probs: see `StaticTreeDrafter`.
    stop: see `StaticTreeDrafter`.
  """

  head: base.FeatureHead
  topology: trees.Topology = components.static()
  sampling: sampling_lib.Sampling = sampling_lib.Sampling()
  _: dataclasses.KW_ONLY
  bonus_probs: bool = components.static(default=False)
  stop: base.StopRule | None = None

  @functools.cached_property
  def reader(self) -> head_reader.HeadReader:
    """Reads pairs with the head."""
    return head_reader.make_reader(self.head, self.topology.depth)

  @functools.cached_property
  def tree_spec(self) -> tree_drafting.TreeSpec:
    """Specifies the tree."""
    return tree_drafting.TreeSpec(
      self.topology,
      self.sampling,
      self.bonus_probs,
      self.stop,
      tree_drafting.tree_siblings(self.topology, self.sampling, distinct=True),
      reads_leaves=False,
    )
