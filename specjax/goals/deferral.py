"""Deferral rules: each position gets the draft's distribution or the target's.

Speculative cascades (Narasimhan et al. 2024), Tables 1 and 3. A rule compares
how sure the models are by their distributions at temperature 1, and selects one
of the distributions that tokens are sampled from. Notation: the paper's p is
the target, its q is the draft. In all rules, a larger `alpha` defers to the
target less often.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components


class Deferral(base.Goal):
  """The goal that is the target where a rule defers to it, else the draft."""

  def defers(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    """Returns whether the rule defers to the target, a scalar bool.

    Args:
      target: See `base.Goal`.
      draft: See `base.Goal`.
      raw: See `base.Goal`.
    """
    raise NotImplementedError

  def __call__(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    return jnp.where(self.defers(target, draft, raw), target, draft)


@components.component
class Chow(Deferral):
  """Defers where `max draft < 1 - alpha`.

  Attributes:
    alpha: in [0, 1]; 0 is the target, even if the largest probability rounds
      to 1.
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of Chow', self.alpha, 0, 1)

  def defers(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    return unsure(raw.draft, self.alpha)


def unsure(draft: jax.Array, alpha: float) -> jax.Array:
  """Returns whether `max draft < 1 - alpha`, for `[..., V]`; always at 0."""
  return (draft.max(-1) < 1 - alpha) | (alpha <= 0)


@components.component
class ChowLog(Deferral):
  """Defers where the draft's entropy exceeds `alpha`.

  Attributes:
    alpha: nats, at least 0 and finite; 0 is the target, even if the entropy
      rounds to 0.
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of ChowLog', self.alpha, 0)
    _check_finite('alpha of ChowLog', self.alpha)

  def defers(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    return unsure_log(raw.draft, self.alpha)


def unsure_log(draft: jax.Array, alpha: float) -> jax.Array:
  """Returns whether the entropy exceeds `alpha` nats; always at 0.

  Args:
    draft: `[..., V]` distributions.
    alpha: nats.
  """
  return (entropy(draft) > alpha) | (alpha <= 0)


@components.component
class Diff(Deferral):
  """Defers where `max draft < max target - alpha`.

  Attributes:
    alpha: in [-1, 1].
  """

  alpha: float

  def __post_init__(self) -> None:
    checks.check_range('alpha of Diff', self.alpha, -1, 1)

  def defers(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    return _max_gap(raw) > self.alpha


@components.component
class DiffLog(Deferral):
  """Defers where `H(target) < H(draft) - alpha`.

  Attributes:
    alpha: nats, finite.
  """

  alpha: float

  def __post_init__(self) -> None:
    _check_finite('alpha of DiffLog', self.alpha)

  def defers(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    return _entropy_gap(raw) > self.alpha


@components.component
class Opt(Deferral):
  """Defers where `max draft < max target - alpha TV`.

  Equation (10): deferring costs a rejection, whose probability is the total
  variation `TV(target, draft)` between the sampled distributions.

  Attributes:
    alpha: finite.
  """

  alpha: float

  def __post_init__(self) -> None:
    _check_finite('alpha of Opt', self.alpha)

  def defers(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    return _max_gap(raw) > self.alpha * _distance(target, draft)


@components.component
class OptLog(Deferral):
  """Defers where `H(target) < H(draft) - alpha TV`. See `Opt`.

  Attributes:
    alpha: nats, finite.
  """

  alpha: float

  def __post_init__(self) -> None:
    _check_finite('alpha of OptLog', self.alpha)

  def defers(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    return _entropy_gap(raw) > self.alpha * _distance(target, draft)


@components.component
class Bild(Deferral):
  """Defers where the draft surprises the target (BiLD).

  BiLD (Kim et al. 2023) as a speculative cascade: it defers where
  `-sum_v draft(v) log target(v) > alpha`, with the sampled distribution of the
  draft and the target's at temperature 1. At temperature 0 the sum is
  `-log target` of the draft's choice.

  The original also falls back to the target as soon as the draft is unsure. A
  drafter whose `stop` is `unsure(fallback)` gives the same text with this goal.

  Attributes:
    alpha: nats, at least 0 and finite.
    fallback: in [0, 1]; the rule also defers where `max draft < 1 - fallback`.
  """

  alpha: float
  fallback: float = 1.0

  def __post_init__(self) -> None:
    checks.check_range('alpha of Bild', self.alpha, 0)
    _check_finite('alpha of Bild', self.alpha)
    checks.check_range('fallback of Bild', self.fallback, 0, 1)

  def defers(
    self, target: jax.Array, draft: jax.Array, raw: base.RawProbs
  ) -> jax.Array:
    surprise = _cross_entropy(draft, raw.target)
    return (surprise > self.alpha) | unsure(raw.draft, self.fallback)


def entropy(probs: jax.Array) -> jax.Array:
  """Returns the entropy of `[..., V]` in nats."""
  return _cross_entropy(probs, probs)


def _max_gap(raw: base.RawProbs) -> jax.Array:
  return raw.target.max(-1) - raw.draft.max(-1)


def _entropy_gap(raw: base.RawProbs) -> jax.Array:
  return entropy(raw.draft) - entropy(raw.target)


def _distance(target: jax.Array, draft: jax.Array) -> jax.Array:
  """Returns the total variation between both distributions."""
  return jnp.maximum(target - draft, 0.0).sum(-1)


def _cross_entropy(probs: jax.Array, other: jax.Array) -> jax.Array:
  logs = jnp.log(jnp.where(probs > 0, other, 1.0))
  return -(probs * logs).sum(-1)


def _check_finite(name: str, value: float) -> None:
  if checks.is_known(value) and not np.isfinite(value).all():
    raise ValueError(f'{name} must be finite, got {value}.')
