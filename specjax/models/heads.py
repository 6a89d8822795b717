"""Heads that draft from the hidden states (features) of a target model."""

import dataclasses
import functools
import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import components
from specjax import registry
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import flax_modules
from specjax.models import head_config
from specjax.models import kv_cache

HeadConfig = head_config.HeadConfig

_NO_BIASES: dict[str, Any] = {
  'qkv_bias': False,
  'out_bias': False,
  'mlp_bias': False,
}
# Rows of the embedding that identify a model.
_FINGERPRINT_ROWS = 16


def configure(
  kind: str,
  target: config_lib.Config,
  *,
  head_size: int | None = None,
  for_servers: bool = False,
  **options: Any,
) -> HeadConfig:
  """Returns the config of a head for a target.

  The layers of a head are like the target's. Those of 'eagle' and 'eagle3' are
  Llama's: they have neither biases nor normalized queries, and the feed-forward
  layer reads the result of the attention, with one norm in between.

  Args:
    kind: 'eagle', 'eagle3', 'medusa' or 'dflash'.
    target: the target's config.
    head_size: number of tokens that can be drafted; None for all.
    for_servers: only for 'dflash': whether its layers are Qwen3's, with
      normalized queries and without biases, whatever the target, and the tap -1
      is left out of the default. Servers load no other block heads.
    **options: other fields of the config. `taps` of 'eagle3' default to
      `default_taps`, and those of 'dflash' also have the last one, -1.

  Raises:
    ValueError: the kind is unknown, the target is not a decoder-only
      transformer or has too few layers for a tap, or `for_servers` is True for
      another kind.
  """
  config_class: Any = registry.lookup(head_config.CONFIGS, 'kind of head', kind)
  if not isinstance(target, config_lib.TransformerConfig):
    raise ValueError(
      'A head needs the features of a decoder-only transformer, got a '
      f'{type(target).__name__}.'
    )
  if for_servers and kind != 'dflash':
    raise ValueError(
      f'for_servers must be False in a head of the kind {kind}, got True.'
    )
  if kind in ('eagle3', 'dflash'):
    last = (-1,) if kind == 'dflash' and not for_servers else ()
    taps = *default_taps(target.num_layers), *last
    options = {'taps': taps, **options}
  _check_taps(options.get('taps', (-1,)), target.num_layers)
  layer = dataclasses.replace(
    target, num_layers=1, tie_embeddings=False, head_size=head_size
  )
  if kind in ('eagle', 'eagle3'):
    # As in published heads: servers load Llama's layer, whatever the target.
    layer = dataclasses.replace(
      layer,
      **_NO_BIASES,
      qk_norm=False,
      post_norms=False,
      parallel_residual=False,
    )
  if for_servers:
    layer = dataclasses.replace(layer, **_NO_BIASES, qk_norm=True)
  config = config_class(layer=layer, **options)
  if head_size is not None or config.has_own_output:
    return config
  layer = dataclasses.replace(layer, tie_embeddings=target.tie_embeddings)
  return dataclasses.replace(config, layer=layer)


def _check_taps(taps: tuple[int, ...], num_layers: int) -> None:
  """Raises `ValueError` unless a target with `num_layers` has the taps."""
  if any(not -num_layers - 1 <= tap <= num_layers for tap in taps):
    raise ValueError(
      f'taps must lie in [{-num_layers - 1}, {num_layers}] for a target of '
      f'{num_layers} layers, got {tuple(taps)}.'
    )


def default_taps(num_layers: int) -> tuple[int, ...]:
  """Returns the taps of EAGLE-3: the inputs of three layers.

  These are the third layer, the middle one and the third from the end (Li et
  al. 2025). With fewer than seven layers, the first and the last replace the
  third ones.
  """
  edge = 2 if num_layers >= 7 else 0
  middle = num_layers // 2
  return tuple(sorted({edge, middle, num_layers - 1 - edge}))


def head(
  config: HeadConfig, dtype: jax.typing.DTypeLike = jnp.float32
) -> base.AnyHead:
  """Returns the head that a config of any kind describes."""
  if isinstance(config, head_config.MedusaConfig):
    return MedusaHead(config, dtype)
  if isinstance(config, head_config.DFlashConfig):
    return DFlashHead(config, dtype)
  return EagleHead(config, dtype)


@components.component
class EagleHead(flax_modules.Computed, base.FeatureHead):
  """A head of EAGLE or EAGLE-3; its cache is a `kv_cache.KVCache`.

  Its parameters are a nested dict, from `flax_modules.init_params`, `begin` or
  a checkpoint. It converts hidden states of its target to its type.

  Attributes:
    config: the architecture.
    dtype: type of the computations and of the cache.
  """

  config: head_config.EagleConfig | head_config.Eagle3Config = (
    components.static()
  )
  dtype: jax.typing.DTypeLike = components.static(default=jnp.float32)

  @property
  def taps(self) -> tuple[int, ...]:
    """See `FeatureHead.taps`."""
    return self.config.taps

  @property
  def feature_size(self) -> int:
    """See `FeatureHead.feature_size`."""
    return self.config.layer.d_model

  @property
  def vocab_size(self) -> int:
    """`V`."""
    return self.config.layer.vocab_size

  @property
  def max_length(self) -> int:
    """Number of positions that the head was trained for."""
    return self.config.layer.max_length

  def init_cache(
    self, params: base.Params, batch: int, size: int
  ) -> kv_cache.KVCache:
    """See `FeatureHead.init_cache`."""
    del params
    layer = self.config.layer
    shape = batch, layer.num_kv_heads, size, layer.head_dim
    return kv_cache.init(1, shape, self.dtype)

  def fuse(
    self, params: base.Params, features: tuple[jax.Array, ...]
  ) -> jax.Array:
    """See `FeatureHead.fuse`."""
    return _merge(self, params).fuse(_in_dtype(self, features))

  def extend(
    self,
    params: base.Params,
    cache: kv_cache.KVCache | None,
    tokens: jax.Array,
    inputs: jax.Array,
    *,
    pending_kv: kv_cache.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> tuple[jax.Array, kv_cache.PendingKV]:
    """See `FeatureHead.extend`."""
    return flax_modules.run(
      self, params, cache, (tokens, inputs), pending_kv, positions, mask
    )

  def predict(self, params: base.Params, outputs: jax.Array) -> jax.Array:
    """See `FeatureHead.predict`."""
    return _merge(self, params).predict(outputs)

  def likeliest(
    self, params: base.Params, outputs: jax.Array, num: int
  ) -> tuple[jax.Array, jax.Array]:
    """See `FeatureHead.likeliest`."""
    return _likeliest(self, params, outputs, num)

  def commit(
    self,
    cache: kv_cache.KVCache,
    pending_kv: kv_cache.PendingKV,
    path: jax.Array,
    num: jax.Array,
  ) -> kv_cache.KVCache:
    """See `FeatureHead.commit`."""
    return kv_cache.commit(cache, pending_kv, path, num)

  def rollback(
    self, cache: kv_cache.KVCache, lengths: jax.Array
  ) -> kv_cache.KVCache:
    """See `FeatureHead.rollback`."""
    return kv_cache.rollback(cache, lengths)


@components.component
class MedusaHead(flax_modules.Computed, base.ParallelHead):
  """The heads of Medusa.

  Their parameters are a nested dict, from `flax_modules.init_params`, `begin`
  or a checkpoint. They convert hidden states of their target to their type.

  Attributes:
    config: the architecture.
    dtype: type of the computations.
  """

  config: head_config.MedusaConfig = components.static()
  dtype: jax.typing.DTypeLike = components.static(default=jnp.float32)

  @property
  def num_steps(self) -> int:
    """`K`."""
    return self.config.num_steps

  @property
  def taps(self) -> tuple[int, ...]:
    """See `ParallelHead.taps`."""
    return self.config.taps

  @property
  def feature_size(self) -> int:
    """See `ParallelHead.feature_size`."""
    return self.config.layer.d_model

  @property
  def vocab_size(self) -> int:
    """`V`."""
    return self.config.layer.vocab_size

  def predict(
    self, params: base.Params, features: tuple[jax.Array, ...]
  ) -> jax.Array:
    """See `ParallelHead.predict`."""
    return _merge(self, params)(_in_dtype(self, features))

  def likeliest(
    self, params: base.Params, features: tuple[jax.Array, ...], num: int
  ) -> tuple[jax.Array, jax.Array]:
    """See `ParallelHead.likeliest`."""
    return _likeliest(self, params, _in_dtype(self, features), num)


@components.component
class DFlashHead(flax_modules.Computed, base.BlockHead):
  """A head of DFlash or DSpark; its cache is a `kv_cache.KVCache`.

  Its parameters are a nested dict, from `flax_modules.init_params`, `begin` or
  a checkpoint. It converts hidden states of its target to its type.

  Attributes:
    config: the architecture.
    dtype: type of the computations and of the cache.
  """

  config: head_config.DFlashConfig = components.static()
  dtype: jax.typing.DTypeLike = components.static(default=jnp.float32)

  @property
  def block_size(self) -> int:
    """See `BlockHead.block_size`."""
    return self.config.block_size

  @property
  def mask_token(self) -> int:
    """See `BlockHead.mask_token`."""
    return self.config.mask_token

  @property
  def first_output(self) -> int:
    """See `BlockHead.first_output`."""
    return int(not self.config.predicts_next)

  @property
  def taps(self) -> tuple[int, ...]:
    """See `BlockHead.taps`."""
    return self.config.taps

  @property
  def feature_size(self) -> int:
    """See `BlockHead.feature_size`."""
    return self.config.layer.d_model

  @property
  def vocab_size(self) -> int:
    """`V`."""
    return self.config.layer.vocab_size

  @property
  def max_length(self) -> int:
    """Number of positions that the head was trained for."""
    return self.config.layer.max_length

  def init_cache(
    self, params: base.Params, batch: int, size: int
  ) -> kv_cache.KVCache:
    """See `BlockHead.init_cache`."""
    del params
    layer = self.config.layer
    shape = batch, layer.num_kv_heads, size, layer.head_dim
    return kv_cache.init(self.config.num_layers, shape, self.dtype)

  def encode(
    self,
    params: base.Params,
    features: tuple[jax.Array, ...],
    positions: jax.Array,
  ) -> kv_cache.PendingKV:
    """See `BlockHead.encode`."""
    return _merge(self, params).encode(_in_dtype(self, features), positions)

  def extend(
    self,
    params: base.Params,
    cache: kv_cache.KVCache | None,
    tokens: jax.Array,
    *,
    pending_kv: kv_cache.PendingKV | None = None,
    positions: jax.Array | None = None,
    mask: jax.Array | np.ndarray | None = None,
  ) -> tuple[jax.Array, kv_cache.PendingKV]:
    """See `BlockHead.extend`."""
    return flax_modules.run(
      self, params, cache, (tokens,), pending_kv, positions, mask
    )

  def predict(self, params: base.Params, outputs: jax.Array) -> jax.Array:
    """See `BlockHead.predict`."""
    return _merge(self, params).predict(outputs)

  def condition(
    self, params: base.Params, logits: jax.Array, tokens: jax.Array
  ) -> jax.Array:
    """See `BlockHead.condition`."""
    return _merge(self, params).condition(logits, tokens)

  def commit(
    self,
    cache: kv_cache.KVCache,
    pending_kv: kv_cache.PendingKV,
    path: jax.Array,
    num: jax.Array,
  ) -> kv_cache.KVCache:
    """See `BlockHead.commit`."""
    return kv_cache.commit(cache, pending_kv, path, num)

  def rollback(
    self, cache: kv_cache.KVCache, lengths: jax.Array
  ) -> kv_cache.KVCache:
    """See `BlockHead.rollback`."""
    return kv_cache.rollback(cache, lengths)


def _in_dtype(
  head: EagleHead | MedusaHead | DFlashHead, features: tuple[jax.Array, ...]
) -> tuple[jax.Array, ...]:
  """Returns hidden states in the type of a head's computations."""
  return tuple(states.astype(head.dtype) for states in features)


def _merge(
  head: EagleHead | MedusaHead | DFlashHead, params: base.Params
) -> Any:
  """Returns the modules of a head with parameters."""
  return flax_modules.merge(head.config, params, head.dtype)


def _likeliest(
  head: EagleHead | MedusaHead, params: base.Params, x: Any, num: int
) -> tuple[jax.Array, jax.Array]:
  """Returns the likeliest tokens that can be drafted; see `base`."""
  modules = _merge(head, params)
  return modules.likeliest(modules.predict_drafted(x), num)


def begin(
  key: jax.Array,
  config: HeadConfig,
  target: config_lib.TransformerConfig,
  params: base.Params,
  tokens: Any = None,
) -> base.Params:
  """Returns the initial parameters of a head, for training.

  Parameters that it shares are the target's arrays. A separate output head
  begins as a copy of the target's. EAGLE's projection begins as the feature
  plus random projections of the feature and of the embedding, scaled to have
  the same size. The final norm of DFlash begins as the target's.

  Args:
    key: random key of the other parameters.
    config: config of the head.
    target: config of its target.
    params: parameters of its target.
    tokens: `[H]` ids that can be drafted, if the config has a `head_size`.

  Raises:
    ValueError: the number of tokens is not `head_size`.
  """
  initial = flax_modules.init_params(key, config)
  initial['embedding'] = params['embedding']
  if isinstance(config, head_config.EagleConfig) and config.taps == (-1,):
    initial['join'] = _begin_join(initial['join'], target, params)
  if isinstance(config, head_config.DFlashConfig):
    initial['final_norm'] = params['final_norm']
  if config.layer.tie_embeddings:
    return initial
  if config.layer.head_size is not None:
    num_tokens = 0 if tokens is None else len(tokens)
    if num_tokens != config.layer.head_size:
      raise ValueError(
        f'tokens must have head_size={config.layer.head_size} entries, got '
        f'{num_tokens}.'
      )
    _, narrow = cutting.narrow_head(target, params, tokens)
    initial |= {name: narrow[name] for name in ('head_rows', 'head')}
  else:
    initial['head'] = cutting.output_head(params, None)
  for i in initial.get('more_heads', ()):
    initial['more_heads'][i] = initial['head']
  return initial


def _begin_join(
  join: base.Params,
  target: config_lib.TransformerConfig,
  params: base.Params,
) -> base.Params:
  """Returns the initial projection of an embedding and a feature.

  The random weights of the embedding are scaled by the ratio of the sizes.
  SmolLM2's embeddings are a thirteenth of its features: without the scale, a
  head would learn little from them for a long time.
  """
  kernel = join['kernel']
  size = kernel.shape[1]
  ratio = _feature_size(target, params) / _embedding_size(target, params)
  kernel = (
    kernel.at[:size]
    .multiply(ratio)
    .at[size:]
    .add(jnp.eye(size, dtype=jnp.float32))
  )
  return {**join, 'kernel': kernel}


def _feature_size(
  target: config_lib.TransformerConfig, params: base.Params
) -> jax.Array:
  """Returns the root mean square of the input of the target's output head."""
  norm = params['final_norm']
  scale = norm['scale'] + float(target.norm_unit_offset)
  shift = norm.get('bias', jnp.zeros((), jnp.float32))
  return jnp.sqrt(jnp.square(scale).mean() + jnp.square(shift).mean())


def _embedding_size(
  target: config_lib.TransformerConfig, params: base.Params
) -> jax.Array:
  """Returns the root mean square of the target's embeddings."""
  size = jnp.sqrt(jnp.square(params['embedding']['embedding']).mean())
  return size * (target.d_model**0.5 if target.scale_embeddings else 1.0)


def shared_params(
  config: HeadConfig, params: base.Params, rows: Any = None
) -> base.Params:
  """Returns the parameters that a head shares with its target.

  Args:
    config: config of the head.
    params: parameters of its target.
    rows: See `cutting.output_head`.
  """
  shared = {'embedding': params['embedding']}
  if 'head' in shared_names(config) and not config.layer.tie_embeddings:
    shared['head'] = cutting.output_head(params, rows)
  return shared


def shared_names(config: HeadConfig) -> tuple[str, ...]:
  """Returns the names of the parameters that a head shares with its target.

  They are neither stored nor trained.
  """
  return ('embedding',) if config.has_own_output else ('embedding', 'head')


def own_params(config: HeadConfig, params: base.Params) -> base.Params:
  """Returns a head's parameters without those that it shares."""
  shared = shared_names(config)
  return {name: leaf for name, leaf in params.items() if name not in shared}


def fingerprint(params: base.Params) -> str:
  """Returns a hash of the first rows of a target's embedding.

  It identifies the target. Parameters in float32 and in bfloat16 have different
  fingerprints.
  """
  table = params['embedding']['embedding']
  rows = np.asarray(table[:_FINGERPRINT_ROWS], np.float32)
  return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()[:16]


def check_target(
  name: str, config: HeadConfig, target: Any, params: base.Params
) -> None:
  """Checks that a head was trained for a target.

  Args:
    name: name of the head, for errors.
    config: config of the head.
    target: config of the target.
    params: parameters of the target.

  Raises:
    ValueError: the head was trained for another target; the error names the
      difference.
  """
  layer = configure('eagle', target).layer
  for field in ('d_model', 'vocab_size'):
    value, expected = getattr(config.layer, field), getattr(layer, field)
    if value != expected:
      raise ValueError(
        f'The head {name} belongs to another target: its {field} is {value}, '
        f'but this target has {expected}.'
      )
  target_fingerprint = fingerprint(params)
  if config.target and config.target != target_fingerprint:
    raise ValueError(
      f'The head {name} belongs to a target whose embedding has the '
      f'fingerprint {config.target}, but this target has {target_fingerprint}.'
    )
  _check_taps(config.taps, target.num_layers)


def drafted_logits(
  config: HeadConfig, dtype: jax.typing.DTypeLike = jnp.float32
) -> Any:
  """Returns `(params, x) -> logits` of the `H` tokens that can be drafted.

  Losses use it. For EAGLE and EAGLE-3, `x` are outputs `[B, T, F]`, and the
  logits are `[B, T, H]`. For Medusa, `x` is a tuple of features, and the logits
  are `[B, T, K, H]`. DFlash takes outputs `[B, T, F]` and the tokens `[B, T]`
  before the predicted ones.
  """
  merge = functools.partial(flax_modules.merge, config, dtype=dtype)
  return lambda params, *x: merge(params).predict_drafted(*x)
