"""The rule by which transformers adjusts the draft length: a baseline."""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components


class DraftLength(NamedTuple):
  """Holds the draft length of the next round."""

  length: jax.Array  # [] float32


@components.component
class LengthHeuristic(base.Bandit):
  """Drafts two tokens more after a full acceptance, and one less otherwise.

  This is the schedule 'heuristic' of assisted generation in transformers, whose
  draft length is at least 1. The arm is the one whose trees have that depth, or
  the next smaller one; lengths beyond the deepest arm are not counted. It
  learns from the extra `levels` of rounds, not from rewards.

  Attributes:
    depths: `[A]` depth of each arm's tree.
    initial: the first draft length, at least 1. The default of transformers was
      5, and is 20 now.
  """

  depths: Sequence[int] = components.static()
  initial: float = 5.0

  learns_from_rewards = False

  def __post_init__(self) -> None:
    super().__post_init__()
    components.freeze_sequences(self, 'depths')
    if len(self.depths) != self.num_arms:
      raise ValueError(
        f'depths must have an entry for each of {self.num_arms} arms, got '
        f'{len(self.depths)}.'
      )
    checks.check_integers('depths', self.depths, 0)
    checks.check_range('initial', self.initial, 1)

  @property
  def arm_depths(self) -> Sequence[int]:
    """`[A]` depths that the arms' trees must have."""
    return self.depths

  def init(self) -> DraftLength:
    """Returns the first draft length."""
    return DraftLength(self._clip(jnp.asarray(self.initial, jnp.float32)))

  def select(self, key: jax.Array, state: DraftLength) -> jax.Array:
    """Returns the deepest arm that is not deeper than the draft length.

    Args:
      key: unused.
      state: the draft length.
    """
    del key
    depths = np.array(self.depths, np.float32)
    fits = depths <= state.length
    # If all arms are deeper, the shallowest one that drafts.
    order = jnp.where(fits, depths, -np.where(depths > 0, depths, np.inf))
    return jnp.argmax(order).astype(jnp.int32)

  def update(
    self,
    state: DraftLength,
    arm: jax.Array,
    reward: jax.Array,
    /,
    *,
    levels: base.Levels | None = None,
    **extra: Any,
  ) -> DraftLength:
    """Returns the next draft length.

    Args:
      state: the draft length before the round.
      arm: unused.
      reward: unused.
      levels: `[D]`, of the arm's trees, summed over rows; all of them must be
        accepted in full.
      **extra: unused.
    """
    del arm, reward, extra
    if levels is None:
      return state
    is_full = levels.passed.sum() >= levels.reached.sum()
    change = jnp.where(is_full, 2.0, -1.0)
    return DraftLength(self._clip(state.length + change))

  def _clip(self, length: jax.Array) -> jax.Array:
    """Returns a length that is at least 1 and not above the deepest arm's."""
    return jnp.clip(length, 1.0, max(1, *self.depths)).astype(jnp.float32)
