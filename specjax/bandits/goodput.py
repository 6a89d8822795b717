"""Tokens per second, from how often each level of a tree is accepted.

Liu et al. (2024), "Optimizing Speculative Decoding for Serving Large Language
Models Using Goodput" (SmartSpec), choose the draft length by such a model. Here
what is not known yet is drawn from a posterior, as by Thompson sampling.
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

# An arm is kept for num_rounds / _ROUNDS_PER_STAY rounds.
_ROUNDS_PER_STAY = 20
# More rounds than are ever played.
_ENDLESS = 2.0**30


class LevelCounts(NamedTuple):
  """Holds sums over rounds and rows, by kind of arm and level, and an arm.

  An arm that was drawn is kept for some rounds.
  """

  passed: jax.Array  # [G, D] float32
  failed: jax.Array  # [G, D] float32, the level was reached and not passed
  arm: jax.Array  # [] int32, the arm of the last round
  num_kept: jax.Array  # [] int32, further rounds for which the arm is kept
  num_rounds: jax.Array  # [] int32, rounds so far


@components.component
class Goodput(base.Bandit):
  """Selects the arm that emits the most tokens per second.

  Arm `a` emits `1 + p_1 + p_1 p_2 + ...` tokens per round, up to its depth,
  where `p_i` is the probability that level `i` is passed if the levels above
  are: it is drafted and accepted, and does not end its row. Divided by the cost
  of a round, that is its goodput. Each `p_i` is drawn from a beta posterior.
  With continuous batching, each answer needs the prefill of a prompt, by the
  drafter as well: its time is spread over the tokens of the answer.

  An arm that was drawn is kept for a twentieth of the rounds so far: a drafter
  that is selected now and then would prefill prompts for little.

  A round informs about more than its own arm: among trees of one kind, all arms
  learn from the levels that they share. Plain decoding, of depth 0, needs no
  trial. The bandit learns from the extra `levels` of rounds, not from rewards.

  Attributes:
    costs: `[A]` seconds per round of each arm, at the batch size in use; a
      sequence or an array.
    depths: `[A]` depth of each arm's tree.
    kinds: `[A]` numbers from 0, equal for arms that share what they learn: arms
      with one drafter, verified token by token, whose trees differ in depth
      only. By default, all arms do.
    prefill_costs: `[A]` seconds of prefill per token of a row: those of a
      batch's prompts divided by the tokens of an answer. What all arms pay
      changes nothing; the default is 0.
    discount: factor in (0, 1] by which older levels count less after each
      round. At most `1 / (1 - discount)` rounds count for how long an arm is
      kept.

  Raises:
    ValueError: an argument is out of range, or has another number of entries.
  """

  costs: Sequence[float]
  depths: Sequence[int] = components.static()
  kinds: Sequence[int] | None = components.static(default=None)
  prefill_costs: Sequence[float] | None = None
  discount: float = 1.0

  learns_from_rewards = False

  def __post_init__(self) -> None:
    super().__post_init__()
    checks.check_range('discount', self.discount, 1e-6, 1)
    components.freeze_sequences(
      self, 'costs', 'depths', 'kinds', 'prefill_costs'
    )
    if self.kinds is None:
      object.__setattr__(self, 'kinds', (0,) * self.num_arms)
    if self.prefill_costs is None:
      object.__setattr__(self, 'prefill_costs', (0.0,) * self.num_arms)
    _check(self)

  @property
  def arm_depths(self) -> Sequence[int]:
    """`[A]` depths that the arms' trees must have."""
    return self.depths

  @property
  def has_level(self) -> np.ndarray:
    """Whether each arm drafts each level, `[A, D]` bool."""
    return np.arange(max(self.depths)) < np.array(self.depths)[:, None]

  def init(self) -> LevelCounts:
    """Returns counts of no round."""
    assert self.kinds is not None  # See `__post_init__`.
    size = max(self.kinds) + 1, max(self.depths)
    zeros, zero = jnp.zeros(size, jnp.float32), jnp.int32(0)
    return LevelCounts(zeros, zeros, zero, zero, zero)

  def select(self, key: jax.Array, state: LevelCounts) -> jax.Array:
    """Returns the arm that is kept, or the best one under drawn probabilities.

    Args:
      key: a random key of this round.
      state: the counts so far.
    """
    # Betas are drawn by rejection, which slows down rounds of a small target.
    return jax.lax.cond(
      state.num_kept > 0, lambda: state.arm, lambda: self._draw(key, state)
    )

  def update(
    self,
    state: LevelCounts,
    arm: jax.Array,
    reward: jax.Array,
    /,
    *,
    levels: base.Levels | None = None,
    **extra: Any,
  ) -> LevelCounts:
    """Adds the levels of a round; without them, the state stays as it is.

    Args:
      state: the counts before the round.
      arm: `[]` int32, the arm that was selected.
      reward: unused.
      levels: `[D]`, of the arm's trees, summed over rows.
      **extra: unused.
    """
    del reward, extra
    if levels is None:
      return state
    kind = jnp.asarray(self.kinds)[arm]
    is_same_kind = (jnp.arange(len(state.passed)) == kind)[:, None]

    def add(counts: jax.Array, new: jax.Array) -> jax.Array:
      return self.discount * counts + jnp.where(is_same_kind, new[None], 0.0)

    num_rounds = state.num_rounds + 1
    stay = jnp.minimum(num_rounds, self._horizon()) // _ROUNDS_PER_STAY
    return LevelCounts(
      add(state.passed, levels.passed),
      add(state.failed, levels.reached - levels.passed),
      jnp.asarray(arm, jnp.int32),
      jnp.where(state.num_kept > 0, state.num_kept, stay) - 1,
      num_rounds,
    )

  def _draw(self, key: jax.Array, state: LevelCounts) -> jax.Array:
    """Returns the best arm under probabilities drawn from the posterior."""
    probs = jax.random.beta(
      key, 1 + state.passed, 1 + state.failed, dtype=jnp.float32
    )
    reached = jnp.cumprod(probs, axis=1)[np.array(self.kinds)]
    tokens = 1 + jnp.where(self.has_level, reached, 0.0).sum(axis=1)
    seconds = jnp.asarray(self.costs, jnp.float32) / tokens
    prefill = jnp.asarray(self.prefill_costs, jnp.float32)
    return jnp.argmin(seconds + prefill).astype(jnp.int32)

  def _horizon(self) -> jax.Array:
    """Returns `[]` int32, how many rounds count."""
    weight = jnp.maximum(1 - self.discount, 1 / _ENDLESS)
    return jnp.round(1 / weight).astype(jnp.int32)


def _check(bandit: Goodput) -> None:
  """Checks the arguments that are one number per arm."""
  names = 'costs', 'depths', 'kinds', 'prefill_costs'
  sizes = [checks.num_entries(getattr(bandit, name)) for name in names]
  if {*sizes} - {bandit.num_arms, None}:
    raise ValueError(
      'costs, depths, kinds and prefill_costs must have an entry for each of '
      f'{bandit.num_arms} arms, got {sizes[0]}, {sizes[1]}, {sizes[2]} and '
      f'{sizes[3]}.'
    )
  checks.check_positive('costs', bandit.costs)
  for name in ('depths', 'kinds'):
    checks.check_integers(name, getattr(bandit, name), 0)
  checks.check_range('prefill_costs', bandit.prefill_costs, 0)
