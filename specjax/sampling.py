"""From logits to float32 probabilities, and from a uniform to a token.

Draft, verification and bonus token all go through `probabilities`, so that the
distribution a draft was drawn from is, bit for bit, the one in the ratio.

With shared noise, a token is drawn by the Gumbel-max trick instead, and its
noise depends only on the row's key and the position (Daliri et al. 2025,
"Coupling without Communication and Drafter-Invariant Speculative Decoding").
"""

from collections.abc import Iterable
import dataclasses
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import bisection
from specjax import checks

# Below, logits of any size would overflow; what is meant is 0.
_COLDEST = 1e-6
# Fields whose values are leaves, and the values that skip a step instead.
_SKIPPED = {'temperature': (0.0, 1.0), 'top_p': (1.0,), 'min_p': (0.0,)}
# Weights that one uniform is spread over at most: with the 23 bits of a float32
# uniform and sums of 24, a draw's chances are off by at most 2**-23 each.
_SPREAD = 384
# Folded into a position's key for its shared noise. Drafting and verification
# split that key in two, which are its first two children.
_NOISE = 2


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Sampling:
  """How tokens are drawn: temperature, then top-k, then top-p, then min-p.

  It is a pytree. `temperature`, `top_p` and `min_p` are leaves, so that one
  program serves all of their values, except for those that skip a step and so
  make another program: temperatures 0 and 1, `top_p` 1 and `min_p` 0.

  Attributes:
    temperature: divides the logits; 0 is greedy, else at least 1e-6.
    top_k: keep the `k` most likely tokens (and those tied with the last), or
      None.
    top_p: keep the smallest set of most likely tokens with at least this mass
      (and those tied with its last), in (0, 1].
    min_p: keep tokens of at least this share of the most likely one's mass, in
      [0, 1].
    shared_noise: draw the token at each position by noise that comes from the
      row's key and the position alone. The text that a seed gives is then that
      of plain decoding, whatever is drafted, and a drafter that shares the
      noise often drafts the target's token. It needs a temperature above 0.
  """

  temperature: float = 1.0
  top_k: int | None = None
  top_p: float = 1.0
  min_p: float = 0.0
  shared_noise: bool = False

  def __post_init__(self) -> None:
    for name in _SKIPPED:
      value = getattr(self, name)
      if isinstance(value, str):
        raise ValueError(f'{name} must be a number, got {value!r}.')
      if isinstance(value, int | np.number):
        object.__setattr__(self, name, float(value))
    if checks.is_known(self.temperature):
      values = np.asarray(self.temperature, np.float64)
      is_valid = (_COLDEST <= values) & (values < math.inf)
      # Greedy decoding is another program, which an array does not select.
      is_valid |= (values == 0) & isinstance(self.temperature, float)
      if not is_valid.all():
        raise ValueError(
          f'temperature must be 0 (greedy) or lie in [{_COLDEST:g}, inf), and '
          f'a number instead of an array if it is 0, got {self.temperature}.'
        )
    if self.top_k is not None:
      checks.check_integers('top_k', self.top_k, 1)
    if checks.is_known(self.top_p):
      values = np.asarray(self.top_p, np.float64)
      if not ((0 < values) & (values <= 1)).all():
        raise ValueError(f'top_p must lie in (0, 1], got {self.top_p}.')
    checks.check_range('min_p', self.min_p, 0, 1)
    if self.shared_noise and self.is_greedy:
      raise ValueError(
        'shared_noise must be False at temperature 0, where nothing is drawn, '
        'got True.'
      )

  @property
  def is_greedy(self) -> bool:
    """Whether the most likely token is taken: the temperature is 0."""
    return self.skips('temperature') and self.temperature == 0

  @property
  def chooses(self) -> bool:
    """Whether a token follows from the probabilities and the shared noise."""
    return self.is_greedy or self.shared_noise

  @property
  def keeps_probs(self) -> bool:
    """Whether tokens are drawn from the model's own distribution."""
    return (
      self.top_k is None
      and all(map(self.skips, _SKIPPED))
      and not self.is_greedy
    )

  def skips(self, name: str) -> bool:
    """Returns whether a field has a value that skips a step."""
    value = getattr(self, name)
    return isinstance(value, float) and value in _SKIPPED[name]

  def tree_flatten(self) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """Returns the leaves, with None for values that skip a step, and these."""
    skips = [self.skips(name) for name in _SKIPPED]
    values = [getattr(self, name) for name in _SKIPPED]
    leaves = tuple(None if skip else v for skip, v in zip(skips, values))
    skipped = tuple(v if skip else None for skip, v in zip(skips, values))
    return leaves, (self.top_k, self.shared_noise, *skipped)

  @classmethod
  def tree_unflatten(
    cls, metadata: tuple[Any, ...], leaves: Iterable[Any]
  ) -> 'Sampling':
    """Returns the instance that `tree_flatten` has taken apart."""
    top_k, shared_noise, *skipped = metadata
    values = [
      leaf if value is None else value for leaf, value in zip(leaves, skipped)
    ]
    options = dict(zip(_SKIPPED, values))
    return cls(top_k=top_k, shared_noise=shared_noise, **options)


def both_probs(logits: jax.Array, sampling: Sampling) -> base.Probs:
  """Returns `[..., V]` processed and raw probabilities."""
  processed = probabilities(logits, sampling)
  if sampling.keeps_probs:
    return base.Probs(processed, processed)
  return base.Probs(processed, probabilities(logits, Sampling()))


def probabilities(logits: jax.Array, sampling: Sampling) -> jax.Array:
  """Returns the float32 distribution `[..., V]` that tokens are drawn from.

  Args:
    logits: `[..., V]`; minus infinity forbids a token.
    sampling: temperature 0 gives a one-hot row on the first largest logit.
  """
  logits = logits.astype(jnp.float32)
  if sampling.is_greedy:
    best = most_likely(logits)
    return jax.nn.one_hot(best, logits.shape[-1], dtype=jnp.float32)
  if not sampling.skips('temperature'):
    logits = logits / sampling.temperature
  if sampling.top_k is not None and sampling.top_k < logits.shape[-1]:
    smallest = jax.lax.top_k(logits, sampling.top_k)[0][..., -1:]
    logits = jnp.where(logits >= smallest, logits, -jnp.inf)
  probs = jax.nn.softmax(logits)
  if not sampling.skips('top_p'):
    probs = jnp.where(probs >= _nucleus(probs, sampling.top_p), probs, 0.0)
    probs /= probs.sum(-1, keepdims=True)
  if not sampling.skips('min_p'):
    least = sampling.min_p * probs.max(-1, keepdims=True)
    probs = jnp.where(probs >= least, probs, 0.0)
    probs /= probs.sum(-1, keepdims=True)
  return probs


def most_likely(scores: jax.Array) -> jax.Array:
  """Returns the first largest index along the last axis, int32.

  TPUs use `jnp.argmax`. Elsewhere, the block with the largest score is found
  first and then its position in the block, which is several times faster on a
  CPU.
  """
  return jax.lax.platform_dependent(
    scores,
    tpu=lambda scores: jnp.argmax(scores, axis=-1).astype(jnp.int32),
    default=_most_likely_by_blocks,
  )


def _most_likely_by_blocks(scores: jax.Array) -> jax.Array:
  """Finds the largest block, then the first largest index in it."""
  blocks = _blocks(scores, -jnp.inf)
  block = jnp.argmax(blocks.max(axis=-1), axis=-1)
  inside = jnp.argmax(
    jnp.take_along_axis(blocks, block[..., None, None], axis=-2)[..., 0, :],
    axis=-1,
  )
  index = (block * blocks.shape[-1] + inside).astype(jnp.int32)
  return jnp.minimum(index, scores.shape[-1] - 1)  # Where all are -inf.


def _blocks(values: jax.Array, padding: float, levels: int = 2) -> jax.Array:
  """Cuts the last axis `V` into blocks of about `V**(1 / levels)`."""
  size = values.shape[-1]
  width = _width(size, levels)
  if size % width:
    pad = [(0, 0)] * (values.ndim - 1) + [(0, -size % width)]
    values = jnp.pad(values, pad, constant_values=padding)
  return values.reshape(*values.shape[:-1], -1, width)


def _width(size: int, levels: int) -> int:
  """Returns a divisor of `V` near its root: padding would copy all values."""
  root = max(1, math.ceil(size ** (1 / levels) - 1e-9))
  divisors = (width for width in range(root, 3 * root) if size % width == 0)
  return next(divisors, root)


def _nucleus(probs: jax.Array, top_p: float) -> jax.Array:
  """The largest threshold whose tokens have mass `top_p`, `[..., 1]`.

  Floats from 0 to 1 are ordered like their bit patterns, so bisecting the 30
  bits finds the exact threshold with 30 sums instead of a sort of `V`.
  """

  def is_enough(bits):
    threshold = jax.lax.bitcast_convert_type(bits, jnp.float32)
    mass = jnp.where(probs >= threshold, probs, 0.0).sum(-1, keepdims=True)
    return mass >= top_p

  low = jnp.zeros((*probs.shape[:-1], 1), jnp.int32)
  low, _ = bisection.bisect(is_enough, low, jnp.int32(1 << 30), 30)
  return jax.lax.bitcast_convert_type(low, jnp.float32)


def num_uniforms(vocab_size: int) -> int:
  """Returns `U`, how many uniforms a draw from `vocab_size` weights takes."""
  num = 1
  while _SPREAD**num < vocab_size:
    num += 1
  return num


def draw(uniforms: jax.Array, weights: jax.Array) -> jax.Array:
  """Draws a token by inverting the cumulative distribution.

  A large vocabulary is cut into blocks, and those into smaller ones: each
  uniform picks among a few hundred sums. One for all tokens would be too
  coarse. It is several times cheaper than Gumbel noise, too.

  Args:
    uniforms: `[U]` in [0, 1), as many as `num_uniforms(V)`.
    weights: `[V]` non-negative, of any positive sum.

  Returns:
    `[]` int32 token, never one of weight 0.
  """
  num = num_uniforms(weights.shape[0])
  if uniforms.shape != (num,):
    raise ValueError(
      f'uniforms must be of shape ({num},) for {weights.shape[0]} weights, got '
      f'{uniforms.shape}.'
    )
  if num == 1:
    return _pick(uniforms[0], weights)
  blocks = _blocks(weights, 0.0, num)
  block = draw(uniforms[:-1], blocks.sum(axis=-1))
  return block * blocks.shape[1] + _pick(uniforms[-1], blocks[block])


def tokens(
  uniforms: jax.Array,
  logits: jax.Array,
  probs: jax.Array,
  sampling: Sampling,
) -> jax.Array:
  """Draws `[B, N]` int32 tokens.

  Args:
    uniforms: `[B, N, U]`, see `draw`.
    logits: `[B, N, V]`.
    probs: `[B, N, V]`, what `probabilities` makes of them.
    sampling: at temperature 0, the most likely tokens are taken.
  """
  if sampling.is_greedy:
    return most_likely(logits)  # XLA shares it with `probabilities`.
  return jax.vmap(jax.vmap(draw))(uniforms, probs)


def _pick(uniform: jax.Array, weights: jax.Array) -> jax.Array:
  """Draws one of a few weights, int32.

  The first positive weight whose cumulative sum is past the threshold; the last
  one if rounding has put none there. A product and a maximum, since a scan is
  many small steps on every device. The sums round differently, so that they
  step where the weight is 0, so only positive weights are considered.
  """
  size = weights.shape[0]
  index = np.arange(size, dtype=np.int32)
  triangle = (index[:, None] <= index).astype(np.float32)
  sums = jnp.matmul(weights, triangle, precision='highest')
  past = sums > uniform * sums[-1]
  order = jnp.where(past, 2 * size - index, index)
  return jnp.argmax(jnp.where(weights > 0, order, -1)).astype(jnp.int32)


def race_times(
  noise: base.Noise, offsets: np.ndarray, vocab_size: int
) -> jax.Array:
  """Returns `[B, T, V]` exponential noise of all tokens at positions.

  Args:
    noise: of the rows.
    offsets: `[T]` distances of the positions from the row's next token.
    vocab_size: `V`.
  """

  def times(key: jax.Array, position: jax.Array) -> jax.Array:
    key = jax.random.fold_in(jax.random.fold_in(key, position), _NOISE)
    words = jax.random.bits(key, (2, vocab_size), jnp.uint32)
    high, low = words.astype(jnp.float32)
    # The second word gives small numbers, by which unlikely tokens win, as many
    # digits as others have: a float32 uniform is a multiple of 2**-23.
    uniform = (high + (low + 0.5) * 2.0**-32) * 2.0**-32
    return -jnp.log1p(-uniform)

  positions = noise.start[:, None] + offsets[None]
  return jax.vmap(jax.vmap(times, (None, 0)))(noise.keys, positions)


def race(times: jax.Array, probs: jax.Array) -> jax.Array:
  """Returns `[..., V]` scores, the first largest of which is a sample.

  It is a sample of `probs`, and the `k` largest are `k` samples without
  replacement (the Gumbel-max and the Gumbel-top-k trick): `probs / times` is
  largest where `log(probs) + g` is, with Gumbel noise `g = -log(times)`.
  Similar distributions with the same noise often have the same sample: with
  probability `1 - TV` over `1 + TV` at least.

  Args:
    times: `[..., V]` from `race_times`.
    probs: `[..., V]`; where it is 0, the score is -inf.
  """
  return jnp.where(probs > 0, probs / times, -jnp.inf)


def row_keys(key: jax.Array, request_ids: jax.Array) -> jax.Array:
  """Returns `[B]` keys; a row's key depends only on its request."""
  return jax.vmap(lambda request: jax.random.fold_in(key, request))(request_ids)
