"""Configurations of heads, which draft from features of their target model."""

import dataclasses
from typing import Any

from specjax.models import config as config_lib


@dataclasses.dataclass(frozen=True)
class _HeadConfig:
  """The fields that all kinds of heads share.

  Attributes:
    layer: a transformer with one layer and with the width and the vocabulary of
      the target. It describes the embedding, the output head and, if the head
      has one, the transformer layer. Its `head_size` is the number of tokens
      that can be drafted.
    taps: indices of the target's features that the head reads, in
      `base.ModelOutput.features`; -1 is the input of the target's output head.
    target: fingerprint of the target (see `heads.fingerprint`), or '' if it is
      unknown.
    kind: the name of the class in `CONFIGS`.
  """

  layer: config_lib.TransformerConfig
  taps: tuple[int, ...] = (-1,)
  target: str = ''
  kind: str = ''

  def __post_init__(self) -> None:
    config_lib.check_types(self)
    if self.kind != type(self).kind:
      raise ValueError(f'kind must be {type(self).kind!r}, got {self.kind!r}.')
    if self.layer.num_layers != 1:
      raise ValueError(
        f'layer must have num_layers=1, got {self.layer.num_layers}.'
      )
    if not self.taps or len(set(self.taps)) < len(self.taps):
      raise ValueError(
        f'taps must be at least one index, all different, got {self.taps}.'
      )

  @property
  def has_own_output(self) -> bool:
    """Whether the head has an output head that it does not share."""
    return False


@dataclasses.dataclass(frozen=True)
class EagleConfig(_HeadConfig):
  """The head of EAGLE-1 and EAGLE-2 (Li et al. 2024).

  Attributes:
    bias: whether the projection of embedding and feature has a bias.
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
    norm_taps: whether features are normalized before they are joined
      (EAGLE-3.1).
    norm_output: whether outputs are normalized before the next step reads them
      (EAGLE-3.1).
    norm_before_residual: whether the residual begins with the normalized input.
    norm_before_fc: whether features are normalized after they are concatenated,
      all by one norm, before the projection `fc` (the heads of gpt-oss).
  """

  kind: str = 'eagle3'
  norm_taps: bool = False
  norm_output: bool = False
  norm_before_residual: bool = False
  norm_before_fc: bool = False

  def __post_init__(self):
    super().__post_init__()
    if self.layer.tie_embeddings:
      raise ValueError(
        'tie_embeddings must be False in the layer of eagle3, which has a '
        'separate output head, got True.'
      )
    if self.norm_taps and self.norm_before_fc:
      raise ValueError(
        'norm_taps and norm_before_fc normalize the same features; only one of '
        'them may be True.'
      )

  @property
  def has_own_output(self) -> bool:
    """See `_HeadConfig.has_own_output`."""
    return True


@dataclasses.dataclass(frozen=True)
class MedusaConfig(_HeadConfig):
  """The heads of Medusa (Cai et al. 2024).

  Attributes:
    num_steps: `K`, the number of heads, each of which predicts one token.
    num_blocks: number of residual blocks of each head.
    own_heads: whether each head has a separate output head. Otherwise, all use
      the target's.
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
        'tie_embeddings of the layer must be False if own_heads, got True.'
      )

  @property
  def has_own_output(self) -> bool:
    """See `_HeadConfig.has_own_output`."""
    return self.own_heads


@dataclasses.dataclass(frozen=True)
class DFlashConfig(_HeadConfig):
  """The head of DFlash (arXiv:2602.06036) and DSpark (arXiv:2607.05147).

  Attributes:
    num_layers: number of layers, each as `layer` describes.
    block_size: number of tokens in a block: the last token and mask tokens.
    mask_token: the token that stands for a token to predict.
    predicts_next: whether every token of a block predicts the next one
      (DSpark), and not each mask token the one in its place (DFlash).
    markov_rank: rank of the logits that depend on the token before (DSpark's
      Markov head); 0 for none.
  """

  kind: str = 'dflash'
  num_layers: int = 1
  block_size: int = 8
  mask_token: int = 0
  predicts_next: bool = True
  markov_rank: int = 0

  def __post_init__(self):
    super().__post_init__()
    for name, least in _LEAST.items():
      value = getattr(self, name)
      if value < least:
        raise ValueError(f'{name} must be >= {least}, got {value}.')
    last = self.layer.vocab_size - 1
    if not 0 <= self.mask_token <= last:
      raise ValueError(
        f'mask_token must be in [0, {last}], got {self.mask_token}.'
      )


_LEAST = {'num_layers': 1, 'block_size': 2, 'markov_rank': 0}
HeadConfig = EagleConfig | Eagle3Config | MedusaConfig | DFlashConfig

CONFIGS: dict[str, type[HeadConfig]] = {
  'eagle': EagleConfig,
  'eagle3': Eagle3Config,
  'medusa': MedusaConfig,
  'dflash': DFlashConfig,
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


def _check_one_tap(config: _HeadConfig) -> None:
  """Raises `ValueError` unless a config has exactly one tap."""
  if len(config.taps) != 1:
    raise ValueError(
      f'taps of {config.kind} must be one index, got {config.taps}.'
    )
