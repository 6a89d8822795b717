"""Deferral rules: at each position, the draft's distribution or the target's.

Speculative cascades (Narasimhan et al. 2024), Tables 1 and 3. A rule compares
how sure the models are, by what they predict at temperature 1; what is mixed is
what tokens are drawn from. Notation: the paper's p is the target, its q is the
draft. In all rules, a larger `alpha` defers to the target less often.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry


@registry.component(example={'alpha': 0.25})
def chow(alpha: float) -> base.Goal:
  """Builds the rule that defers where `max draft < 1 - alpha`.

  Args:
    alpha: in [0, 1]; 0 is the target, even if the largest probability rounds
      to 1.
  """
  checks.check_range('alpha of chow', alpha, 0, 1)
  return _goal(lambda pair: unsure(pair.raw[1], alpha))


def unsure(draft: jax.Array, alpha: float) -> jax.Array:
  """Returns whether `max draft < 1 - alpha`, for `[..., V]`; always at 0."""
  return (draft.max(-1) < 1 - alpha) | (alpha <= 0)


@registry.component(example={'alpha': 0.25})
def chow_log(alpha: float) -> base.Goal:
  """Builds the rule that defers where the draft's entropy exceeds `alpha`.

  Args:
    alpha: nats, at least 0 and finite; 0 is the target, even if the entropy
      rounds to 0.
  """
  checks.check_range('alpha of chow_log', alpha, 0)
  _check_finite('chow_log', alpha)
  return _goal(lambda pair: unsure_log(pair.raw[1], alpha))


def unsure_log(draft: jax.Array, alpha: float) -> jax.Array:
  """Returns whether the entropy exceeds `alpha` nats; always at 0.

  The argument is `[..., V]`.
  """
  return (entropy(draft) > alpha) | (alpha <= 0)


@registry.component(example={'alpha': 0.25})
def diff(alpha: float) -> base.Goal:
  """Builds the rule that defers where `max draft < max target - alpha`.

  Args:
    alpha: in [-1, 1].
  """
  checks.check_range('alpha of diff', alpha, -1, 1)
  return _goal(lambda pair: _max_gap(pair) > alpha)


@registry.component(example={'alpha': 0.25})
def diff_log(alpha: float) -> base.Goal:
  """Builds the rule that defers where `H(target) < H(draft) - alpha`.

  Args:
    alpha: nats, finite.
  """
  _check_finite('diff_log', alpha)
  return _goal(lambda pair: _entropy_gap(pair) > alpha)


@registry.component(example={'alpha': 0.25})
def opt(alpha: float) -> base.Goal:
  """Builds the rule that defers where `max draft < max target - alpha TV`.

  Equation (10): `TV(target, draft)` of what tokens are drawn from is what
  deferring costs, a rejection.

  Args:
    alpha: finite.
  """
  _check_finite('opt', alpha)
  return _goal(lambda pair: _max_gap(pair) > alpha * _distance(pair))


@registry.component(example={'alpha': 0.25})
def opt_log(alpha: float) -> base.Goal:
  """Builds the rule that defers where `H(target) < H(draft) - alpha TV`.

  Args:
    alpha: nats, finite.
  """
  _check_finite('opt_log', alpha)
  return _goal(lambda pair: _entropy_gap(pair) > alpha * _distance(pair))


@registry.component(example={'alpha': 0.25})
def bild(alpha: float, fallback: float = 1.0) -> base.Goal:
  """Builds the rule that defers where the target is surprised by the draft.

  BiLD (Kim et al. 2023), as a speculative cascade: where `-sum_v draft(v) log
  target(v) > alpha`, of what is drafted and of the target at temperature 1. At
  temperature 0 that is `-log target` of the draft's choice.

  The original falls back to the target as soon as the draft is unsure, too:
  with a drafter whose `stop` is `unsure` of the same `fallback`, this gives
  the same text.

  Args:
    alpha: nats, at least 0 and finite.
    fallback: in [0, 1]; defer also where `max draft < 1 - fallback`.
  """
  checks.check_range('alpha of bild', alpha, 0)
  _check_finite('bild', alpha)
  checks.check_range('fallback of bild', fallback, 0, 1)

  def defers(pair):
    surprise = _cross_entropy(pair.draft, pair.raw[0])
    return (surprise > alpha) | unsure(pair.raw[1], fallback)

  return _goal(defers)


class _Pair(NamedTuple):
  """All that a rule may ask for at one position."""

  target: jax.Array  # [V]
  draft: jax.Array  # [V]
  raw: tuple[jax.Array, jax.Array]  # target and draft, [V] each


def entropy(probs: jax.Array) -> jax.Array:
  """Returns the entropy of `[..., V]` in nats."""
  return _cross_entropy(probs, probs)


def _goal(defers: Callable[['_Pair'], jax.Array]) -> base.Goal:
  """The goal that is the target where `defers`, else the draft."""

  def goal(target, draft, raw=None):
    models = (target, draft) if raw is None else raw
    return jnp.where(defers(_Pair(target, draft, models)), target, draft)

  return goal


def _max_gap(pair):
  target, draft = pair.raw
  return target.max(-1) - draft.max(-1)


def _entropy_gap(pair):
  target, draft = pair.raw
  return entropy(draft) - entropy(target)


def _distance(pair):
  return jnp.maximum(pair.target - pair.draft, 0.0).sum(-1)


def _cross_entropy(probs, other):
  logs = jnp.log(jnp.where(probs > 0, other, 1.0))
  return -(probs * logs).sum(-1)


def _check_finite(rule, alpha):
  if not isinstance(alpha, jax.core.Tracer) and not np.isfinite(alpha):
    raise ValueError(f'alpha of {rule} must be finite, got {alpha}.')
