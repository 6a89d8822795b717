"""Tokens a second, from how often each level of a tree is accepted.

Liu et al. (2024), "Optimizing Speculative Decoding for Serving Large Language
Models Using Goodput" (SmartSpec), choose the draft length by such a model. What
is not known yet is believed here, as by Thompson sampling.
"""

from collections.abc import Sequence
import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax import base
from specjax import checks
from specjax import registry

# So many rounds are one for which an arm stays.
_STAY = 20


class _State(NamedTuple):
  """Sums over rounds and rows, of each kind of arms and each level; and an arm.

  An arm that is drawn stays for some rounds.
  """

  passed: jax.Array  # [G, D] float32
  failed: jax.Array  # [G, D] float32, it was reached, and was not passed
  arm: jax.Array  # [] int32, of the last round
  left: jax.Array  # [] int32, more rounds for which it stays
  num_rounds: jax.Array  # [] int32, so far


@registry.component(
  example={'num_arms': 3, 'costs': (1.0, 1.2, 1.6), 'depths': (0, 2, 4)}
)
def goodput(
  num_arms: int,
  costs: Sequence[float],
  depths: Sequence[int],
  kinds: Sequence[int] | None = None,
  reading_costs: Sequence[float] | None = None,
  *,
  discount: float = 1.0,
) -> base.Bandit:
  """Builds the bandit that plays the arm of the most tokens a second.

  Arm `a` emits `1 + p_1 + p_1 p_2 + ...` tokens a round, up to its depth, where
  `p_i` is the chance that level `i` is passed where the levels above are: it is
  drafted and accepted, and does not end its row. Over its cost, that is its
  goodput. Each `p_i` is drawn from a beta belief.
  Where rows are refilled, a prompt is to be read for every answer, and by the
  drafter too: its time is shared out among the answer's tokens.

  An arm that was drawn stays for a twentieth of the rounds so far: a drafter
  that plays a round now and then would read prompts for little.

  A round shows more than its own arm: of trees of one kind, all learn from the
  levels that they share. Plain decoding, of depth 0, needs no trial.

  It learns from the extra `levels` of rounds, not from rewards.

  Args:
    num_arms: `A`, at least 1.
    costs: `[A]` seconds of a round of each arm, at the batch size in use.
    depths: `[A]` depth of each arm's tree.
    kinds: `[A]` numbers from 0, equal for arms that share what they learn:
      those of one drafter, verified token by token, whose trees differ in their
      depths alone. By default, all do.
    reading_costs: `[A]` seconds of reading prompts that come with each token of
      a row: those of a batch's prompts over the tokens of an answer. What all
      arms read changes nothing; nothing is read, by default.
    discount: in (0, 1], by which what was seen counts less after each round. No
      more than `1 / (1 - discount)` rounds count for how long an arm stays.

  Raises:
    ValueError: an argument is out of range, or not of so many arms.
  """
  plan = _make_plan(num_arms, costs, depths, kinds, reading_costs, discount)
  return base.Bandit(
    num_arms,
    init=functools.partial(_begin, plan),
    select=functools.partial(_select, plan),
    update=functools.partial(_update, plan),
    # Rewards show no levels.
    update_all=lambda state, rewards: state,
  )


class _Plan(NamedTuple):
  """What is known of the arms; times in units of the longest round."""

  seconds: np.ndarray  # [A] of a round
  reading: np.ndarray  # [A] of reading prompts, by the token
  there: np.ndarray  # [A, D] bool, the arm drafts the level
  kind: np.ndarray  # [A]
  discount: float
  horizon: int  # rounds that count


def _make_plan(num_arms, costs, depths, kinds, reading, discount):
  checks.check_range('discount', discount, 1e-6, 1)
  kinds = (0,) * num_arms if kinds is None else kinds
  reading = (0.0,) * num_arms if reading is None else reading
  seconds, depth, kind, reading = _checked(
    num_arms, costs, depths, kinds, reading
  )
  return _Plan(
    seconds / seconds.max(),
    reading / seconds.max(),
    np.arange(depth.max()) < depth[:, None],
    kind,
    discount,
    2**30 if discount == 1 else round(1 / (1 - discount)),
  )


def _begin(plan: _Plan):
  size = int(plan.kind.max()) + 1, plan.there.shape[1]
  return _State(*[jnp.zeros(size, jnp.float32)] * 2, *[jnp.int32(0)] * 3)


def _select(plan: _Plan, key, state):
  # Betas are drawn by trial and error, which rounds of a small target feel.
  return jax.lax.cond(
    state.left > 0,
    lambda: state.arm,
    lambda: _draw(plan, key, state),
  )


def _draw(plan: _Plan, key, state):
  """The best arm, if beliefs that are drawn were true."""
  chances = jax.random.beta(
    key, 1 + state.passed, 1 + state.failed, dtype=jnp.float32
  )
  reached = jnp.cumprod(chances, axis=1)[plan.kind]
  tokens = 1 + jnp.where(plan.there, reached, 0.0).sum(axis=1)
  seconds, reading = (
    jnp.asarray(each, jnp.float32) for each in (plan.seconds, plan.reading)
  )
  return jnp.argmin(seconds / tokens + reading).astype(jnp.int32)


def _update(plan: _Plan, state, arm, reward, /, *, levels=None, **extra):
  del reward, extra
  if levels is None:
    return state
  num_kinds = len(state.passed)
  own = (jnp.arange(num_kinds) == jnp.asarray(plan.kind)[arm])[:, None]
  add = lambda old, new: plan.discount * old + jnp.where(own, new[None], 0.0)
  num_rounds = state.num_rounds + 1
  counted = jnp.minimum(num_rounds, plan.horizon)
  left = jnp.where(state.left > 0, state.left, counted // _STAY) - 1
  return _State(
    add(state.passed, levels.passed),
    add(state.failed, levels.reached - levels.passed),
    jnp.asarray(arm, jnp.int32),
    left,
    num_rounds,
  )


def _checked(num_arms, *given):
  """Costs, depths, kinds and costs of reading as arrays `[A]`."""
  checks.check_range('num_arms', num_arms, 1)
  arrays = costs, depths, kinds, reading = tuple(map(np.asarray, given))
  if any(each.shape != (num_arms,) for each in arrays):
    raise ValueError(
      'costs, depths, kinds and reading_costs must have an entry for each of '
      f'{num_arms} arms, got {costs.size}, {depths.size}, {kinds.size} and '
      f'{reading.size}.'
    )
  if not (costs > 0).all() or not np.isfinite(costs).all():
    raise ValueError(f'costs must be > 0 and finite, got {costs}.')
  checks.check_range('depths', depths, 0)
  checks.check_range('kinds', kinds, 0)
  checks.check_range('reading_costs', reading, 0)
  return arrays
