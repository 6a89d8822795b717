"""Architectures of encoder-decoders, as frozen dataclasses."""

import dataclasses
from typing import Any

from specjax.models import config as config_lib


@dataclasses.dataclass(frozen=True)
class EncoderDecoderConfig:
  """The architecture of an encoder-decoder of the family T5 v1.1.

  Attributes:
    vocab_size: `V`, the tokens that can be emitted.
    encoder_layers: number of layers of the encoder.
    decoder_layers: number of layers of the decoder.
    d_model: width of the residual streams.
    num_heads: number of attention heads of each layer.
    head_dim: width of a head.
    d_ff: hidden width of the feed-forward layers.
    start_id: the token that ends a prompt and is the decoder's first. The
      tokens before the first start token are the source.
    num_buckets: number of learned biases for relative positions; even, at least
      4. In the encoder, half of them are for keys after the query.
    max_distance: distance from which on all positions share the last bucket.
    tie_embeddings: the output head is the transposed embedding table, and its
      input is scaled by `d_model**-0.5` (the first T5).
    attention_scale: factor on query-key products. T5 has 1, which suits its
      optimizer; with Adam, `head_dim**-0.5` trains well.
    norm_epsilon: added to the variance.
    padded_vocab_size: rows of the embedding table where they exceed `V`; the
      extra logits are cut off.
    max_length: number of positions that the model was trained for, in the
      encoder and in the decoder.
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

  def __post_init__(self) -> None:
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
    """Number of layers of the deeper stack."""
    return max(self.encoder_layers, self.decoder_layers)

  @property
  def table_size(self) -> int:
    """Number of rows of the embedding table."""
    return self.padded_vocab_size or self.vocab_size

  def stack(self, num_layers: int) -> config_lib.TransformerConfig:
    """Returns the config of the layers of the encoder or the decoder."""
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
