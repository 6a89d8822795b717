"""The target's first layers and its head as a drafter, without training.

The simplest member of the family of LayerSkip (Elhoushi et al. 2024) and
Kangaroo (Liu et al. 2024), which train the target, or a layer after the exit.
"""

import functools

from specjax import components
from specjax.drafters import autoregressive
from specjax.drafters import model_reader


@components.component
class EarlyExit(autoregressive.Autoregressive):
  """Drafts with the first layers of a model, and its head.

  Its parameters are those of the whole model.

  Attributes:
    model: the target model.
    topology: the tree to draft, at least one node.
    sampling: see `Autoregressive`.
    num_layers: number of layers that are computed.

  Raises:
    ValueError: the model cannot be left early, or has fewer layers.
  """

  num_layers: int = components.static(kw_only=True)

  def __post_init__(self) -> None:
    super().__post_init__()
    self.model.exit(self.num_layers)  # Raises for layers that it lacks.

  @functools.cached_property
  def reader(self) -> model_reader.ModelReader:
    """Reads tokens with the first layers."""
    return model_reader.ModelReader(self.model.exit(self.num_layers))
