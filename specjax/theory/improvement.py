"""What more drafts of one token are worth under multi-round rejection.

Yin et al. (2024), Section 3. Notation: the paper's p is the draft, its q is the
target.
"""

import jax
import jax.numpy as jnp

from specjax import checks
from specjax import transport
from specjax.transport import inputs


def batch_improvement(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
) -> jax.Array:
  """Returns by how much `K` drafts lower the chance of a rejection.

  `TV(target, draft)` less the product of the distances that the `K` residuals
  have from the draft; never negative.

  Args:
    draft: `[V]` distribution of each draft.
    target: `[V]` distribution of the token.
    num_drafts: `K >= 1`, may be traced.

  Raises:
    ValueError: no distributions or `K < 1`, where the values are known.
  """
  several = transport.multiround_acceptance(draft, target, num_drafts)
  return several - transport.multiround_acceptance(draft, target, 1)


def uniform_batch_improvement(
  ratio: jax.typing.ArrayLike, num_drafts: jax.typing.ArrayLike
) -> jax.Array:
  """Returns it for uniform distributions, the target on `1/ratio` of tokens.

  `(1 - 1/ratio) - (1 - 1/ratio)**K`; arguments broadcast.
  """
  checks.check_range('ratio', ratio, 1)
  inputs.check_num_drafts(num_drafts)
  distance = 1 - 1 / jnp.asarray(ratio, float)
  return distance - distance ** jnp.asarray(num_drafts, float)


def bernoulli_batch_improvement(
  draft: jax.typing.ArrayLike,
  target: jax.typing.ArrayLike,
  num_drafts: jax.typing.ArrayLike,
) -> jax.Array:
  """Returns it for two tokens, `|draft - target| (1 - draft**(K-1))`.

  Here `draft` is of the token that is less likely in the target.

  Args:
    draft: chance of either token in each draft; arrays broadcast.
    target: its chance in the target.
    num_drafts: `K >= 1`.
  """
  checks.check_range('draft', draft, 0, 1)
  checks.check_range('target', target, 0, 1)
  inputs.check_num_drafts(num_drafts)
  draft, target = jnp.asarray(draft, float), jnp.asarray(target, float)
  rarer = jnp.where(draft >= target, draft, 1 - draft)
  exponent = jnp.asarray(num_drafts, float) - 1
  return jnp.abs(draft - target) * (1 - rarer**exponent)
