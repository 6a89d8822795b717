"""A small language model that drafts token by token."""

import dataclasses
import functools

from specjax import base
from specjax import components
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import model_reader
from specjax.drafters import static_tree
from specjax.drafters import tree_drafting


@components.component
class Autoregressive(static_tree.StaticTreeDrafter):
  """Samples children at every node from a small language model.

  Its state is the model's KV cache.

  Attributes:
    model: the draft model.
    topology: the tree to draft; the empty one only with `bonus_probs`.
    sampling: how tokens are drawn; usually the same as the target's.
    bonus_probs: see `StaticTreeDrafter`.
    stop: see `StaticTreeDrafter`.
    distinct: whether siblings are drawn without replacement instead of i.i.d.;
      at temperature 0, they are the most likely tokens. A chain has none.
  """

  model: base.LanguageModel
  topology: trees.Topology = components.static()
  sampling: sampling_lib.Sampling = sampling_lib.Sampling()
  _: dataclasses.KW_ONLY
  bonus_probs: bool = components.static(default=False)
  stop: base.StopRule | None = None
  distinct: bool = components.static(default=False)

  def __post_init__(self) -> None:
    super().__post_init__()
    has_siblings = self.topology.width > 1
    object.__setattr__(self, 'distinct', self.distinct and has_siblings)

  @functools.cached_property
  def reader(self) -> model_reader.ModelReader:
    """Reads tokens with the model."""
    return model_reader.ModelReader(self.model)

  @functools.cached_property
  def num_levels(self) -> int:
    """All levels that are read: their KV is that of the committed tokens."""
    return self.tree_spec.read_depth

  @functools.cached_property
  def tree_spec(self) -> tree_drafting.TreeSpec:
    """Specifies the tree."""
    return tree_drafting.TreeSpec(
      self.topology,
      self.sampling,
      self.bonus_probs,
      self.stop,
      tree_drafting.tree_siblings(self.topology, self.sampling, self.distinct),
    )
