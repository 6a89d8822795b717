"""Contextual bandits: the best arm depends on what the text shows."""

from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import base
from specjax import checks
from specjax import components
from specjax.drafters import matching


class LinearState(NamedTuple):
  """Holds one ridge regression per arm, of losses on features of the text."""

  features: jax.Array  # [C] float32, of the next round
  recent: jax.Array  # [] float32, share of levels passed in the last draft
  inverse: jax.Array  # [A, C, C] float32, of the regularized Gram matrix
  moments: jax.Array  # [A, C] float32, sums of `1 - reward` times features


@components.component
class LinUCB(base.Bandit):
  """Selects by LinUCB with disjoint models (Li et al. 2010, Algorithm 1).

  BanditSpec (Hou et al. 2025, Section 7) names contextual bandits as an
  extension. The context costs no call of a model: how many tokens of the row's
  end match an earlier place of its text, as prompt lookup would find them, and
  which share of the last draft was accepted. A bandit of a batch sees the mean
  over its live rows.

  Features are an indicator of each match length from 0 to `max_match`, and the
  share of levels that the last draft passed. The regression is one of losses,
  `1 - reward`, so that an arm counts as perfect in contexts where it has not
  been tried: with a small `alpha`, it would otherwise never be.

  Attributes:
    alpha: scale of the confidence radius, at least 0. Rewards lie in [0, 1] and
      often differ by less than 0.1, so that values below 1 explore enough.
    ridge: weight of the regularization, above 0.
    max_match: number of tokens beyond which a match counts as no longer, at
      least 1.
  """

  alpha: float = 0.25
  ridge: float = 1.0
  max_match: int = components.static(default=4)

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('alpha', self.alpha, 0)
    checks.check_range('ridge', self.ridge, 1e-6)
    checks.check_integers('max_match', self.max_match, 1)

  @property
  def num_features(self) -> int:
    """Number of features, `C`."""
    return self.max_match + 2

  def init(self) -> LinearState:
    """Returns regressions on no round, and the features of no match."""
    size = self.num_features
    identity = jnp.eye(size, dtype=jnp.float32) / self.ridge
    return LinearState(
      features=jnp.zeros(size, jnp.float32).at[0].set(1.0),
      recent=jnp.float32(0.0),
      inverse=jnp.broadcast_to(identity, (self.num_arms, size, size)),
      moments=jnp.zeros((self.num_arms, size), jnp.float32),
    )

  def read_text(
    self, state: LinearState, context: base.Context, live: jax.Array
  ) -> LinearState:
    """Returns the state with the features of the rows' text."""
    match = jax.vmap(matching.match_row, in_axes=(0, 0, None))(
      context.tokens, context.lengths, self.max_match
    )
    is_length = jax.nn.one_hot(match.max(1), self.max_match + 1)
    count = jnp.maximum(live.sum(dtype=jnp.float32), 1)
    shares = jnp.where(live[:, None], is_length, 0.0).sum(0) / count
    return state._replace(features=jnp.append(shares, state.recent))

  def select(self, key: jax.Array, state: LinearState) -> jax.Array:
    """Returns the arm with the best bound on its loss; ties go to the lowest.

    Args:
      key: unused.
      state: the regressions so far, and the features of this round.
    """
    del key
    spread = _spread(state)
    loss = (spread * state.moments).sum(-1)
    radius = jnp.sqrt(jnp.maximum(spread @ state.features, 0))
    return jnp.argmin(loss - self.alpha * radius).astype(jnp.int32)

  def update(
    self,
    state: LinearState,
    arm: jax.Array,
    reward: jax.Array,
    /,
    *,
    levels: base.Levels | None = None,
    **extra: Any,
  ) -> LinearState:
    """Adds a round to the regression of its arm.

    Args:
      state: the state before the round, with the features of the round.
      arm: `[]` int32, the arm that was selected.
      reward: `[]` float in [0, 1].
      levels: `[D]`, of the arm's trees, summed over rows.
      **extra: unused.
    """
    del extra
    if levels is not None:
      reached, passed = levels.reached.sum(), levels.passed.sum()
      share = passed / jnp.maximum(reached, 1)
      recent = jnp.where(reached > 0, share, state.recent)
      state = state._replace(recent=recent)
    return self._add(state, jnp.arange(self.num_arms) == arm, reward)

  def update_all(self, state: LinearState, rewards: jax.Array) -> LinearState:
    """Adds a reward to the regression of every arm."""
    return self._add(state, jnp.ones(self.num_arms, bool), rewards)

  def _add(
    self, state: LinearState, is_pulled: jax.Array, rewards: jax.Array
  ) -> LinearState:
    """Adds the round's features with rewards, `[A]` or `[]`, to some arms.

    The inverse is updated by the formula of Sherman and Morrison.
    """
    weight = is_pulled.astype(jnp.float32)
    spread = _spread(state)
    scale = weight / (1 + spread @ state.features)
    outer = spread[:, :, None] * spread[:, None]
    moment = (weight * (1 - rewards))[:, None] * state.features[None]
    return state._replace(
      inverse=state.inverse - scale[:, None, None] * outer,
      moments=state.moments + moment,
    )


def _spread(state: LinearState) -> jax.Array:
  """Returns `[A, C]` the product of each inverse and the features."""
  return jnp.einsum('acd,d->ac', state.inverse, state.features)
