"""Draws without replacement: how likely `k` different tokens come in time.

Draw tokens again and again. The first draws of `k` different ones are `k` draws
without replacement. Let each draw be good with a chance that its token has, and
let the weight of a token be its chance to be drawn and not to be good. Then the
probability that a good draw comes before `k` different tokens that are not good
is an integral over time: tokens arrive independently of each other, at the rate
of their weights, and good draws at the rate that is left.

With the tokens outside of a set as the good ones, it is the probability that of
`k` draws without replacement not all are in the set.

The same integral, of the second good draw and so on, is how many good draws
there are until they and the different others are `k`. No token of theirs
matters for that, so good draws are i.i.d., however many there are.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.transport import chances

# Points in time at which the integrand is summed: a trapezoidal rule over their
# logarithms, whose error is about 1e-6 for few draws and grows with their
# number.
_STEP = 0.3
_PLACES = np.arange(-3.6, 34, _STEP)
_TIMES = np.exp(_PLACES - np.exp(-_PLACES))
_WIDTHS = _STEP * _TIMES * (1 + np.exp(-_PLACES))
# Weights that are looked at one by one; the others are many, and small.
_NUM_LARGE = 128
# Behind this many arrivals that are expected, nothing is left.
_END = 80.0


def any_good(
  weights: jax.Array,
  good: jax.Array,
  num: jax.Array,
  most: int,
  large: jax.Array,
) -> jax.Array:
  """Returns `[]` the chance of a good draw before `num` different other tokens.

  Args:
    weights: `[V]` chances of a draw of each token that is not good.
    good: `[]` chance of a good draw; `weights` and this sum to 1.
    num: `[]` int32 at least 0, `k`.
    most: the largest `num`.
    large: `large_ones` of the weights, or of what none of them exceeds.
  """
  return _at_least(weights, good, num, most, large, 1)[0]


def count_good(
  weights: jax.Array,
  good: jax.Array,
  num: jax.Array,
  most: int,
  large: jax.Array,
) -> jax.Array:
  """Returns `[most]` how likely 1, 2, ... draws are good, of `num` that count.

  All good draws count, and of the others those of a new token. What the chances
  lack of 1 is that none is good. Arguments as above.
  """
  least = jax.lax.cummin(_at_least(weights, good, num, most, large, most))
  return least - jnp.append(least[1:], 0.0)


def large_ones(weights: jax.Array) -> jax.Array:
  """Returns the indices of the weights that are looked at one by one."""
  return jax.lax.top_k(weights, min(_NUM_LARGE, weights.size))[1]


def _at_least(weights, good, num, most, large, end):
  """`[end]` how likely 1, 2, ... good draws come before `num` that count."""
  # Not by a scatter into the weights, which a search for them would repeat.
  is_large = jnp.zeros(weights.size, bool).at[large].set(True)
  small = jnp.where(is_large, 0.0, weights)
  times = jnp.asarray(_TIMES, weights.dtype)
  rate = good + small.sum()
  ended = rate * times > _END
  times = jnp.where(ended, 0.0, times)
  each = weights[large][:, None] * times[None]
  missing_or_come = jnp.stack([jnp.exp(-each), -jnp.expm1(-each)], axis=-1)
  arrived = _times(
    _all(missing_or_come, most), _of_small(small, times, most), most
  )
  density = jnp.where(ended, 0.0, good * jnp.exp(-rate * times))
  found = []
  for i in range(1, end + 1):  # When the `i`-th comes, so many others may have.
    fewer = jnp.where(np.arange(most) <= num - i, arrived, 0.0).sum(axis=-1)
    found.append((jnp.asarray(_WIDTHS, weights.dtype) * density * fewer).sum())
    density *= good * times / i
  return chances.rounded(jnp.stack(found))


def any_outside(draft: jax.Array, num: int) -> jax.Array:
  """Returns `[V + 1]`: not all draws without replacement are the first tokens.

  Args:
    draft: `[V]` distribution of the first draw.
    num: `k` draws.

  Returns:
    The chances, of the first 0, 1, ... `V` tokens; 0 for all of them.
  """
  times, widths = jnp.asarray(_TIMES, draft.dtype), jnp.asarray(_WIDTHS)
  outside = jnp.cumsum(draft[::-1])[::-1]

  def step(arrived, token):
    """`[T, k]` how likely 0, 1, ... `k - 1` of the tokens so far have come."""
    weight, left = token
    density = widths * left * jnp.exp(-left * times)
    found = (density * arrived.sum(axis=-1)).sum()
    missing = jnp.exp(-weight * times)[:, None]
    more = jnp.pad(arrived, ((0, 0), (1, 0)))[:, :-1]
    return arrived * missing + more * (1 - missing), found

  start = jnp.zeros((times.size, num), draft.dtype).at[:, 0].set(1.0)
  _, found = jax.lax.scan(step, start, (draft, outside))
  return jnp.append(found, 0.0)


def _all(factors, most):
  """The product of polynomials `[M, T, 2]`, as `[T, most]` coefficients."""
  while len(factors) > 1:
    if len(factors) % 2:
      one = jnp.zeros_like(factors[:1]).at[..., 0].set(1.0)
      factors = jnp.concatenate([factors, one])
    factors = _times(factors[::2], factors[1::2], most)
  return factors[0]


def _times(first, second, most):
  """The product of two polynomials, up to `most` coefficients."""
  size = min(first.shape[-1] + second.shape[-1] - 1, most)
  columns = [
    sum(
      first[..., i] * second[..., j - i]
      for i in range(first.shape[-1])
      if 0 <= j - i < second.shape[-1]
    )
    for j in range(size)
  ]
  return jnp.stack(columns, axis=-1)


def _of_small(weights, times, most):
  """`[T, most]`: elementary symmetric polynomials of `exp(weights t) - 1`.

  By Newton's identities. Power sums are series of moments, of which four do:
  where the products are large, more of the others have come long ago.
  """
  total = weights.sum()
  shares = weights / jnp.where(total > 0, total, 1.0)
  # Not of the weights themselves: powers of late times are infinite.
  moments = [(shares**i).sum() * (total * times) ** i for i in range(1, 5)]
  first, second, third, fourth = moments
  sums = [
    first + second / 2 + third / 6 + fourth / 24,
    second + third + fourth * 7 / 12,
    third + fourth * 3 / 2,
    fourth,
  ]
  found = [jnp.ones_like(times)]
  for j in range(1, most):
    terms = [
      (-1) ** (i - 1) * found[j - i] * sums[i - 1]
      for i in range(1, min(j, len(sums)) + 1)
    ]
    found.append(sum(terms) / j)
  return jnp.stack(found, axis=-1)
