"""How often one of `k` i.i.d. drafts is accepted, at best and by each rule."""

import jax
import jax.numpy as jnp

from specjax.transport import division
from specjax.transport import inputs
from specjax.transport import priorities
from specjax.transport import rejection


def optimal_acceptance(draft, target, num_drafts) -> jax.Array:
  """Returns the acceptance of the best plan, for any vocabulary.

  Max-flow min-cut turns the linear program into the minimum over token sets
  `H` of `1 + target(H) - draft(H)**k`, and the best `H` is a prefix of the
  tokens in the order of `target / draft`: one sort.

  Args:
    draft: `[V]` law of each draft.
    target: `[V]` law of the token.
    num_drafts: `k >= 1`, may be traced.

  Returns:
    `[]` float32 in [0, 1].

  Raises:
    ValueError: no laws or `k < 1`, where the values are known.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = _laws(draft, target)
  order = jnp.argsort(priorities.ratio(draft, target))
  drafts, targets = jnp.cumsum(draft[order]), jnp.cumsum(target[order])
  powers = drafts ** jnp.asarray(num_drafts, jnp.float32)
  return jnp.clip(1 + jnp.minimum((targets - powers).min(), 0.0), 0.0, 1.0)


def otm_acceptance(draft, target, num_drafts) -> jax.Array:
  """Returns the acceptance of the coupling `otm`; arguments as above."""
  inputs.check(draft, target, num_drafts)
  draft, target = _laws(draft, target)
  proposal = priorities.plan(draft, target, num_drafts).law(draft)
  return jnp.minimum(proposal, target).sum()


def kseq_acceptance(draft, target, num_drafts) -> jax.Array:
  """Returns the acceptance of k-Seq at its best division factor.

  SpecTr, Theorem 1; arguments as above.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = _laws(draft, target)
  return division.divide(draft, target, num_drafts, num_steps=30).acceptance


def multiround_acceptance(draft, target, num_drafts) -> jax.Array:
  """Returns the acceptance of `k` tests, each against what the last one left.

  Theory (Yin et al. 2024), Theorem 3: all `k` drafts are rejected with the
  product of the total variations between residuals and `draft`. Arguments as
  above.
  """
  inputs.check(draft, target, num_drafts)
  draft, target = _laws(draft, target)

  def test(_, carry):
    left, rejected = carry
    left, distance = rejection.reject(draft, left)
    return left, rejected * distance

  return 1 - jax.lax.fori_loop(0, num_drafts, test, (target, 1.0))[1]


def _laws(draft, target):
  """Both laws in the precision of JAX, with a sum of exactly 1."""
  laws = jnp.asarray(draft, float), jnp.asarray(target, float)
  return tuple(law / law.sum() for law in laws)
