"""Configurations of heads, which draft from features of their target."""

import dataclasses
from typing import Any

from specjax.models import config as config_lib


@dataclasses.dataclass(frozen=True)
class _HeadConfig:
  """What all heads have.

  Attributes:
    layer: a transformer of one layer, as wide as the target and with its
      vocabulary: the layer of heads that have one, and what tokens are embedded
      with and predicted by. Its `head_size` are the tokens that can be drafted.
    taps: features of the target that are read: indices of
      `base.ModelOutput.features`, of which -1 is what the target's head reads.
    target: fingerprint of the target (see `heads.fingerprint`), or '' if it is
      not known.
    kind: one of `CONFIGS`, that of the class.
  """

  layer: config_lib.TransformerConfig
  taps: tuple[int, ...] = (-1,)
  target: str = ''
  kind: str = ''

  def __post_init__(self):
    config_lib.check_types(self)
    if self.kind != type(self).kind:
      raise ValueError(f'kind must be {type(self).kind!r}, got {self.kind!r}.')
    if self.layer.num_layers != 1:
      raise ValueError(
        f'layer must be of one layer, got num_layers={self.layer.num_layers}.'
      )
    if not self.taps or len(set(self.taps)) < len(self.taps):
      raise ValueError(
        f'taps must name different features, at least one, got {self.taps}.'
      )

  @property
  def has_own_output(self) -> bool:
    """Whether tokens are predicted by a matrix that is not the target's."""
    return False


@dataclasses.dataclass(frozen=True)
class EagleConfig(_HeadConfig):
  """The head of EAGLE-1 and EAGLE-2 (Li et al. 2024).

  Attributes:
    bias: of the projection that joins embedding and feature.
  """

  kind: str = 'eagle'
  bias: bool = True

  def __post_init__(self):
    super().__post_init__()
    _check_one_tap(self)


@dataclasses.dataclass(frozen=True)
class Eagle3Config(_HeadConfig):
  """The head of EAGLE-3 (Li et al. 2025).

  Attributes:
    norm_taps: each feature is normalised before they are joined (EAGLE-3.1).
    norm_output: steps on its own outputs read them normalised (EAGLE-3.1).
    norm_before_residual: the residual starts at the normalised input.
  """

  kind: str = 'eagle3'
  norm_taps: bool = False
  norm_output: bool = False
  norm_before_residual: bool = False

  def __post_init__(self):
    super().__post_init__()
    if self.layer.tie_embeddings:
      raise ValueError(
        'eagle3 has a head of its own: tie_embeddings of its layer must be '
        'False.'
      )

  @property
  def has_own_output(self) -> bool:
    """As `_HeadConfig.has_own_output`."""
    return True


@dataclasses.dataclass(frozen=True)
class MedusaConfig(_HeadConfig):
  """The heads of Medusa (Cai et al. 2024), each of a later token.

  Attributes:
    num_steps: `K`, tokens that are predicted, one by each head.
    num_blocks: residual blocks of each head.
    own_heads: every head has an output head of its own, instead of all the
      target's.
  """

  kind: str = 'medusa'
  num_steps: int = 4
  num_blocks: int = 1
  own_heads: bool = False

  def __post_init__(self):
    super().__post_init__()
    _check_one_tap(self)
    for name in ('num_steps', 'num_blocks'):
      if getattr(self, name) < 1:
        raise ValueError(f'{name} must be >= 1, got {getattr(self, name)}.')
    if self.own_heads and self.layer.tie_embeddings:
      raise ValueError(
        'own_heads need a layer whose tie_embeddings is False, got True.'
      )

  @property
  def has_own_output(self) -> bool:
    """As `_HeadConfig.has_own_output`."""
    return self.own_heads


HeadConfig = EagleConfig | Eagle3Config | MedusaConfig

CONFIGS: dict[str, type[HeadConfig]] = {
  'eagle': EagleConfig,
  'eagle3': Eagle3Config,
  'medusa': MedusaConfig,
}


def from_dict(fields: dict[str, Any]) -> HeadConfig:
  """Builds a config from plain values, as read from JSON.

  Args:
    fields: names and values of the config that `kind` names; `layer` may be a
      dict of `TransformerConfig`'s fields.

  Raises:
    ValueError: a field is unknown (the known ones are listed) or out of range.
  """
  kind = fields.get('kind')
  if kind not in CONFIGS:
    raise ValueError(
      f'Unknown kind of head {kind!r}. Known: {", ".join(CONFIGS)}.'
    )
  config_lib.check_known(f'{kind} config', CONFIGS[kind], fields)
  layer = fields.get('layer')
  if isinstance(layer, dict):
    layer = config_lib.from_dict(layer)
  taps = tuple(fields.get('taps', (-1,)))
  return CONFIGS[kind](**{**fields, 'layer': layer, 'taps': taps})


def _check_one_tap(config):
  if len(config.taps) != 1:
    raise ValueError(
      f'taps of {config.kind} must be one feature, got {config.taps}.'
    )
