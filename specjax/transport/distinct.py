"""Probabilities of draws without replacement, as integrals over time.

Draw tokens i.i.d., again and again. The first draws of `k` different tokens
are `k` draws without replacement. Call each draw *good* with a probability that
depends on its token only, and let the weight of a token be the probability that
a draw is this token and not good. This module computes the probability that a
good draw comes before `k` different tokens have been seen among the other
draws.

Let the draws arrive as a Poisson process with rate 1. Then each token arrives
at the rate of its weight, good draws arrive at the remaining rate, and all of
these are independent. If the first good draw arrives at time `t`, a token has
not arrived before it with probability `exp(-weight * t)`. The number of tokens
that have arrived is a sum of independent indicators, so its distribution is a
product of polynomials. Integrating over `t` gives the result.

Two uses:

- If draws of tokens outside a set are good, the integral is the probability
  that `k` draws without replacement are not all in the set.
- Count the good draws and the different other tokens until there are `k`. The
  integral for the `i`-th good draw is the probability that at least `i` of the
  `k` are good. Their number does not depend on their tokens, so the tokens are
  i.i.d. given the number.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.transport import numerics

# Nodes and weights of the integral over time: the trapezoidal rule in `x` after
# the substitution `t = exp(x - exp(-x))`, the double-exponential formula for
# integrands that decay like `exp(-t)` (Takahasi and Mori 1974). For large `x`,
# `x` is the logarithm of time. The weights have the factor `dt / dx = t * (1 +
# exp(-x))`. The error is about 1e-6 for few drafts and grows with their number.
_STEP = 0.3
_NODES = np.arange(-3.6, 34, _STEP)
_TIMES = np.exp(_NODES - np.exp(-_NODES))
_TIME_WEIGHTS = _STEP * _TIMES * (1 + np.exp(-_NODES))
# Number of tokens whose arrival is computed exactly. The other tokens are
# numerous and have small weights; see `_elementary_symmetric`.
_NUM_LARGE = 128
# The integrand is 0 where this many arrivals are expected.
_MAX_EXPONENT = 80.0


def any_good(
  weights: jax.Array,
  good: jax.Array,
  num_drafts: jax.Array,
  max_drafts: int,
  large: jax.Array,
) -> jax.Array:
  """Returns `[]`, how likely a good draw precedes `k` different other tokens.

  Args:
    weights: `[V]`, for each token, the probability that a draw is this token
      and not good.
    good: `[]` probability that a draw is good; `good` and `weights` sum to 1.
    num_drafts: `[]` int32, `k >= 0`.
    max_drafts: static upper bound of `num_drafts`.
    large: the result of `large_indices` for `weights`, or for an array that
      is at least `weights` everywhere.
  """
  return _at_least(weights, good, num_drafts, max_drafts, large, 1)[0]


def count_good(
  weights: jax.Array,
  good: jax.Array,
  num_drafts: jax.Array,
  max_drafts: int,
  large: jax.Array,
) -> jax.Array:
  """Returns `[max_drafts]` probabilities of 1, 2, ... good draws among `k`.

  Entry `i - 1` is the probability that exactly `i` of the first `k` draws that
  count are good. A draw counts if it is good or its token is new. The
  probabilities sum to 1 minus the probability that no draw is good. The
  arguments are those of `any_good`.
  """
  at_least = jax.lax.cummin(
    _at_least(weights, good, num_drafts, max_drafts, large, max_drafts)
  )
  return at_least - jnp.append(at_least[1:], 0.0)


def large_indices(weights: jax.Array) -> jax.Array:
  """Returns the indices of the largest weights, which are computed exactly."""
  return jax.lax.top_k(weights, min(_NUM_LARGE, weights.size))[1]


def _at_least(
  weights: jax.Array,
  good: jax.Array,
  num_drafts: jax.Array,
  max_drafts: int,
  large: jax.Array,
  max_good: int,
) -> jax.Array:
  """Returns `[max_good]` probabilities of at least 1, 2, ... good draws."""
  # A mask, not a scatter into the weights: a search over the weights would
  # repeat the scatter in every step.
  is_large = jnp.zeros(weights.size, bool).at[large].set(True)
  small = jnp.where(is_large, 0.0, weights)
  times = jnp.asarray(_TIMES, weights.dtype)
  # A small token contributes `exp(-w t) * (1 + (exp(w t) - 1) * z)` to the
  # product. The factors `exp(-w t)` are part of the density below.
  rate = good + small.sum()
  is_over = rate * times > _MAX_EXPONENT
  times = jnp.where(is_over, 0.0, times)
  exponents = weights[large][:, None] * times[None]
  # Coefficients of `exp(-w t) + (1 - exp(-w t)) * z`, for each large token.
  factors = jnp.stack([jnp.exp(-exponents), -jnp.expm1(-exponents)], axis=-1)
  # [T, max_drafts] how likely 0, 1, ... different other tokens have arrived.
  arrived = _multiply(
    _product(factors, max_drafts),
    _elementary_symmetric(small, times, max_drafts),
    max_drafts,
  )
  density = jnp.where(is_over, 0.0, good * jnp.exp(-rate * times))
  time_weights = jnp.asarray(_TIME_WEIGHTS, weights.dtype)
  probs = []
  for i in range(1, max_good + 1):
    # `density` is that of the `i`-th good draw. It counts if no more than
    # `k - i` other tokens have arrived before it.
    allowed = np.arange(max_drafts) <= num_drafts - i
    not_too_many = jnp.where(allowed, arrived, 0.0).sum(axis=-1)
    probs.append((time_weights * density * not_too_many).sum())
    density *= good * times / i
  return numerics.rounded(jnp.stack(probs))


def any_outside(draft: jax.Array, num_drafts: int) -> jax.Array:
  """Returns `[V + 1]` probabilities that some draft is not in `range(n)`.

  Args:
    draft: `[V]` distribution of the first of the draws without replacement.
    num_drafts: `k` draws.

  Returns:
    For `n` = 0, 1, ... `V`, the probability that the `k` drafts are not all
    among the first `n` tokens. The last entry is 0.
  """
  times = jnp.asarray(_TIMES, draft.dtype)
  time_weights = jnp.asarray(_TIME_WEIGHTS)
  outside = jnp.cumsum(draft[::-1])[::-1]

  def step(
    arrived: jax.Array, token: tuple[jax.Array, jax.Array]
  ) -> tuple[jax.Array, jax.Array]:
    # `arrived` `[T, k]`: how likely 0, 1, ... `k - 1` of the tokens so far have
    # arrived. Draws of all other tokens are good.
    weight, good = token
    density = time_weights * good * jnp.exp(-good * times)
    prob = (density * arrived.sum(axis=-1)).sum()
    missing = jnp.exp(-weight * times)[:, None]
    shifted = jnp.pad(arrived, ((0, 0), (1, 0)))[:, :-1]
    return arrived * missing + shifted * (1 - missing), prob

  start = jnp.zeros((times.size, num_drafts), draft.dtype).at[:, 0].set(1.0)
  _, probs = jax.lax.scan(step, start, (draft, outside))
  return jnp.append(probs, 0.0)


def _product(factors: jax.Array, max_size: int) -> jax.Array:
  """Returns `[T, max_size]`, the product of polynomials `[M, T, 2]`.

  Polynomials are arrays of coefficients, of which the first `max_size` are
  kept. Factors are multiplied in pairs, pairs of pairs, and so on.
  """
  while len(factors) > 1:
    if len(factors) % 2:
      one = jnp.zeros_like(factors[:1]).at[..., 0].set(1.0)
      factors = jnp.concatenate([factors, one])
    factors = _multiply(factors[::2], factors[1::2], max_size)
  return factors[0]


def _multiply(first: jax.Array, second: jax.Array, max_size: int) -> jax.Array:
  """Returns the first `max_size` coefficients of a product of polynomials."""
  size = min(first.shape[-1] + second.shape[-1] - 1, max_size)
  columns = [
    sum(
      first[..., i] * second[..., j - i]
      for i in range(first.shape[-1])
      if 0 <= j - i < second.shape[-1]
    )
    for j in range(size)
  ]
  return jnp.stack(columns, axis=-1)


def _elementary_symmetric(
  weights: jax.Array, times: jax.Array, max_size: int
) -> jax.Array:
  """Returns `[T, max_size]` elementary symmetric polynomials of small tokens.

  They are the coefficients of `z` in the product over tokens of `1 + a * z`
  with `a = exp(weight * t) - 1`. Newton's identities compute them from the
  power sums, where `s_i` is the sum of `a**i` over tokens:

    e_j = (e_(j-1) s_1 - e_(j-2) s_2 + e_(j-3) s_3 - ...) / j

  Each power sum is a Taylor series in the moments, the sums over tokens of
  `(weight * t)**i`. Terms above the fourth order are dropped. Where `weight *
  t` is large enough for them to matter, so many of the large tokens have
  arrived that the integrand is negligible.
  """
  total = weights.sum()
  shares = weights / jnp.where(total > 0, total, 1.0)
  # Powers of `total * times`, since powers of late times alone overflow.
  moments = [(shares**i).sum() * (total * times) ** i for i in range(1, 5)]
  first, second, third, fourth = moments
  power_sums = [
    first + second / 2 + third / 6 + fourth / 24,
    second + third + fourth * 7 / 12,
    third + fourth * 3 / 2,
    fourth,
  ]
  symmetric = [jnp.ones_like(times)]
  for j in range(1, max_size):
    terms = [
      (-1) ** (i - 1) * symmetric[j - i] * power_sums[i - 1]
      for i in range(1, min(j, len(power_sums)) + 1)
    ]
    symmetric.append(sum(terms) / j)
  return jnp.stack(symmetric, axis=-1)
