"""The target's first layers and its head as a drafter, without training.

The simplest member of the family of LayerSkip (Elhoushi et al. 2024) and
Kangaroo (Liu et al. 2024), which train the target, or a layer behind the exit.
"""

from typing import Any

from specjax import base
from specjax import registry
from specjax import sampling as sampling_lib
from specjax import trees
from specjax.drafters import autoregression


@registry.component(example={'num_layers': 1})
def early_exit(
  model: base.LanguageModel,
  topology: trees.Topology,
  sampling: sampling_lib.Sampling = sampling_lib.Sampling(),
  *,
  num_layers: int,
  bonus_probs: bool = False,
  **options: Any,
) -> base.Drafter:
  """Builds an autoregressive drafter that leaves its model early.

  Args:
    model: the target; the drafter's parameters are the target's.
    topology: the tree to draft, at least one node.
    sampling: how tokens are drawn; the same as the target's, usually.
    num_layers: layers that are read.
    bonus_probs: as of `autoregressive`.
    **options: of `autoregressive`.

  Raises:
    ValueError: the model cannot be left early, or has fewer layers.
  """
  return autoregression.autoregressive(
    model.exit(num_layers),
    topology,
    sampling,
    bonus_probs=bonus_probs,
    **options,
  )
