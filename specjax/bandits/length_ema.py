"""The rule by which SGLang adjusts the draft length: a baseline.

`--speculative-adaptive` (`AdaptiveStepSlot` in SGLang), without its ceiling,
which is off by default, and with one list of lengths for all batch sizes.
"""

from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import components


class AcceptedLength(NamedTuple):
  """Holds the average of accepted tokens, and the length that follows it."""

  rank: jax.Array  # [] int32, of the selected arm by depth
  accepted: jax.Array  # [] float32, moving average of accepted tokens
  num_rounds: jax.Array  # [] int32


@components.component
class LengthEMA(base.Bandit):
  """Follows the accepted tokens per round, an exponential moving average.

  Every `interval` rounds after `warmup` ones, the next shorter arm is selected
  while the average is at most its depth minus 0.5, plus `down_hysteresis`; if
  none is, the next deeper one while the average exceeds the depth of the arm
  minus 0.5, plus `up_hysteresis`. An arm that drafts nothing counts as one of
  depth 1 here, and after it, the next deeper arm is tried. It learns from the
  extra `levels` of rounds, not from rewards.

  Attributes:
    depths: `[A]` depth of each arm's tree, all different.
    initial: one of `depths`, the first to be selected; None for the middle one.
    decay: weight of a round in the average, in (0, 1].
    interval: number of rounds between two decisions, at least 1.
    warmup: number of rounds before the first interval.
    down_hysteresis: tokens; below 0, arms become shorter later.
    up_hysteresis: tokens; above 0, arms become deeper later.
  """

  depths: Sequence[int] = components.static()
  initial: int | None = components.static(default=None)
  decay: float = 0.2
  interval: int = 5
  warmup: int = 10
  down_hysteresis: float = -0.25
  up_hysteresis: float = 0.0

  learns_from_rewards = False

  def __post_init__(self) -> None:
    super().__post_init__()
    components.freeze_sequences(self, 'depths')
    if (
      len({*self.depths}) != self.num_arms or len(self.depths) != self.num_arms
    ):
      raise ValueError(
        f'depths must be different for each of {self.num_arms} arms, got '
        f'{self.depths}.'
      )
    checks.check_integers('depths', self.depths, 0)
    if self.initial is not None and self.initial not in self.depths:
      raise ValueError(
        f'initial must be one of the depths {self.depths}, got {self.initial}.'
      )
    checks.check_range('decay', self.decay, 1e-6, 1)
    checks.check_integers('interval', self.interval, 1)
    checks.check_integers('warmup', self.warmup, 0)

  @property
  def arm_depths(self) -> Sequence[int]:
    """`[A]` depths that the arms' trees must have."""
    return self.depths

  @property
  def lengths(self) -> np.ndarray:
    """`[A]` the depths in their order."""
    return np.sort(np.array(self.depths, np.float32))

  def init(self) -> AcceptedLength:
    """Returns the first length, and one token less as the average."""
    rank = self.num_arms // 2
    if self.initial is not None:
      rank = sorted(self.depths).index(self.initial)
    return AcceptedLength(
      jnp.int32(rank), jnp.float32(self.lengths[rank] - 1), jnp.int32(0)
    )

  def select(self, key: jax.Array, state: AcceptedLength) -> jax.Array:
    """Returns the arm of the current length.

    Args:
      key: unused.
      state: the current length.
    """
    del key
    return jnp.asarray(np.argsort(self.depths).astype(np.int32))[state.rank]

  def update(
    self,
    state: AcceptedLength,
    arm: jax.Array,
    reward: jax.Array,
    /,
    *,
    levels: base.Levels | None = None,
    **extra: Any,
  ) -> AcceptedLength:
    """Adds a round to the average, and decides at the end of an interval.

    Args:
      state: the state before the round.
      arm: unused.
      reward: unused.
      levels: `[D]`, of the arm's trees, summed over rows.
      **extra: unused.
    """
    del arm, reward, extra
    if levels is None:
      return state
    rows = levels.reached.max(initial=0.0)  # 0 if nothing was drafted.
    mean = levels.passed.sum() / jnp.maximum(rows, 1)
    change = jnp.where(rows > 0, self.decay * (mean - state.accepted), 0.0)
    state = AcceptedLength(
      state.rank, state.accepted + change, state.num_rounds + 1
    )
    num_after = state.num_rounds - self.warmup
    decides = (num_after > 0) & (num_after % self.interval == 0)
    return jax.tree.map(
      lambda new, old: jnp.where(decides, new, old), self._decide(state), state
    )

  def _decide(self, state: AcceptedLength) -> AcceptedLength:
    """Returns the state after a decision."""
    ranks, lengths = np.arange(self.num_arms), self.lengths
    falls = (
      state.accepted <= np.maximum(lengths, 1) - 0.5 + self.down_hysteresis
    )
    rises = state.accepted > lengths - 0.5 + self.up_hysteresis
    num_down = (falls & (ranks < state.rank)).sum(dtype=jnp.int32)
    num_up = (rises & (ranks >= state.rank))[:-1].sum(dtype=jnp.int32)
    # Nothing has been accepted since nothing was drafted.
    is_plain = jnp.asarray(lengths)[state.rank] == 0
    num_up = jnp.where(is_plain, min(1, self.num_arms - 1), num_up)
    rank = state.rank + jnp.where(num_down > 0, -num_down, num_up)
    is_first = is_plain & (state.accepted < 0)
    neutral = jnp.asarray(lengths)[rank] - 1
    return state._replace(
      rank=rank, accepted=jnp.where(is_first, neutral, state.accepted)
    )
