"""Architectures of language models, as frozen dataclasses."""

import dataclasses
import numbers
import types
import typing
from typing import Any
from typing import ClassVar
from typing import Protocol

_ROPE_KINDS = ('linear', 'llama3', 'factors')


@dataclasses.dataclass(frozen=True)
class RopeScaling:
  """Stretches rotary embeddings beyond the trained context.

  Attributes:
    kind: 'linear' (every frequency divided by `factor`), 'llama3' (only
      wavelengths longer than the original context, blended in between) or
      'factors' (each frequency divided by `factor` times its own factor).
    factor: how far the context is stretched, at least 1.
    low_frequency_factor: llama3, wavelengths above original / this are scaled.
    high_frequency_factor: llama3, wavelengths below original / this are kept.
    original_context: llama3, context length in tokens before stretching.
    factors: factors, one for each of the `rotary_dim / 2` frequencies.
  """

  kind: str
  factor: float
  low_frequency_factor: float = 1.0
  high_frequency_factor: float = 4.0
  original_context: int = 8192
  factors: tuple[float, ...] = ()

  def __post_init__(self) -> None:
    check_types(self)
    _check_choice('RopeScaling.kind', self.kind, _ROPE_KINDS)
    if self.factor < 1:
      raise ValueError(f'RopeScaling.factor must be >= 1, got {self.factor}.')
    _check_factors(self.factors)


class Config(Protocol):
  """A dataclass that describes the architecture of any language model."""

  __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

  def __hash__(self) -> int: ...

  @property
  def vocab_size(self) -> int:
    """`V`, the tokens that can be emitted."""

  @property
  def padded_vocab_size(self) -> int | None:
    """Rows of the embedding table where they exceed `V`."""

  @property
  def table_size(self) -> int:
    """Rows of the embedding table."""

  @property
  def num_layers(self) -> int:
    """Number of blocks; of the deeper stack, if there are two."""

  @property
  def d_model(self) -> int:
    """Width of the residual stream."""

  @property
  def num_heads(self) -> int:
    """Number of attention heads of each layer."""

  @property
  def tie_embeddings(self) -> bool:
    """Whether the output head is the transposed embedding table."""

  @property
  def max_length(self) -> int:
    """Number of positions that the model was trained for."""


@dataclasses.dataclass(frozen=True)
class TransformerConfig:
  """The architecture of a decoder-only transformer.

  Its fields cover the differences between Llama, Mistral, Qwen, Gemma, Phi and
  GPT-NeoX.

  Attributes:
    vocab_size: `V`, the tokens that can be emitted.
    num_layers: number of blocks.
    d_model: width of the residual stream.
    num_heads: query heads.
    num_kv_heads: key and value heads; divides `num_heads` (grouped queries).
    head_dim: width of a head, even.
    d_ff: hidden width of the feed-forward layer.
    norm: 'rms' or 'layer'.
    norm_epsilon: added to the variance.
    norm_unit_offset: scale by `1 + weight` (Gemma) instead of `weight`.
    post_norms: also normalize the outputs of attention and feed-forward
      (Gemma 2).
    activation: 'silu', 'gelu' (exact) or 'gelu_tanh'.
    gated: gated feed-forward (SwiGLU, GeGLU) or a plain two-layer one.
    qk_norm: normalize each query and key head before it is rotated (Qwen3,
      Gemma 3).
    qkv_bias: biases of the query, key and value projections.
    out_bias: bias of the attention output projection.
    mlp_bias: biases of the feed-forward layers.
    tie_embeddings: the output head is the transposed embedding table.
    head_size: size of a reduced vocabulary, the tokens that the model can emit
      (FR-Spec, EAGLE-3); all others have probability 0. None for `vocab_size`.
    scale_embeddings: multiply embeddings by `sqrt(d_model)` (Gemma).
    rope_theta: base of the rotary frequencies.
    local_rope_theta: base of the rotary frequencies of local layers, which are
      then never stretched (Gemma 3); None for those of the global layers.
    rotary_fraction: share of each head that is rotated (GPT-NeoX: 0.25).
    rope_scaling: how the context is stretched, or None.
    attention_scale: factor on query-key products; None for `head_dim**-0.5`.
    attention_softcap: cap `c` in `c * tanh(x / c)` on those products, or None.
    logit_softcap: cap of the same form on the output logits, or None.
    sliding_window: number of tokens that a query in a local layer attends to,
      including its own token, or None.
    local_layers: which layers are local if there is a `sliding_window`, as a
      repeated pattern: (True, False) in Gemma 2. By default all of them.
    parallel_residual: attention and feed-forward read the same input
      (GPT-NeoX).
    padded_vocab_size: rows of the embedding table where they exceed `V`; the
      extra logits are cut off.
    max_length: number of positions that the model was trained for.
    mask_token: the token that stands for a token to predict, if the model was
      trained to predict several tokens at once (PARD), or None.
  """

  vocab_size: int
  num_layers: int
  d_model: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  d_ff: int
  norm: str = 'rms'
  norm_epsilon: float = 1e-5
  norm_unit_offset: bool = False
  post_norms: bool = False
  activation: str = 'silu'
  gated: bool = True
  qk_norm: bool = False
  qkv_bias: bool = False
  out_bias: bool = False
  mlp_bias: bool = False
  tie_embeddings: bool = True
  head_size: int | None = None
  scale_embeddings: bool = False
  rope_theta: float = 10000.0
  local_rope_theta: float | None = None
  rotary_fraction: float = 1.0
  rope_scaling: RopeScaling | None = None
  attention_scale: float | None = None
  attention_softcap: float | None = None
  logit_softcap: float | None = None
  sliding_window: int | None = None
  local_layers: tuple[bool, ...] = (True,)
  parallel_residual: bool = False
  padded_vocab_size: int | None = None
  max_length: int = 2048
  mask_token: int | None = None

  def __post_init__(self) -> None:
    check_types(self)
    check_positive(self, 'num_layers', 'num_kv_heads', *SIZES)
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        f'num_kv_heads must divide num_heads ({self.num_heads}), got '
        f'{self.num_kv_heads}.'
      )
    if self.rotary_dim % 2:
      raise ValueError(
        f'head_dim * rotary_fraction must be even, got {self.rotary_dim}.'
      )
    _check_choice('norm', self.norm, ('rms', 'layer'))
    _check_choice('activation', self.activation, ('silu', 'gelu', 'gelu_tanh'))
    check_table(self)
    _check_rope_scaling(self)
    if self.head_size is not None:
      _check_head_size(self, self.head_size)
    if self.mask_token is not None and not (
      0 <= self.mask_token < self.vocab_size
    ):
      raise ValueError(
        f'mask_token must lie in [0, {self.vocab_size}), the vocabulary, or be '
        f'None, got {self.mask_token}.'
      )
    if self.sliding_window is not None and self.sliding_window < 1:
      raise ValueError(
        f'sliding_window must be >= 1 or None, got {self.sliding_window}.'
      )

  @property
  def rotary_dim(self) -> int:
    """Number of entries of a head that are rotated."""
    return int(self.head_dim * self.rotary_fraction)

  @property
  def product_scale(self) -> float:
    """The factor on query-key products."""
    return self.attention_scale or self.head_dim**-0.5

  @property
  def table_size(self) -> int:
    """Rows of the embedding table."""
    return self.padded_vocab_size or self.vocab_size

  def is_local(self, layer: int) -> bool:
    """Returns whether a layer attends only to the sliding window."""
    if self.sliding_window is None:
      return False
    return self.local_layers[layer % len(self.local_layers)]


# Python types, and the abstract types that NumPy's numbers also have.
_NUMBERS: dict[type, type] = {int: numbers.Integral, float: numbers.Real}
# Fields of all configs that must be positive.
SIZES = (
  'vocab_size',
  'd_model',
  'num_heads',
  'head_dim',
  'd_ff',
  'max_length',
)


def check_types(config: Any) -> None:
  """Raises `ValueError` if a field has another type than its annotation.

  Configs are read from files, which may contain anything.
  """
  for name, hint in typing.get_type_hints(type(config)).items():
    union = typing.get_origin(hint) is types.UnionType
    kinds = [
      _NUMBERS.get(kind, typing.get_origin(kind) or kind)
      for kind in (typing.get_args(hint) if union else (hint,))
    ]
    value = getattr(config, name)
    if not isinstance(value, tuple(kinds)):
      type_name = getattr(hint, '__name__', hint)
      raise ValueError(f'{name} must be of type {type_name}, got {value!r}.')


def check_positive(config: Any, *names: str) -> None:
  """Raises `ValueError` if one of the fields is below 1."""
  for name in names:
    if getattr(config, name) < 1:
      raise ValueError(f'{name} must be >= 1, got {getattr(config, name)}.')


def check_table(config: Any) -> None:
  """Raises `ValueError` if the embedding table is too small."""
  if config.table_size < config.vocab_size:
    raise ValueError(
      f'padded_vocab_size must be >= vocab_size ({config.vocab_size}), got '
      f'{config.padded_vocab_size}.'
    )


def _check_head_size(config: TransformerConfig, head_size: int) -> None:
  """Raises `ValueError` if `head_size` is out of range or the head is tied."""
  if not 1 <= head_size <= config.vocab_size:
    raise ValueError(
      f'head_size must lie in [1, {config.vocab_size}], the vocabulary, or be '
      f'None, got {head_size}.'
    )
  if config.tie_embeddings:
    raise ValueError(
      'tie_embeddings must be False if there is a head_size, got True.'
    )


def _check_factors(factors: tuple[Any, ...]) -> None:
  """Raises `ValueError` unless all factors are positive numbers."""
  if not all(isinstance(f, numbers.Real) and float(f) > 0 for f in factors):
    raise ValueError(f'RopeScaling.factors must be numbers > 0, got {factors}.')


def _check_rope_scaling(config: TransformerConfig) -> None:
  """Raises `ValueError` unless there is one factor per rotary frequency."""
  scaling = config.rope_scaling
  if scaling is None or scaling.kind != 'factors':
    return
  if len(scaling.factors) != config.rotary_dim // 2:
    raise ValueError(
      f'RopeScaling.factors must have {config.rotary_dim // 2} entries, half '
      f'of the rotated entries of a head, got {len(scaling.factors)}.'
    )


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
  """Raises `ValueError` unless a value is one of the choices."""
  if value not in choices:
    raise ValueError(f'{name} must be one of {choices}, got {value!r}.')


def from_dict(fields: dict[str, Any]) -> TransformerConfig:
  """Builds a config from plain values, as read from JSON.

  Args:
    fields: names and values of `TransformerConfig`; `rope_scaling` may be a
      dict of `RopeScaling`'s fields.

  Raises:
    ValueError: a field is unknown (the known ones are listed) or out of range.
  """
  check_known('transformer config', TransformerConfig, fields)
  fields = dict(fields)
  if isinstance(fields.get('rope_scaling'), dict):
    scaling = fields['rope_scaling']
    check_known('rope_scaling', RopeScaling, scaling)
    factors = tuple(scaling.get('factors', ()))
    fields['rope_scaling'] = RopeScaling(**scaling | {'factors': factors})
  if 'local_layers' in fields:
    fields['local_layers'] = tuple(fields['local_layers'])
  return TransformerConfig(**fields)


def check_known(kind: str, cls: Any, fields: dict[str, Any]) -> None:
  """Raises `ValueError` if a dataclass lacks one of the fields."""
  known = [field.name for field in dataclasses.fields(cls)]
  unknown = sorted(set(fields) - set(known))
  if unknown:
    raise ValueError(
      f'Unknown {kind} field {unknown[0]!r}. Known: {", ".join(known)}.'
    )
