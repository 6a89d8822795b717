"""Configurations of encoder-decoders."""

import dataclasses
from typing import Any

from specjax.models import config as config_lib


@dataclasses.dataclass(frozen=True)
class EncoderDecoderConfig:
  """Describes an encoder-decoder of the family T5 v1.1.

  Attributes:
    vocab_size: `V`, the tokens that can be emitted.
    encoder_layers: blocks that read the source.
    decoder_layers: blocks that write.
    d_model: width of the residual streams.
    num_heads: heads of every attention.
    head_dim: width of a head.
    d_ff: hidden width of the feed-forward layers.
    start_id: the token that ends a prompt, which is the decoder's first. The
      tokens before the first start token are the source.
    num_buckets: learnt biases for relative positions, half of them for keys
      after the query where both sides are seen; even, at least 4.
    max_distance: distance from which on all share the last bucket.
    tie_embeddings: the output head is the transposed embedding table, and its
      input is scaled by `d_model**-0.5` (the first T5).
    attention_scale: factor of query-key products. T5 has 1, which suits its
      optimizer; with Adam, `head_dim**-0.5` trains well.
    norm_epsilon: added to the variance.
    padded_vocab_size: rows of the embedding table where they exceed `V`; the
      extra logits are cut off.
    max_length: tokens that the model was made for, on either side.
  """

  vocab_size: int
  encoder_layers: int
  decoder_layers: int
  d_model: int
  num_heads: int
  head_dim: int
  d_ff: int
  start_id: int
  num_buckets: int = 32
  max_distance: int = 128
  tie_embeddings: bool = False
  attention_scale: float = 1.0
  norm_epsilon: float = 1e-6
  padded_vocab_size: int | None = None
  max_length: int = 512

  def __post_init__(self):
    config_lib.check_types(self)
    config_lib.check_positive(
      self, 'encoder_layers', 'decoder_layers', *config_lib.SIZES
    )
    config_lib.check_table(self)
    if not 0 <= self.start_id < self.vocab_size:
      raise ValueError(
        f'start_id must lie in [0, {self.vocab_size}), the vocabulary, got '
        f'{self.start_id}.'
      )
    if self.num_buckets < 4 or self.num_buckets % 2:
      raise ValueError(
        f'num_buckets must be even and >= 4, got {self.num_buckets}.'
      )
    if self.max_distance <= self.num_buckets // 2:
      raise ValueError(
        f'max_distance must be > num_buckets / 2 ({self.num_buckets // 2}), '
        f'got {self.max_distance}.'
      )

  @property
  def num_layers(self) -> int:
    """Returns the blocks of the deeper stack."""
    return max(self.encoder_layers, self.decoder_layers)

  @property
  def table_size(self) -> int:
    """Returns the rows of the embedding table."""
    return self.padded_vocab_size or self.vocab_size

  def stack(self, num_layers: int) -> config_lib.TransformerConfig:
    """Returns the config of the blocks of one side."""
    return config_lib.TransformerConfig(
      vocab_size=self.vocab_size,
      num_layers=num_layers,
      d_model=self.d_model,
      num_heads=self.num_heads,
      num_kv_heads=self.num_heads,
      head_dim=self.head_dim,
      d_ff=self.d_ff,
      norm_epsilon=self.norm_epsilon,
      activation='gelu_tanh',
      rotary_fraction=0.0,
      attention_scale=self.attention_scale,
    )


def from_dict(fields: dict[str, Any]) -> EncoderDecoderConfig:
  """Builds a config from plain values, as read from JSON.

  Raises:
    ValueError: a field is unknown (the known ones are listed) or out of range.
  """
  config_lib.check_known('encoder-decoder config', EncoderDecoderConfig, fields)
  return EncoderDecoderConfig(**fields)
