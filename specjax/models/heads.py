"""Heads on a target's features."""

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
from specjax.models import adapters
from specjax.models import config as config_lib
from specjax.models import cutting
from specjax.models import head_config
from specjax.models import kv_cache

HeadConfig = head_config.HeadConfig

# Of the embedding, whose first numbers tell models apart.
_FINGERPRINT_ROWS = 16


def configure(
  kind: str,
  target: config_lib.Config,
  *,
  head_size: int | None = None,
  **options: Any,
) -> HeadConfig:
  """Returns the config of a head for a target.

  Args:
    kind: 'eagle', 'eagle3' or 'medusa'.
    target: the target's config.
    head_size: tokens that can be drafted; None for all.
    **options: other fields of that kind's config. `taps` of 'eagle3' are by
      default what enters the third layer, the middle one and the third from the
      end; closer to the ends where there are fewer than seven layers.

  Raises:
    ValueError: the kind is unknown, the target is no decoder-only transformer,
      or it lacks a tap.
  """
  make: Any = registry.lookup(head_config.CONFIGS, 'kind of head', kind)
  if not isinstance(target, config_lib.TransformerConfig):
    raise ValueError(
      'A head needs the features of a decoder-only transformer, got a '
      f'{type(target).__name__}.'
    )
  if kind == 'eagle3':
    options = {'taps': default_taps(target.num_layers), **options}
  _check_taps(options.get('taps', (-1,)), target.num_layers)
  layer = dataclasses.replace(
    target, num_layers=1, tie_embeddings=False, head_size=head_size
  )
  made = make(layer=layer, **options)
  if head_size is not None or made.has_own_output:
    return made
  layer = dataclasses.replace(layer, tie_embeddings=target.tie_embeddings)
  return dataclasses.replace(made, layer=layer)


def _check_taps(taps, num_layers):
  """Refuses features that a target of so many layers lacks."""
  if any(not -num_layers - 1 <= tap <= num_layers for tap in taps):
    raise ValueError(
      f'taps must lie in [{-num_layers - 1}, {num_layers}] for a target of '
      f'{num_layers} layers, got {tuple(taps)}.'
    )


def default_taps(num_layers: int) -> tuple[int, ...]:
  """Returns the features that EAGLE-3's authors read, or fewer if shallow."""
  edge = 2 if num_layers >= 7 else 0
  middle = num_layers // 2
  return tuple(sorted({edge, middle, num_layers - 1 - edge}))


def head(
  config: HeadConfig, dtype: jax.typing.DTypeLike = jnp.float32
) -> base.FeatureHead | base.ParallelHead:
  """Returns the head of a config of any kind."""
  if isinstance(config, head_config.MedusaConfig):
    return MedusaHead(config, dtype)
  return EagleHead(config, dtype)


@components.component
class EagleHead(adapters.Computed, base.FeatureHead):
  """A head of EAGLE or EAGLE-3; its cache is a `kv_cache.KVCache`.

  Its parameters are a nested dict, from `adapters.init_params`, `begin` or a
  checkpoint.

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
    return _merge(self, params).fuse(features)

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
    return adapters.run(
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
class MedusaHead(adapters.Computed, base.ParallelHead):
  """The heads of Medusa.

  Their parameters are a nested dict, from `adapters.init_params`, `begin` or a
  checkpoint.

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
    return _merge(self, params)(features)

  def likeliest(
    self, params: base.Params, features: tuple[jax.Array, ...], num: int
  ) -> tuple[jax.Array, jax.Array]:
    """See `ParallelHead.likeliest`."""
    return _likeliest(self, params, features, num)


def _merge(head: EagleHead | MedusaHead, params: base.Params) -> Any:
  """Returns the modules of a head, with parameters."""
  return adapters.merge(head.config, params, head.dtype)


def _likeliest(
  head: EagleHead | MedusaHead, params: base.Params, x: Any, num: int
) -> tuple[jax.Array, jax.Array]:
  """Returns the likeliest of the tokens that can be drafted."""
  modules = _merge(head, params)
  return modules.likeliest(modules.predict_drafted(x), num)


def begin(
  key: jax.Array,
  config: HeadConfig,
  target: config_lib.TransformerConfig,
  params: base.Params,
  tokens: Any = None,
) -> base.Params:
  """Returns parameters of a head that begins with its target's.

  Those that it shares are the target's own arrays. Output heads of its own
  begin as the target's; EAGLE's head reads at first the feature as it is, and
  random parts of the feature and of the embedding that count alike.

  Args:
    key: of the other parameters.
    config: of the head.
    target: its target's config.
    params: its target's parameters.
    tokens: ids that can be drafted, where the config has a `head_size`.

  Raises:
    ValueError: there are not as many tokens as the config says.
  """
  made = adapters.init_params(key, config)
  made['embedding'] = params['embedding']
  if isinstance(config, head_config.EagleConfig) and config.taps == (-1,):
    made['join'] = _begin_join(made['join'], target, params)
  if config.layer.tie_embeddings:
    return made
  if config.layer.head_size is not None:
    if len(tokens) != config.layer.head_size:
      raise ValueError(
        f'tokens must be {config.layer.head_size}, the head_size, got '
        f'{len(tokens)}.'
      )
    _, narrow = cutting.narrow_head(target, params, tokens)
    made |= {name: narrow[name] for name in ('head_rows', 'head')}
  else:
    made['head'] = cutting.head_of(params, None)
  for i in made.get('more_heads', ()):
    made['more_heads'][i] = made['head']
  return made


def _begin_join(join, target, params):
  """What joins an embedding and a feature: the feature, and parts of both.

  SmolLM2's embeddings are a thirteenth of its features, so that a head would
  learn little from them for long.
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


def _feature_size(target, params):
  """Root mean square of what the target's head reads."""
  norm = params['final_norm']
  scale = norm['scale'] + float(target.norm_unit_offset)
  shift = norm.get('bias', jnp.zeros((), jnp.float32))
  return jnp.sqrt(jnp.square(scale).mean() + jnp.square(shift).mean())


def _embedding_size(target, params):
  """Root mean square of the target's embeddings."""
  size = jnp.sqrt(jnp.square(params['embedding']['embedding']).mean())
  return size * (target.d_model**0.5 if target.scale_embeddings else 1.0)


def lend(
  config: HeadConfig, params: base.Params, rows: Any = None
) -> base.Params:
  """Returns the parameters that a head shares with its target.

  Args:
    config: of the head.
    params: its target's parameters.
    rows: as of `cutting.head_of`.
  """
  lent = {'embedding': params['embedding']}
  if 'head' in shared(config) and not config.layer.tie_embeddings:
    lent['head'] = cutting.head_of(params, rows)
  return lent


def shared(config: HeadConfig) -> tuple[str, ...]:
  """Returns the parameters that are the target's, never stored or trained."""
  return ('embedding',) if config.has_own_output else ('embedding', 'head')


def own_params(config: HeadConfig, params: base.Params) -> base.Params:
  """Returns a head's parameters without those that it shares."""
  lent = shared(config)
  return {name: each for name, each in params.items() if name not in lent}


def fingerprint(params: base.Params) -> str:
  """Returns what tells a target from others, by a part of its embedding.

  Of parameters in float32; those in bfloat16 have another one.
  """
  table = params['embedding']['embedding']
  rows = np.asarray(table[:_FINGERPRINT_ROWS], np.float32)
  return hashlib.sha256(np.ascontiguousarray(rows).tobytes()).hexdigest()[:16]


def check_target(
  name: str, config: HeadConfig, target: Any, params: base.Params
) -> None:
  """Checks that a head is one of this target.

  Args:
    name: of the head, for errors.
    config: of the head.
    target: the target's config.
    params: the target's parameters.

  Raises:
    ValueError: it is the head of another model; the message says in what it
      differs.
  """
  made = configure('eagle', target)
  for field in ('d_model', 'vocab_size'):
    own, wanted = (getattr(each.layer, field) for each in (config, made))
    if own != wanted:
      raise ValueError(
        f'The head {name} is of another target: its {field} is {own}, that of '
        f'this target is {wanted}.'
      )
  found = fingerprint(params)
  if config.target and config.target != found:
    raise ValueError(
      f'The head {name} was made for a target whose embedding has the '
      f'fingerprint {config.target}, this target has {found}.'
    )
  _check_taps(config.taps, target.num_layers)


# The functions that losses need, of the tokens that can be drafted.


def drafted_logits(
  config: HeadConfig, dtype: jax.typing.DTypeLike = jnp.float32
) -> Any:
  """Returns `(params, x) -> logits[..., H]` of the tokens that can be drafted.

  Of outputs `[B, T, F]`, or for Medusa of features, with an axis `K`.
  """
  merge = functools.partial(adapters.merge, config, dtype=dtype)
  return lambda params, x: merge(params).predict_drafted(x)
